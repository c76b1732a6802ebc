"""The node agent compared with the real kubelet, on two machines without pods: start to Ready in turns, then both idle at the same time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from testbed.bed import Bed
from testbed.sharing import ENVIRONMENT, PYTHON
from tests.bench.machines_running import KUBEADM, Row, after, field, init, join
from tests.bench.machines_watching import Looker, Watch, nodes_ready
from tests.bench.model import MEBIBYTES, MOST, Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup

from kubewright.machines.machine import Machine

TARGET_MEMORY: Final = 1.0
TARGET_PROCESSOR: Final = 0.5
TARGET_START: Final = 1.0
IDLE: Final = 600.0
"""Seconds for which both are observed while idle."""
SETTLED: Final = 30.0
"""Seconds after the last start until they count as idle."""
KUBELET: Final = "kubelet"
AGENT: Final = "agent"
UNIT: Final = "kubewright-agent"
_FORM: Final = (KUBELET, AGENT)


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many starts of each, and one idle period.

    Each has the certificate of an earlier start, as after a boot of its machine.
    """
    with field() as ground, ground.fresh("one", "two", "three") as bed:
        init(KUBEADM, bed["one"], "--skip-phases=addon").wait()  # no pods except the control plane's
        for name in ("two", "three"):
            join(KUBEADM, bed[name], via=bed["one"]).wait()
        flags = {name: _flags(bed[name]) for name in ("two", "three")}
        starts: list[Row] = []
        for number in range(rounds):
            places = dict(zip(_FORM, ("two", "three") if number % 2 == 0 else ("three", "two"), strict=True))
            starts.append({f"{form}Ready": _start(bed, form, name, flags[name]) for form, name in places.items()})
            setup.say(f"agent {number + 1}/{rounds}: " + ", ".join(f"{form} {starts[-1][f'{form}Ready']:.2f} s to Ready" for form in _FORM))
        time.sleep(SETTLED)
        before = {form: _used(bed[name], form) for form, name in places.items()}
        time.sleep(IDLE)
        idle: Row = {}
        for form, name in places.items():
            seconds, memory = _used(bed[name], form)
            idle |= {f"{form}Cpu": seconds - before[form][0], f"{form}Memory": memory}
    return result("agent", _figures(starts, idle), [{"idle": IDLE, **idle}, *starts])


def _figures(starts: list[Row], idle: Row) -> tuple[Figure, ...]:
    minutes = f"{IDLE / 60:.0f} min"
    return (
        ratios("agent: start to Node Ready, relative to the kubelet", starts, "agentReady", "kubeletReady", target=TARGET_START),
        figure("agent: start to Node Ready", starts, "agentReady"),
        figure("kubelet: start to Node Ready", starts, "kubeletReady"),
        ratios(
            f"agent: processor time idle for {minutes}, relative to the kubelet", [idle], "agentCpu", "kubeletCpu", target=TARGET_PROCESSOR
        ),
        figure(f"agent: processor time idle for {minutes}", [idle], "agentCpu"),
        figure(f"kubelet: processor time idle for {minutes}", [idle], "kubeletCpu"),
        ratios("agent: memory (RSS), relative to the kubelet", [idle], "agentMemory", "kubeletMemory", target=TARGET_MEMORY),
        figure("agent: memory (RSS)", [idle], "agentMemory", unit=MEBIBYTES, statistic=MOST),
        figure("kubelet: memory (RSS)", [idle], "kubeletMemory", unit=MEBIBYTES, statistic=MOST),
    )


def _flags(machine: Machine) -> list[str]:
    """Return the command line of the machine's kubelet."""
    line = machine.run("sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID kubelet)/cmdline").out
    return line.split("\n")[1:-1]


def _start(bed: Bed, form: str, name: str, flags: list[str]) -> float:
    """Start one of them while neither runs and there is no Node; returns the seconds from the command until the Node is Ready."""
    machine, look = bed[name], Looker(bed["one"], bed["one"])
    machine.run("systemctl", "stop", KUBELET, f"{UNIT}.service", check=False)
    look.delete(f"/api/v1/nodes/{name}")
    _until(lambda: look.api(f"/apis/storage.k8s.io/v1/csinodes/{name}")[0] == 404, "the CSINode to go with its Node")
    look.close()
    watch = Watch(machine, {"Ready": nodes_ready(name)}, server=bed["one"])
    watch.start()
    began = time.monotonic()
    if form == KUBELET:
        machine.run("systemctl", "start", "--no-block", KUBELET)
    else:
        settings = [f"--setenv={key}={value}" for key, value in ENVIRONMENT.items()]
        unit = (f"--unit={UNIT}", "--no-block", "--collect", *settings)
        machine.run("systemd-run", *unit, PYTHON, "-m", "kubewright", "agent", "run", *flags)
    return after(watch.wait(), began)["Ready"]


def _used(machine: Machine, form: str) -> tuple[float, float]:
    """Return the processor time of a process in seconds, and its resident memory in MiB: a share (PSS) would be that of a host with many machines."""
    words = {KUBELET: b"/kubelet\0", AGENT: b"kubewright\0agent\0run\0"}[form]
    found = [pid for pid in machine.cgroups.processes() if words in _command(pid)]
    if len(found) != 1:
        raise BenchmarkFailed(f"{len(found)} processes on {machine.name} are the {form}")
    fields = Path(f"/proc/{found[0]}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    rollup = Path(f"/proc/{found[0]}/smaps_rollup").read_text(encoding="ascii").splitlines()
    [resident] = [int(line.split()[1]) for line in rollup if line.startswith("Rss:")]
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), resident / 1024


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _until(condition: Callable[[], bool], what: str, *, within: float = 60) -> None:
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise BenchmarkFailed(f"waited in vain for {what}")
        time.sleep(0.1)
