"""A hub as a separate process, and its commands, for tests with a real API server."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_kit import eventually
from server_kit import RunningServer

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "enrollment"))  # the other implementation of the protocol

from kubewright.apis.join_records import JoinRecord
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.randomness import SystemRandom
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import HubStore
from kubewright.kube.client import KubeClient
from kubewright.pki.encryption import sealing

LEASE = {"leaderElectLeaseDuration": "6s", "leaderElectRenewDeadline": "5s", "leaderElectRetryPeriod": "500ms"}
"""Shorter than usual, so that tests wait no longer than necessary."""


@dataclass
class HubProcess:
    """One hub: its files below a directory, its daemon, its commands."""

    place: Path
    server: RunningServer
    state: str = ""
    """The location of the state, if it is not a file; then the kubeconfig for it is `state.conf`."""
    name: str = "hub"
    """Name of the log, because several hubs may share one directory."""
    _daemon: subprocess.Popen[bytes] | None = field(default=None)

    def __post_init__(self) -> None:
        self.write("admin.conf", kubeconfig(self.server, "kubernetes-admin", "system:masters"))
        self.write("ca.crt", self.server.ca_pem.decode())
        self.write("ca.key", self.server.authority.private_key_pem.bytes().decode())
        fields = {
            "state": self.state or str(self.place / "hub" / "state.db"),
            "keyFile": str(self.place / "hub" / "state.key"),
            "securePort": 0,
        }
        if self.state:
            fields["stateKubeconfig"] = str(self.place / "state.conf")
            fields |= LEASE
        self.write("hub.yaml", yaml.dump({"apiVersion": "hub.kubewright/v1alpha1", "kind": "HubConfiguration", **fields}))

    def write(self, name: str, content: str) -> None:
        (self.place / name).write_text(content)

    def start(self, *flags: str) -> None:
        with self._log.open("ab") as log:
            argv = [sys.executable, "-m", "kubewright", "hub", "run", "--config", str(self.place / "hub.yaml"), "-v", "2", *flags]
            self._daemon = subprocess.Popen(argv, stdout=log, stderr=log)

    def resume(self, *flags: str) -> None:
        """Start the daemon, and wait until it serves its cluster: from then on it ends properly on SIGTERM."""
        before = self.served
        self.start(*flags)
        eventually(lambda: self.served > before, "the hub to serve")

    def kill(self) -> None:
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()

    def stop(self) -> int:
        """Stop the daemon as a service manager does, and return its exit code."""
        assert self._daemon is not None
        self._daemon.terminate()
        return self._daemon.wait(600)

    def require_running(self) -> None:
        """Fail with the end of the daemon's output if it has ended."""
        assert self._daemon is not None
        assert self._daemon.poll() is None, self.log[-2000:]

    @property
    def peak_memory(self) -> float:
        """The daemon's peak memory, in MiB."""
        assert self._daemon is not None
        lines = Path(f"/proc/{self._daemon.pid}/status").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) / 1024

    @property
    def served(self) -> int:
        """How often it has started to serve a cluster."""
        return self.log.count(" is served at ")

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def _log(self) -> Path:
        return self.place / f"{self.name}.log"

    @property
    def runs(self) -> bool:
        """Whether the daemon is running."""
        return self._daemon is not None and self._daemon.poll() is None

    def pause(self, *, go_on: bool = False) -> None:
        """Stop the daemon as a debugger does, or let it continue."""
        assert self._daemon is not None
        self._daemon.send_signal(signal.SIGCONT if go_on else signal.SIGSTOP)

    def records(self, cluster: str = "a") -> list[JoinRecord]:
        """Return what the state contains of nodes, wherever it is stored."""
        key = sealing.parse_key((self.place / "hub" / "state.key").read_text().split()[0])
        with contextlib.closing(self._store(key)) as store:
            return store.records(cluster)

    def _store(self, key: bytes) -> HubStore:
        if not self.state:
            return SQLiteStore(self.place / "hub" / "state.db", key=key, random=SystemRandom())
        namespace, _, name = self.state.removeprefix("secrets:").partition("/")
        return SecretStore(KubeClient(self.server.access(), timeout=600), namespace=namespace, name=name, key=key, random=SystemRandom())

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command of the hub, and return its output."""
        argv = [sys.executable, "-m", "kubewright", "hub", *words, "--config", str(self.place / "hub.yaml")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=900, check=False, env={**os.environ})
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    def data(self, *words: str) -> Any:
        return json.loads(self.run(*words, "-o", "json"))

    def add(self, *flags: str) -> dict[str, Any]:
        """Add the cluster of the API server, or change it, and wait until the daemon has noticed."""
        before = self.served
        files = {"kubeconfig": "admin.conf", "client-ca-cert-file": "ca.crt", "client-ca-key-file": "ca.key"}
        named = [f"--{flag}={self.place / name}" for flag, name in files.items()]
        [row] = self.data("cluster", "add", "a", *named, *flags)
        eventually(lambda: self.served > before, "the hub to notice")
        return dict(row)


def kubeconfig(server: RunningServer, user: str, group: str) -> str:
    """Return a kubeconfig for any user that a test wants to be."""
    identity = server.identity(user, group)
    made = kubeconfig_document(
        server=server.url,
        cluster_name="a",
        user=user,
        credentials=EmbeddedCertificate(certificate_pem=identity.cert_pem, key_pem=identity.key_pem),
        ca_pem=server.ca_pem,
    )
    return yaml.dump(made)


@contextlib.contextmanager
def hub_process(place: Path, server: RunningServer, *, state: str = "") -> Iterator[HubProcess]:
    made = HubProcess(place, server, state)
    made.start()
    try:
        yield made
    finally:
        made.kill()
