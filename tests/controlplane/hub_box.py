"""A machine below a directory that joins through a hub until its files are written: it has no systemd and no container runtime.

As a program (`python hub_box.py FILE`, with the arguments in the file) the join is a separate process, which can be
killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from server_kit import RunningServer

from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.base.events import RecordingReporter
from kubewright.base.randomness import SystemRandom
from kubewright.enrollment.node.leaving import NODE_LEAVE, NodeLeaveOptions
from kubewright.enrollment.node.operation import NODE_JOIN
from kubewright.enrollment.node.request import NodeJoinOptions
from kubewright.host.real import RealHost
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Result

WITHOUT_SYSTEMD = ("kubelet-install", "kubelet-start", "node-ready")
WRITTEN = ["kubelet-client-ca.crt", "kubelet.conf", "kubelet.crt", "kubelet.key"]


class Box:
    """The machine, and its request."""

    def __init__(self, place: Path, server: RunningServer, created: dict[str, Any], name: str, **more: Any) -> None:
        self.place = place
        self.layout = Layout.below(PurePosixPath(place))
        self.reporter = RecordingReporter()
        given = {"sans": (), "fingerprint": created["joinKey"], "skip": ("preflight", *WITHOUT_SYSTEMD)}
        self.wanted = {"node": name, "server": server.url, "ca_pem": server.ca_pem.decode(), "token": created["token"], **given, **more}

    def join(self, mode: Mode = Mode.APPLY) -> Result[Any]:
        """Join in this process."""
        return _join(self.layout, self.wanted, self.reporter, mode)

    def depart(self) -> Result[Any]:
        """Do what `node leave` does before it cleans up the machine."""
        return run(NODE_LEAVE, NodeLeaveOptions(only=("depart",)), _machine(self.layout), reporter=self.reporter)

    def start(self) -> subprocess.Popen[bytes]:
        """Join in a separate process."""
        self.place.mkdir(parents=True, exist_ok=True)
        wanted = self.place.with_name(f"{self.place.name}.json")
        wanted.write_text(json.dumps({"place": str(self.place), "wanted": self.wanted}))
        paths = ":".join(path for path in sys.path if path)
        with self.place.with_name(f"{self.place.name}.log").open("ab") as log:
            return subprocess.Popen([sys.executable, __file__, str(wanted)], stdout=log, stderr=log, env={"PYTHONPATH": paths})

    @property
    def said(self) -> str:
        """The output of the processes."""
        return self.place.with_name(f"{self.place.name}.log").read_text()

    def files(self) -> list[str]:
        """Return the names of the files that were written from the hub's answer."""
        return sorted(path.name for path in Path(self.layout.oneinfra).glob("*"))


def _join(layout: Layout, wanted: dict[str, Any], reporter: RecordingReporter, mode: Mode) -> Result[Any]:
    request = NodeJoinOptions(
        **{**wanted, "ca_pem": wanted["ca_pem"].encode(), "skip": tuple(wanted["skip"]), "sans": tuple(wanted["sans"])}
    )
    return run(NODE_JOIN, request, _machine(layout), reporter=reporter, mode=mode)


def _machine(layout: Layout) -> TargetMachine:
    return TargetMachine(
        at=lambda layout: RealHost(layout=layout, environment={}), clock=SystemClock(), random=SystemRandom(), layout=layout
    )


if __name__ == "__main__":
    found = json.loads(Path(sys.argv[1]).read_text())
    _join(Layout.below(PurePosixPath(found["place"])), found["wanted"], RecordingReporter(), Mode.APPLY)
