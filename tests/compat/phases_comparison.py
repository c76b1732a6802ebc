"""Phases of init, run by real kubeadm with a scratch directory as its root, and by kubewright on the same directory."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from certs_comparison import find_kubeadm

from kubewright.apis.machine import Detected
from kubewright.base.clock import SystemClock
from kubewright.base.errors import KubewrightError
from kubewright.base.events import Line, RecordingReporter
from kubewright.base.level import KUBERNETES
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import operation_requests as command
from kubewright.cli.parsing.parser import parse
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.lifecycle.init import addons
from kubewright.lifecycle.init.operation import prepare
from kubewright.lifecycle.init.phases import PHASES as INIT
from kubewright.lifecycle.machine import TargetMachine
from operation_kit import NoCluster, run_phases

FACTS = Facts(detected=Detected(host_name=os.uname().nodename), machine=MachineInfo())


@dataclass(frozen=True)
class Outcome:
    """The result of a command: whether it failed, the files below its directories by path, its lines, and its error."""

    failed: bool
    files: dict[str, bytes]
    lines: list[str]
    error: str = ""


@dataclass(frozen=True)
class Root:
    """A scratch directory that represents a machine's root."""

    path: Path

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file below the root."""
        place = self.path / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())

    def files(self) -> dict[str, bytes]:
        """Everything in kubeadm's directories."""
        places = [self.path / "etc/kubernetes", self.path / "var/lib"]
        return {str(p.relative_to(self.path)): p.read_bytes() for place in places for p in sorted(place.rglob("*")) if p.is_file()}

    def kubeadm(self, *argv: str, version: str = KUBERNETES) -> Outcome:
        """Run real kubeadm with this directory as its root; ordinary users need a user namespace for that."""
        inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
        before = self.files()
        words = [*inside, find_kubeadm(version), *argv, f"--rootfs={self.path}"]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=600, env={})
        after = {name: content for name, content in self.files().items() if before.get(name) != content}
        return Outcome(done.returncode != 0, after, done.stdout.splitlines(), done.stderr)

    def kubewright(self, *argv: str) -> Outcome:
        """Run a phase of ours in this process, on an empty machine: of the scratch directory it sees the files that arguments name."""
        reporter = RecordingReporter()
        words = [str(self.path / word.lstrip("/")) if word.startswith("/") else word for word in argv]
        hosts = []

        def machine(layout):
            hosts.append(OverlayHost(_Below(layout, self.path), facts=FACTS))
            return hosts[-1]

        parsed = parse(words, program="kubeadm")
        node = INIT.named(parsed.command.words[2:])
        whole = TargetMachine(at=machine, clock=SystemClock(), random=SystemRandom())
        try:
            request = command.init_request(parsed, only=(node.name,))
            prepared = prepare(request, whole)
            if "print-manifest" in parsed.given:
                return Outcome(False, {}, addons.manifest(prepared, node.name).splitlines())
            run_phases(prepared, request, whole, kube=NoCluster(), reporter=reporter)
        except KubewrightError as error:
            return Outcome(True, written(hosts), [], str(error))
        lines = [f"[{event.topic}] {event.text}" for event in reporter.events if isinstance(event, Line)]
        return Outcome(False, written(hosts), lines)


def written(hosts):
    return {str(file.path).lstrip("/"): file.content for host in hosts[-1:] for file in host.files}


class _Below(RealHost):
    """A host that finds the files of a scratch directory at the paths of a root."""

    def __init__(self, layout, root: Path) -> None:
        super().__init__(layout=layout, environment={})
        self._root = PurePosixPath(root)

    def _moved(self, path):
        return path if path.is_relative_to(self._root) else self._root / path.relative_to("/")

    def read(self, path, /):
        return super().read(self._moved(path))

    def state(self, path, /):
        return super().state(self._moved(path))

    def entries(self, path, /):
        found = super().entries(self._moved(path))
        return found if path.is_relative_to(self._root) else ["/" / entry.relative_to(self._root) for entry in found]
