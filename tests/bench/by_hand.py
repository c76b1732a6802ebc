"""The peer of `up`: a script that starts the same binaries with the same flags in the best order, and does nothing else.

Its certificates, keys and kubeconfigs exist before its clock starts; it joins no nodes, applies no objects and
supervises nothing. The commands come from the manifests of a cluster that `up` made. `python -m tests.bench.by_hand
DIRECTORY`, with the state directory of a running cluster, copies what it needs, stops that cluster, starts the
components, prints how long that took, and stops them.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench import admin
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import ADMIN, make

from kubewright.base import yaml

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
OTHERS: Final = ("kube-controller-manager", "kube-scheduler")

_LOOK: Final = 0.005
"""Seconds between two checks of etcd's port."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One component: its command, and the values of its flags."""

    name: str
    argv: tuple[str, ...]

    def flag(self, name: str) -> str:
        """Return a flag's value. Raises BenchmarkFailed if the flag is missing."""
        for word in self.argv:
            if word.startswith(f"--{name}="):
                return word.partition("=")[2]
        raise BenchmarkFailed(f"{self.name} has no --{name}")


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """All files that the components need."""

    directory: Path
    kubeconfig: Path
    commands: Mapping[str, Command]


def prepare(machine: Path, directory: Path, *, programs: Mapping[str, Path]) -> Prepared:
    """Copy the PKI and the kubeconfigs of a machine to another directory, and take the commands from its manifests.

    `machine` is a machine's state directory while its cluster runs: `down` removes the manifests. The paths in the
    flags are changed to the copy.
    """
    shutil.copytree(machine / "kubernetes", directory / "kubernetes")
    commands = {}
    for path in sorted((directory / "kubernetes" / "manifests").glob("*.yaml")):
        document: Any = yaml.load(path.read_text(encoding="utf-8").replace(str(machine), str(directory)))
        words = document["spec"]["containers"][0]["command"]
        name = document["metadata"]["name"]
        commands[name] = Command(name=name, argv=(str(programs[words[0]]), *words[1:]))
    if sorted(commands) != sorted((ETCD, API_SERVER, *OTHERS)):
        raise BenchmarkFailed(f"unexpected static pods below {machine}: {', '.join(sorted(commands))}")
    return Prepared(directory=directory, kubeconfig=directory / "kubernetes" / ADMIN, commands=commands)


@dataclass(frozen=True, kw_only=True)
class Times:
    """Seconds until etcd's port was open, until /readyz answered 200, and until the default service account existed."""

    etcd: float
    api_ready: float
    service_account: float


class ByHand:
    """The components, started one after the other. A context manager that leaves nothing running."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> Times:
        """Start everything with an empty etcd: etcd; kube-apiserver when etcd's port is open; the others once the API server is ready."""
        data = Path(self._prepared.commands[ETCD].flag("data-dir"))
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(mode=0o700)
        began = time.monotonic()
        self._spawn(ETCD)
        etcd = self._wait_for_port(self._prepared.commands[ETCD].flag("listen-client-urls"))
        self._spawn(API_SERVER)
        client, ready = admin.api_ready(self._prepared.kubeconfig, hopeless=self._hopeless)
        for name in OTHERS:
            self._spawn(name)
        account = admin.service_account_ready(client)
        client.close()
        return Times(etcd=etcd - began, api_ready=ready - began, service_account=account - began)

    def stop(self) -> None:
        """Kill everything and wait until it has ended."""
        for process in self._processes.values():
            process.send_signal(signal.SIGKILL)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def __enter__(self) -> ByHand:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self, name: str) -> None:
        home = self._prepared.directory / "run" / name
        home.mkdir(parents=True, exist_ok=True)
        environment = {"PATH": os.defpath, "HOME": str(home), "TMPDIR": str(home), "TZ": "UTC"}
        with (self._prepared.directory / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(
                self._prepared.commands[name].argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, cwd=home
            )

    def _hopeless(self) -> str:
        for name, process in self._processes.items():
            if process.poll() is not None:
                log = (self._prepared.directory / f"{name}.log").read_text(errors="replace").splitlines()
                return f"{name} ended with {process.returncode}: " + "\n".join(log[-5:])
        return ""

    def _wait_for_port(self, url: str) -> float:
        host, _, port = url.rpartition("//")[2].rpartition(":")
        end = time.monotonic() + admin.PATIENCE
        while time.monotonic() < end and not self._hopeless():
            with socket.socket() as probe:
                if probe.connect_ex((host, int(port))) == 0:
                    return time.monotonic()
            time.sleep(_LOOK)
        raise BenchmarkFailed(f"nothing listens at {url}: {self._hopeless() or 'given up'}")


def main(arguments: Sequence[str]) -> int:
    """Run the script once for the state directory of a running cluster."""
    root = Path(arguments[0])
    with tempfile.TemporaryDirectory(prefix="kubewright-by-hand-") as directory:
        setup = make(Path(directory))
        prepared = prepare(root / "machines" / f"{root.name}-control-plane", Path(directory, "hand"), programs=setup.programs)
        setup.run("down", "--state-dir", str(root.parent), "--name", root.name)
        with ByHand(prepared) as script:
            times = script.start()
    sys.stdout.write(f"etcd's port {times.etcd:.2f} s, API ready {times.api_ready:.2f} s, service account {times.service_account:.2f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
