"""One `up`, observed from outside: when its phases ran, when components were started and listened, when nodes became Ready."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench import accounting, admin
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import ADMIN, Setup, kubernetes_directory

PORTS: Final = {"etcd": 2379, "kube-apiserver": 6443, "kube-controller-manager": 10257, "kube-scheduler": 10259}
_LOOK: Final = 0.01

PHASE: Final = "phase"
COMPONENT: Final = "component"
NODE: Final = "node"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """An interval, in seconds since the start of `up`."""

    kind: str
    label: str
    start: float
    end: float


def record(setup: Setup, state: Path, *, nodes: int) -> dict[str, Any]:
    """Run `up` for a new cluster and return its timeline: `bars`, and `marks` for moments. The cluster continues to run."""
    root = state / "default"
    process, began = _start(setup, state, nodes)
    ports = _Ports(root)
    ports.start()
    lines = _Lines(process)
    lines.start()
    client, ready = admin.api_ready(
        kubernetes_directory(root) / ADMIN,
        hopeless=lambda: "up has ended" if process.poll() is not None else "",
    )
    all_ready, seen = admin.nodes_ready(client, nodes + 1)
    account = admin.service_account_ready(client)
    client.close()
    if process.wait() != 0:
        raise BenchmarkFailed("up failed while its timeline was recorded")
    lines.join()
    ports.join()
    bars = [*_phases(lines.events, began), *_components(root, {**ports.opened, "kube-apiserver": ready}, began), *_nodes(seen, began)]
    marks = {"API ready": ready, "nodes Ready": all_ready, "service account": account}
    return {
        "bars": [asdict(bar) for bar in bars],
        "marks": {name: round(moment - began, 3) for name, moment in marks.items()},
        "total": round(time.monotonic() - began, 3),
    }


def _start(setup: Setup, state: Path, nodes: int) -> tuple[subprocess.Popen[bytes], float]:
    argv = setup.argv("up", "--state-dir", str(state), "--nodes", str(nodes), "-o", "json")
    began = time.monotonic()
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=dict(setup.environment)
    )
    return process, began


class _Lines(threading.Thread):
    """Reads the events of `up` and records when each arrived."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._process = process
        self.events: list[tuple[float, dict[str, Any]]] = []

    def run(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self.events.append((time.monotonic(), json.loads(line) if line.startswith(b"{") else {}))


class _Ports(threading.Thread):
    """Records when each component's port was first open."""

    def __init__(self, root: Path) -> None:
        super().__init__(daemon=True)
        self._root = root
        self.opened: dict[str, float] = {}

    def run(self) -> None:
        record_, end = self._root / "cluster.json", time.monotonic() + admin.PATIENCE
        while not record_.exists() and time.monotonic() < end:
            time.sleep(_LOOK)
        address = json.loads(record_.read_text(encoding="utf-8"))["machines"][0]["address"]
        while len(self.opened) < len(PORTS) and time.monotonic() < end:
            for name, port in PORTS.items():
                with socket.socket() as probe:
                    if name not in self.opened and probe.connect_ex((address, port)) == 0:
                        self.opened[name] = time.monotonic()
            time.sleep(_LOOK)


def _phases(events: Iterable[tuple[float, Mapping[str, Any]]], began: float) -> list[Bar]:
    """Group sub-phases under the name of their phase; what precedes the first phase is Python's start and the inspection of the machine."""
    spans: dict[str, list[float]] = {}
    for moment, event in events:
        if event.get("event") in {"PhaseStarted", "PhaseFinished"}:
            name = event["phase"].partition("/")[0]
            spans.setdefault(name, [moment, moment])[1] = moment
    if not spans:
        raise BenchmarkFailed("up told of no phases")
    first = min(start for start, _ in spans.values())
    rows = {"start of the command": [began, first], **spans}
    return [_bar(PHASE, name, start, end, began) for name, (start, end) in rows.items()]


def _components(root: Path, served: Mapping[str, float], began: float) -> list[Bar]:
    """Bars from a process's start to its service: an open port, for the API server /readyz, for the daemon the first component's start."""
    offset = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    cluster = accounting.cluster_of(root)
    started = {"daemon": cluster.daemon.started, **{_component(one.pid): one.started for one in cluster.components}}
    first = min(moment for name, moment in started.items() if name != "daemon")
    ends = {"daemon": first - offset, **served}
    return [_bar(COMPONENT, name, moment - offset, ends[name], began) for name, moment in started.items()]


def _component(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[0].decode().rpartition("/")[2]


def _nodes(seen: Mapping[str, tuple[float, float]], began: float) -> list[Bar]:
    by_number = sorted(seen.items(), key=lambda item: [int(part) if part.isdigit() else -1 for part in re.split(r"(\d+)", item[0])])
    return [_bar(NODE, name, start, end, began) for name, (start, end) in by_number]


def _bar(kind: str, label: str, start: float, end: float, began: float) -> Bar:
    return Bar(kind=kind, label=label, start=round(start - began, 3), end=round(max(end, start) - began, 3))
