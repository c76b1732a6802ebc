"""Clusters of whole machines: `up --machines` with one and three machines, loading an image, stopping, resuming and removing them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tests.bench.model import MEBIBYTES, MOST, Figure, Result, figure
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup

from kubewright.base.randomness import SystemRandom
from kubewright.kube.resources import named
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import members
from kubewright.machines.images import Image, archive
from kubewright.machines.machine import Machine
from kubewright.machines.parts import ensure_parts
from kubewright.machines.places import MachinePlaces

TARGET_POD: Final = 9.0
TARGET_WORKERS: Final = 14.0
TARGET_RESUME: Final = 7.0
TARGET_LOAD: Final = 3.0
TARGET_MEMORY: Final = 60.0
TARGET_DISK: Final = 150.0
TARGET_DOWN: Final = 2.0

ALONE: Final = "bench-alone"
SEVERAL: Final = "bench-several"
WORKERS: Final = 2
LOADED: Final = 100_000_000
"""Bytes of an image that cannot be compressed."""
WITHIN: Final = 600.0
_MIB: Final = 1024 * 1024
_BLOCK: Final = 512
_POD: Final = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {"containers": [{"name": "first", "image": "docker.io/library/busybox:test", "command": ["sleep", "1000"]}]},
}
_OTHERS: Final = ("containerd", "kubelet")
"""Processes that any node has; with their children, which are those of pods."""

Row = dict[str, Any]


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds, each with new clusters."""
    if os.geteuid() != 0:
        raise BenchmarkFailed("machines need root")
    ensure_parts()
    image = _image(setup.work)
    rows = []
    for number in range(rounds):
        row = {**_alone(setup), **_several(setup, image)}
        rows.append(row)
        setup.say(
            f"machines-up {number + 1}/{rounds}: first pod {row['pod']:.1f} s, {WORKERS} workers {row['workers']:.1f} s, "
            f"load {row['load']:.1f} s, resume {row['resume']:.1f} s, down {row['down']:.1f} s"
        )
    return result("machines-up", _figures(rows), rows)


def _figures(rows: list[Row]) -> tuple[Figure, ...]:
    return (
        figure("`up --machines` until a first pod runs", rows, "pod", target=TARGET_POD),
        figure("`up --machines`", rows, "alone"),
        figure(f"`up --machines --nodes {WORKERS}`", rows, "workers", target=TARGET_WORKERS),
        figure("`up` after `down --keep-data`, one machine", rows, "resume", target=TARGET_RESUME),
        figure(f"`local load` of {LOADED // 1_000_000} MB into {WORKERS + 1} machines", rows, "load", target=TARGET_LOAD),
        figure("memory of systemd and our processes in a machine", rows, "memory", unit=MEBIBYTES, target=TARGET_MEMORY, statistic=MOST),
        figure("disk of a worker without pods", rows, "disk", unit=MEBIBYTES, target=TARGET_DISK, statistic=MOST),
        figure(f"`down` of {WORKERS + 1} machines", rows, "down", target=TARGET_DOWN),
    )


def _image(work: Path) -> Path:
    target = work / "image.tar"
    archive(Image("docker.io/library/bench:dev", {"content": SystemRandom().token_bytes(LOADED)}), target)
    return target


def _alone(setup: Setup) -> Row:
    state = setup.work / "state"
    started = setup.run("up", "--machines", "--name", ALONE, "--state-dir", str(state))
    running = _pod_runs(LocalCluster(ALONE, state_dir=state))
    setup.run("down", "--name", ALONE, "--state-dir", str(state), "--keep-data")
    resumed = setup.run("up", "--name", ALONE, "--state-dir", str(state))
    setup.run("down", "--name", ALONE, "--state-dir", str(state))
    return {"alone": started.seconds, "pod": running - started.began, "resume": resumed.seconds}


def _pod_runs(cluster: LocalCluster) -> float:
    """Create a pod and return when it was seen to run, on the monotonic clock. Raises BenchmarkFailed if it does not."""
    client = cluster.client()
    try:
        client.create(_POD)
        end = time.monotonic() + WITHIN
        while client.get(named("Pod"), "first", "default").get("status", {}).get("phase") != "Running":
            if time.monotonic() > end:
                raise BenchmarkFailed(f"no pod runs after {WITHIN:.0f} s")
            time.sleep(0.02)
        return time.monotonic()
    finally:
        client.close()


def _several(setup: Setup, image: Path) -> Row:
    state = setup.work / "state"
    started = setup.run("up", "--machines", "--name", SEVERAL, "--state-dir", str(state), "--nodes", str(WORKERS))
    paths = ClusterPaths(state / SEVERAL)
    worker = members.machine_of_group(paths, f"{SEVERAL}-worker-1")
    used = {"memory": sum(_memory_of(worker)) / _MIB, "disk": sum(_own_blocks(worker.places)) / _MIB}
    loaded = setup.run("local", "load", "--name", SEVERAL, "--state-dir", str(state), str(image))
    removed = setup.run("down", "--name", SEVERAL, "--state-dir", str(state))
    return {"workers": started.seconds, "load": loaded.seconds, "down": removed.seconds, **used}


def _memory_of(machine: Machine) -> Iterator[int]:
    """Yield the proportional memory of processes in a machine, except those that every node has, and of pods."""
    for pid in machine.cgroups.processes():
        try:
            group = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii")
            name = Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
            rows = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        except OSError:  # it has ended
            continue
        if "kubepods" not in group and not name.startswith(_OTHERS):
            yield sum(int(row.split()[1]) * 1024 for row in rows if row.startswith("Pss:"))


def _own_blocks(places: MachinePlaces) -> Iterator[int]:
    """Yield the sizes on disk of what only this machine has; the store of images is shared by hard links."""
    for top in (places.upper, places.containerd):
        for directory, _, names in os.walk(top):
            for name in names:
                found = (Path(directory) / name).lstat()
                if found.st_nlink == 1:
                    yield found.st_blocks * _BLOCK
