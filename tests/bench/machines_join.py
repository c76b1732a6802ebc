"""`join` on whole machines: a worker into a settled cluster, a worker right after `init`, a further control plane, and a cluster of five.

If the cluster itself is not measured, kubeadm made it, for both tools; a machine that joins was never used before.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Final

from testbed.bed import Bed
from tests.bench.machines_init import ADD_ONS, PROBES
from tests.bench.machines_running import KUBEADM, KUBEWRIGHT, Field, Row, field, init, join, pairs, reset
from tests.bench.machines_watching import Looker, Probe, Watch, nodes_ready
from tests.bench.model import Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.setup import Setup

from kubewright.machines.machine import Machine

TARGET_COMMAND: Final = 1.2
TARGET_READY: Final = 1.0
TARGET_FIRST: Final = 0.45
TARGET_CONTROL_PLANE: Final = 0.45
TARGET_CLUSTER: Final = 0.48

FIVE: Final = ("one", "two", "three", "four", "five")
"""Three control planes and two workers."""

HEALTHY: Final[dict[str, Probe]] = {
    "etcd ready": lambda look: look.answers("http://127.0.0.1:2381/readyz"),
    "API server ready": lambda look: look.answers(f"https://{look.machine.address}:6443/readyz"),
    "controller-manager healthy": lambda look: look.answers("https://127.0.0.1:10257/healthz"),
    "scheduler healthy": lambda look: look.answers("https://127.0.0.1:10259/livez"),
}


def worker(setup: Setup, rounds: int) -> Result:
    """Measure a worker's join to a settled cluster until its Node is Ready, and its reset."""
    with field() as ground, Settled(ground) as there:
        rows = pairs(setup, "machines-join", rounds, lambda tool: _worker(there.bed, tool), tell="Ready", failed=there.close)
    figures = (
        *compared("worker `join`", rows, "Wall", target=TARGET_COMMAND),
        *compared("worker `join` until its Node is Ready", rows, "Ready", target=TARGET_READY),
        *compared("`reset` of a worker", rows, "Reset"),
    )
    return result("machines-join", figures, rows)


def _worker(bed: Bed, tool: str) -> Row:
    one, two = bed["one"], bed.renew("two")
    watch = Watch(two, {"Ready": nodes_ready("two")}, server=one)
    watch.start()
    used = join(tool, two, via=one).wait()
    ready = watch.wait()["Ready"]
    ended = reset(tool, two).wait()
    _forget(one, "two")
    return {"Wall": used.seconds, "Ready": max(ready, used.ended) - used.began, "Reset": ended.seconds, "Peak": used.peak}


def first(setup: Setup, rounds: int) -> Result:
    """Measure `init` and a worker's join that starts right after it, until both Nodes are Ready."""
    with field() as ground:
        rows = pairs(setup, "machines-first-join", rounds, lambda tool: _first(ground, tool), tell="Both")
    return result("machines-first-join", compared("`init` and a worker's `join`, to both Ready", rows, "Both", target=TARGET_FIRST), rows)


def _first(ground: Field, tool: str) -> Row:
    with ground.fresh("one", "two") as bed:
        watch = Watch(bed["one"], {"Ready": nodes_ready("one", "two")})
        watch.start()
        made = init(tool, bed["one"]).wait()
        joined = join(tool, bed["two"], via=bed["one"]).wait()
        return {"Both": watch.wait()["Ready"] - made.began, "Init": made.seconds, "Join": joined.seconds}


def control_plane(setup: Setup, rounds: int) -> Result:
    """Measure the join of a second control plane until all its components are healthy and its Node is Ready."""
    with field() as ground, Settled(ground, "--upload-certs") as there:
        rows = pairs(
            setup, "machines-control-plane", rounds, lambda tool: _control_plane(there.bed, tool), tell="Healthy", failed=there.close
        )
    figures = (
        *compared("control-plane `join`, to all components healthy and Node Ready", rows, "Healthy", target=TARGET_CONTROL_PLANE),
        *compared("control-plane `join`, the command", rows, "Wall"),
    )
    return result("machines-control-plane", figures, rows)


def _control_plane(bed: Bed, tool: str) -> Row:
    one, two = bed["one"], bed.renew("two")
    watch = Watch(two, {**HEALTHY, "Node Ready": nodes_ready("two")}, server=one)
    watch.start()
    used = join(tool, two, via=one, control_plane=True).wait()
    healthy = max(used.ended, *watch.wait().values())
    reset(KUBEADM, two).wait()  # removes the member from etcd again; this is not measured
    _forget(one, "two")
    return {"Wall": used.seconds, "Healthy": healthy - used.began, "Peak": used.peak}


def cluster(setup: Setup, rounds: int) -> Result:
    """Measure three control planes and two workers from nothing until all are Ready.

    kubeadm joins one node after the other, kubewright all at once after init.
    """
    with field() as ground:
        rows = pairs(setup, "machines-cluster", rounds, lambda tool: _cluster(ground, tool), tell="All")
    figures = compared("three control planes and two workers from nothing, to all Ready", rows, "All", target=TARGET_CLUSTER)
    return result("machines-cluster", figures, rows)


def _cluster(ground: Field, tool: str) -> Row:
    with ground.fresh(*FIVE) as bed:
        watch = Watch(bed["one"], {"Ready": nodes_ready(*FIVE)})
        watch.start()
        made = init(tool, bed["one"], "--upload-certs").wait()
        ended = made.ended
        if tool == KUBEADM:
            for name in FIVE[1:]:
                ended = _join(bed, tool, name).wait().ended
        else:
            ended = max(one.wait().ended for one in [_join(bed, tool, name) for name in FIVE[1:]])
        return {"All": max(ended, watch.wait()["Ready"]) - made.began, "Init": made.seconds}


def _join(bed: Bed, tool: str, name: str) -> Any:
    return join(tool, bed[name], via=bed["one"], control_plane=name in FIVE[:3])


class Settled:
    """A cluster of one machine, made by kubeadm, with available add-ons, and other machines; made at first use and again after `close`."""

    machines: tuple[str, ...] = ("one", "two")

    def __init__(self, ground: Field, *flags: str) -> None:
        self.ground, self._flags = ground, flags
        self._stack = ExitStack()
        self._bed: Bed | None = None

    def __enter__(self) -> Settled:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def bed(self) -> Bed:
        """The machines; `one` is the control plane."""
        if self._bed is None:
            bed = self._stack.enter_context(self.ground.fresh(*self.machines))
            watch = Watch(bed["one"], {name: PROBES[name] for name in ADD_ONS})
            watch.start()
            init(KUBEADM, bed["one"], *self._flags).wait()
            watch.wait()
            self.settle(bed)
            self._bed = bed
        return self._bed

    def settle(self, bed: Bed) -> None:
        """Prepare the cluster further, before it is measured."""

    def close(self) -> None:
        """Take it down."""
        self._bed = None
        self._stack.close()


def _forget(server: Machine, node: str) -> None:
    """Delete the Node of a machine that no longer exists, so that the next one of its name gets a new Node."""
    look = Looker(server, server)
    look.delete(f"/api/v1/nodes/{node}")
    look.close()


def compared(what: str, rows: list[Row], key: str, *, target: float | None = None) -> tuple[Figure, ...]:
    """Return the ratio of the tools and the median of each, for one key of the rows."""
    return (
        ratios(f"{what}, relative to kubeadm", rows, f"{KUBEWRIGHT}{key}", f"{KUBEADM}{key}", target=target),
        figure(f"{what}: kubewright", rows, f"{KUBEWRIGHT}{key}"),
        figure(f"{what}: kubeadm", rows, f"{KUBEADM}{key}"),
    )
