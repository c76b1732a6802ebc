"""Fresh machines for measurements, and commands in them whose time, CPU and memory are measured on the machine."""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from testbed.bed import Bed, ensure_parts, sweep
from testbed.sharing import ENVIRONMENT, PYTHON, SHARED
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup

from kubewright.base.errors import HostError
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from kubewright.pki import pins

"""What a machine sees of the host: our virtual environment and our sources, with their byte code."""

KUBEADM: Final = "kubeadm"
KUBEWRIGHT: Final = "kubewright"
TOOLS: Final = (KUBEADM, KUBEWRIGHT)

Row = dict[str, Any]
Half = Callable[[str], Row]
"""Measures one tool."""

_FORGIVEN: Final = 3

CONFIG: Final = "/root/kubeadm.yaml"
TOKEN: Final = "abcdef.0123456789abcdef"
CERTIFICATE_KEY: Final = "e6a2eb8581237ab72a4f494f30285ec12a9694d750b9785706a83bfcbbbd2204"
ENDPOINT: Final = "cluster.test:6443"
IGNORED: Final = "--ignore-preflight-errors=SystemVerification"
"""These machines have cgroup v1; every other check runs for both."""

_INIT: Final = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: {address}}}
certificateKey: {certificate_key}
bootstrapTokens: [{{token: {token}}}]
nodeRegistration:
  ignorePreflightErrors: [SystemVerification]
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
controlPlaneEndpoint: {endpoint}
networking: {{podSubnet: 10.244.0.0/16}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
conntrack: {{maxPerCore: 0}}
"""
_MEASURED: Final = """\
import json, os, sys, time
began = time.monotonic()
answer = int(sys.argv[1])
os.set_inheritable(answer, False)
pid = os.posix_spawnp(sys.argv[2], sys.argv[2:], os.environ)
_, status, used = os.wait4(pid, 0)
ended = time.monotonic()
found = dict(code=os.waitstatus_to_exitcode(status), began=began, ended=ended, cpu=used.ru_utime + used.ru_stime, peak=used.ru_maxrss / 1024)
os.write(answer, json.dumps(found).encode())
"""
"""Runs in the machine, so that the cost of entering it is not measured. The peak, in MiB, includes programs that the command ran."""


@dataclass(frozen=True, kw_only=True)
class Used:
    """A command that succeeded: monotonic times, CPU seconds, peak memory in MiB."""

    began: float
    ended: float
    cpu: float
    peak: float

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.ended - self.began


class Command(threading.Thread):
    """A command that runs in a machine and is measured there; `wait` returns what it used."""

    def __init__(self, machine: Machine, *words: str) -> None:
        super().__init__(daemon=True, name=f"{words[0]}-{machine.name}")
        self._machine, self._words = machine, words
        self._found: dict[str, Any] = {}
        self._said = ""
        self.start()

    def run(self) -> None:
        """Run it to its end."""
        ours, theirs = os.pipe()
        argv = self._machine.argv("/usr/bin/python3", "-ISc", _MEASURED, str(theirs), *self._words, env=ENVIRONMENT)
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            pass_fds=(theirs,),
        )
        os.close(theirs)
        with os.fdopen(ours, "rb") as stream:
            self._found = json.loads(stream.read() or b"{}")
        self._said = (done.stdout + done.stderr).decode(errors="replace")

    def wait(self, within: float = 300) -> Used:
        """Return what it used. Raises BenchmarkFailed, with its last lines, if it failed."""
        self.join(within)
        if self._found.get("code") != 0:
            last = "\n".join(self._said.splitlines()[-15:])
            raise BenchmarkFailed(f"{' '.join(self._words)} on {self._machine.name}: {self._found.get('code', 'no end')}\n{last}")
        return Used(**{name: self._found[name] for name in ("began", "ended", "cpu", "peak")})


def pairs(setup: Setup, name: str, rounds: int, half: Half, *, tell: str, failed: Callable[[], None] = lambda: None) -> list[Row]:
    """Measure this many pairs; which tool comes first alternates, and `tell` is the key that is shown as progress.

    If one half of a pair fails, the pair is measured again after `failed` has cleaned up, and the round records how
    often. Raises BenchmarkFailed for the fourth failure.
    """
    rows: list[Row] = []
    failures, repeated = 0, 0
    while len(rows) < rounds:
        order = TOOLS if len(rows) % 2 == 0 else tuple(reversed(TOOLS))
        row: Row = {"kubeadmFirst": order == TOOLS, "repeated": repeated}
        try:
            for tool in order:
                row |= {f"{tool}{key}": value for key, value in half(tool).items()}
        except (BenchmarkFailed, HostError) as error:
            failures, repeated = failures + 1, repeated + 1
            setup.say(f"{name}: measured again, because of {error}")
            if failures > _FORGIVEN:
                raise BenchmarkFailed(f"{name} fails too often: {error}") from error
            failed()
            continue
        rows.append(row)
        repeated = 0
        setup.say(f"{name} {len(rows)}/{rounds}: " + ", ".join(f"{tool} {row[tool + tell]:.2f} s" for tool in TOOLS))
    return rows


class Field:
    """Where machines are booted: `fresh` provides machines that were never used, and removes them."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    @contextlib.contextmanager
    def fresh(self, *names: str, bed: str = "bench") -> Iterator[Bed]:
        """Boot machines with these names; the first one is the control plane's endpoint."""
        with Bed(*names, bed=bed, parts=self.parts, shared=SHARED) as made:
            for name in names:
                configure(made[name])
            yield made


@contextlib.contextmanager
def field() -> Iterator[Field]:
    """Prepare this host for machines. Raises BenchmarkFailed without root."""
    if os.geteuid() != 0:
        raise BenchmarkFailed("whole machines need root")
    for directory in SHARED.values():  # machines cannot write byte code next to sources that are read-only for them
        compileall.compile_dir(directory, quiet=2, workers=os.cpu_count() or 1)
    sweep()
    yield Field(_parts())


def _parts() -> Parts:
    try:
        return ensure_parts()
    except HostError as error:
        raise BenchmarkFailed(str(error)) from error


def configure(machine: Machine) -> None:
    """Write the configuration that both tools use."""
    text = _INIT.format(address=machine.address, endpoint=ENDPOINT, token=TOKEN, certificate_key=CERTIFICATE_KEY)
    (machine.root / CONFIG.lstrip("/")).write_text(text, encoding="ascii")


def program(tool: str) -> tuple[str, ...]:
    """Return the command of a tool in a machine."""
    return (KUBEADM,) if tool == KUBEADM else (PYTHON, "-m", KUBEWRIGHT)


def init(tool: str, machine: Machine, *flags: str) -> Command:
    """Start `init`."""
    return Command(machine, *program(tool), "init", "--config", CONFIG, *flags)


def join(tool: str, machine: Machine, *, via: Machine, control_plane: bool = False) -> Command:
    """Start `join` by token and pin; control planes get the certificates from the cluster."""
    authority = (via.root / "etc/kubernetes/pki/ca.crt").read_bytes()
    trust = [word for pin in pins.of_bundle(authority) for word in ("--discovery-token-ca-cert-hash", str(pin))]
    also = ("--control-plane", "--certificate-key", CERTIFICATE_KEY) if control_plane else ()
    return Command(machine, *program(tool), "join", ENDPOINT, "--token", TOKEN, *trust, *also, IGNORED)


def reset(tool: str, machine: Machine) -> Command:
    """Start `reset` without confirmation."""
    return Command(machine, *program(tool), "reset", "--force")


def after(times: Mapping[str, float], began: float) -> dict[str, float]:
    """Return times as seconds since a moment."""
    return {name: round(moment - began, 3) for name, moment in times.items()}
