"""`join` on a real machine: the phases with systemd, the container runtime and the cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.events import SilentReporter
from kubewright.base.records import replace
from kubewright.base.waiting import PollingWaiter
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.lifecycle import adopting, machine_record
from kubewright.lifecycle.join import calls, closing
from kubewright.lifecycle.join.calls import Call
from kubewright.lifecycle.join.context import JoinContext
from kubewright.lifecycle.join.kubelet import BOOTSTRAP
from kubewright.lifecycle.join.turns import further_control_plane
from kubewright.lifecycle.means import LOCK
from kubewright.lifecycle.starting.turns import InTurn
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.means import Means
    from kubewright.workflow.plan import Plan

PRIVATE: Final = 0o700
_STARTING: Final = frozenset({"control-plane-prepare/control-plane", "kubelet-start", "etcd-join", "wait-control-plane"})
"""A run with these phases starts the components and waits for them."""


def act(call: Call, *, lock_directory: PurePosixPath) -> tuple[Change, ...]:
    """Run join, or the phases of it that were asked for, on this machine: one kubewright at a time. Returns what was changed.

    Raises CheckFailed for a machine that is not fit, and what the phases raise.
    """
    call.host.ensure(Directory(path=lock_directory, mode=PRIVATE))
    with Lock(lock_directory / LOCK, doing="join", clock=call.means.clock):
        return _run(call, passed=lambda: None) if call.request.only else _whole(call)


def _whole(call: Call) -> tuple[Change, ...]:
    """Run everything, and keep what the machine is made of: from the moment that something is made. One that is refused keeps nothing."""
    host, wanted = call.host, machine_record.of_join(call.configuration)
    adopted = adopting.check(host, adopts=call.request.adopt, plan=lambda: _plan(call), reporter=call.means.reporter)

    def begin() -> None:
        host.ensure(Directory(path=host.layout.state, mode=PRIVATE))
        if adopted or not call.resumed:
            machine_record.save(host, wanted)

    if "preflight" not in call.phases:
        begin()
    changes = _run(call, passed=begin)
    machine_record.save(host, replace(wanted, finished=True))
    return changes


def _plan(call: Call) -> Plan:
    from kubewright.lifecycle.join import planning  # for a machine that is taken over

    return planning.plan(replace(call, means=replace(call.means, reporter=SilentReporter())))


def _run(call: Call, *, passed: Callable[[], None]) -> tuple[Change, ...]:
    waiter = PollingWaiter(clock=call.means.clock, reporter=call.means.reporter)
    runs: list[JoinContext] = []
    order = further_control_plane(lambda: runs[0] if runs else None) if call.phases >= _STARTING else {}
    with (
        InTurn(call.host, order) as turns,
        calls.context(call, call.host, waiter=waiter, connect=connecting(call.means), preflight=_preflight(passed), turns=turns) as ctx,
    ):
        runs.append(ctx)
        with _bootstrapping(call):
            result = calls.run(ctx, call)
        if not call.request.only:
            closing.say(ctx)
        return tuple(change for change in result.changes if change)


@contextmanager
def _bootstrapping(call: Call) -> Iterator[None]:
    """Remove what a kubelet asks for its certificate with where join ends before the phase that does so: it holds a token."""
    try:
        yield
    except BaseException:
        if "kubelet-start" in call.phases:
            call.host.remove(call.host.layout.kubeconfig(BOOTSTRAP))
        raise


def _preflight(passed: Callable[[], None]) -> Callable[[JoinContext], Iterable[Step]]:
    def preflight(ctx: JoinContext) -> Iterable[Step]:
        from kubewright.lifecycle.join import checks

        return checks.checked(ctx, passed=passed)

    return preflight


def connecting(means: Means) -> Callable[[Access], KubeAPI]:
    """Make clients that go through the proxies of the environment, as kubeadm's do."""
    from kubewright.http.proxies import Proxies
    from kubewright.kube.client import KubeClient

    proxies = Proxies.from_environment(os.environ)
    return lambda access: KubeClient(access, clock=means.clock, proxies=proxies)
