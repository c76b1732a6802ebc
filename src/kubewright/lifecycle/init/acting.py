"""`init` on a real machine: the phases with systemd, the container runtime and the API server that comes up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.events import SilentReporter
from kubewright.base.records import replace
from kubewright.base.waiting import Condition, PollingWaiter
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.host.seam import Host
from kubewright.lifecycle.init import calls
from kubewright.lifecycle.init.calls import Call
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.init.phases import INIT
from kubewright.lifecycle.means import LOCK
from kubewright.lifecycle.starting.ahead import AHEAD
from kubewright.lifecycle.starting.turns import InTurn, Turn
from kubewright.workflow.ordering import InTreeOrder
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.workflow.plan import Plan

PRIVATE: Final = 0o700
_CHECK: Final = "control-plane-check"
_STARTING: Final = frozenset({"etcd/local", "kubeconfig/super-admin", "kubelet-start", "wait-control-plane", _CHECK})
_LONG: Final = 30.0
"""Seconds that one request may take."""
_PATIENCE: Final = 3.0
"""Seconds that one look of the turns may take."""


def act(call: Call, *, lock_directory: PurePosixPath) -> tuple[Change, ...]:
    """Run init, or the phases of it that were asked for, on this machine: one kubewright at a time. Returns what was changed.

    With the configuration of an init that began here before, it goes on and repairs; another one is refused with ConfigurationChanged.
    Raises CheckFailed for a machine that is not fit, and what the phases raise.
    """
    call.host.ensure(Directory(path=lock_directory, mode=PRIVATE))
    with Lock(lock_directory / LOCK, doing="init", clock=call.means.clock):
        return _phases(call) if call.request.only else _whole(call)


def _phases(call: Call) -> tuple[Change, ...]:
    """Run single phases: they leave the record of the machine alone."""
    return _run(call, resumed=call.host.state(call.host.layout.machine_record) is not None, passed=lambda: None)


def _whole(call: Call) -> tuple[Change, ...]:
    from kubewright.lifecycle import adopting, machine_record  # single phases, many of which only write a file, load less

    host, wanted = call.host, machine_record.of_init(call.configuration)
    found = machine_record.current(host)
    if found is not None:
        machine_record.require_same(found, wanted)
    adopted = adopting.check(host, adopts=call.request.adopt, plan=lambda: _plan(call), reporter=call.means.reporter)

    host.ensure(Directory(path=host.layout.state, mode=PRIVATE))

    def begin() -> None:
        if found is None:
            machine_record.save(host, wanted)

    if "preflight" not in call.phases:
        begin()
    changes = _run(call, resumed=found is not None or adopted, passed=begin)
    machine_record.save(host, replace(wanted, finished=True))
    return changes


def _plan(call: Call) -> Plan:
    """Return what taking over would change. A cluster that cannot be asked cannot be compared: that is an error, and waiting for it is told."""
    from kubewright.lifecycle import administrators
    from kubewright.lifecycle.init import observing, planning  # for a machine that is taken over

    writes = call.host.layout.kubeconfig("super-admin")
    if call.host.state(writes) is not None:  # the run writes with it
        administrators.load(call.host, writes, now=call.means.clock.now())
    quiet = replace(call, means=replace(call.means, reporter=SilentReporter()))
    return planning.plan(quiet, observe=lambda _: observing.answering(call))


def _run(call: Call, *, resumed: bool, passed: Callable[[], None]) -> tuple[Change, ...]:
    starting = call.phases >= _STARTING
    reporter = _in_tree_order(call)
    call = replace(call, means=replace(call.means, reporter=reporter))
    with (
        InTurn(call.host, _turns(call) if starting else {}) as turns,
        closing(reporter),
        calls.context(
            call,
            call.host,
            waiter=PollingWaiter(clock=call.means.clock, reporter=reporter),
            connect=_connecting(call, call.host),
            health_checks=_health_checks(call),
            preflight=_preflight(resumed=resumed, passed=passed),
            turns=turns,
        ) as ctx,
    ):
        result = calls.run(ctx, call, order=AHEAD if starting else ())
        return tuple(change for change in result.changes if change)


def _in_tree_order(call: Call) -> InTreeOrder:
    """Return a reporter that tells of the phases in kubeadm's order."""
    nodes = INIT.nodes
    required = frozenset(node.name for node in nodes if node.name in call.phases and node.phase.run is not None)
    return InTreeOrder(call.means.reporter, [node.name for node in nodes], required=required)


def _turns(call: Call) -> Mapping[str, Turn]:
    """Return the turns of a run that starts the components and waits for them; any other one writes manifests at once."""
    from kubewright.lifecycle.starting import order  # single phases that only write files do without

    connect = _connecting(call, call.host, timeout=_PATIENCE)
    return order.first_control_plane(call.configuration.cluster, call.host, connect=lambda: connect("super-admin"))


def _health_checks(call: Call) -> Mapping[str, Condition]:
    if _CHECK not in call.phases:
        return {}
    from kubewright.lifecycle.init import health

    host = call.host
    return health.checks(call.configuration, layout=host.layout, addresses=call.addresses, detected=host.facts.detected)


def _preflight(*, resumed: bool, passed: Callable[[], None]) -> Callable[[InitContext], Iterable[Step]]:
    def preflight(ctx: InitContext) -> Iterable[Step]:
        from kubewright.lifecycle.init import certificates, checks  # phases that only write files do without

        certificates.reserve_keys(ctx)  # they are made beside the checks
        return checks.checked(ctx, resumed=resumed, passed=passed)

    return preflight


def _connecting(call: Call, host: Host, *, timeout: float = _LONG) -> Callable[[str], KubeAPI]:
    """Make clients from the machine's kubeconfigs that ask its own API server: a load balancer may not be there yet (spec/kubeadm.md 2.2)."""

    def connect(name: str) -> KubeAPI:
        from kubewright.kube.client import KubeClient
        from kubewright.kube.kubeconfigs import load_access

        if call.request.kubeconfig:
            return KubeClient(load_access(PurePosixPath(call.request.kubeconfig), read=host.read), clock=call.means.clock, timeout=timeout)
        access = load_access(host.layout.kubeconfig(name), read=host.read)
        return KubeClient(replace(access, server=call.addresses.api_server), clock=call.means.clock, timeout=timeout)

    return connect
