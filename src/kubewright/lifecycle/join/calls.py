"""One call of `join`, whether it plans or acts: what was asked, the configuration that came of it, and the run of the phases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.addresses import Addresses
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.layout import Layout
from kubewright.base.events import Warned
from kubewright.base.records import dataclass, replace
from kubewright.base.waiting import Waiter
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.lifecycle import adopting, checking, machine_record
from kubewright.lifecycle.join.context import JoinContext, discover, name_checks, reach_etcd
from kubewright.lifecycle.join.phases import JOIN
from kubewright.lifecycle.join.request import JoinRequest, configure
from kubewright.lifecycle.means import Means
from kubewright.lifecycle.starting.turns import AT_ONCE, Turns
from kubewright.pki.keys import KeyPool
from kubewright.workflow import runner
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.means import Machine

_KUBEADM_LAYOUT: Final = Layout()


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of `join` on a machine. `resumed`: an earlier join with the same configuration began here, or something else joined it."""

    request: JoinRequest
    configuration: JoinConfiguration
    host: Host
    means: Means
    resumed: bool = False

    @classmethod
    def of(cls, request: JoinRequest, *, machine: Machine, means: Means, layout: Layout = _KUBEADM_LAYOUT) -> Call:
        """Load the configuration. Warnings are reported.

        Raises as `configure` does, UsageError for a phase that does not exist, and ConfigurationChanged where this machine was made with
        another configuration.
        """
        here = machine(layout)
        loaded = configure(
            request,
            detected=machine_record.with_runtime(here.facts.detected, here),
            exists=lambda path: here.state(PurePosixPath(path)) is not None,
            admin_kubeconfig=str(here.layout.kubeconfig("admin")),
        )
        for warning in loaded.warnings:
            means.reporter.emit(Warned(text=warning))
        configuration = loaded.configuration
        JOIN.select(only=request.only, skip=configuration.skip_phases)
        socket = configuration.node_registration.cri_socket
        host = here if socket == here.layout.cri_socket else machine(replace(layout, cri_socket=socket))
        return cls(request=request, configuration=configuration, host=host, means=means, resumed=_resumed(host, configuration))

    @property
    def addresses(self) -> Addresses:
        """Where this machine listens; on a worker only the kubelet does."""
        return checking.addresses(self.configuration)

    @property
    def phases(self) -> frozenset[str]:
        """The full names of the phases that run."""
        return frozenset(node.name for node in JOIN.select(only=self.request.only, skip=self.configuration.skip_phases))


def _resumed(host: Host, configuration: JoinConfiguration) -> bool:
    found = machine_record.current(host)
    if found is None:
        return bool(adopting.traces(host))
    machine_record.require_same(found, machine_record.of_join(configuration))
    return True


@contextmanager
def context(
    call: Call,
    host: Host,
    *,
    waiter: Waiter,
    connect: Callable[[Access], KubeAPI],
    discovered: Callable[[JoinContext], Access] = discover,
    preflight: Callable[[JoinContext], Iterable[Step]] = name_checks,
    reaching: Callable[[JoinContext], Etcd] = reach_etcd,
    turns: Turns = AT_ONCE,
    kubelet_makes: tuple[File, ...] = (),
) -> Iterator[JoinContext]:
    """Give what the phases work with. Keys that are still being made at the end are dropped, and connections closed."""
    means = call.means
    clients: list[KubeAPI | Etcd] = []

    def connected(access: Access) -> KubeAPI:
        made = connect(access)
        clients.append(made)
        return made

    def reached(ctx: JoinContext) -> Etcd:
        made = reaching(ctx)
        clients.append(made)
        return made

    with KeyPool() as keys:
        try:
            yield JoinContext(
                join=call.configuration,
                addresses=call.addresses,
                detected=host.facts.detected,
                host=host,
                keys=keys,
                clock=means.clock,
                random=means.random,
                waiter=waiter,
                reporter=means.reporter,
                connect=connected,
                discover=discovered,
                reach_etcd=reached,
                started=means.clock.now(),
                phases=call.phases,
                preflight=preflight,
                resumed=call.resumed,
                turns=turns,
                kubelet_makes=kubelet_makes,
            )
        finally:
            for client in clients:
                client.close()


def run(ctx: JoinContext, call: Call) -> runner.Result:
    """Run the phases that were asked for."""
    return runner.run(
        JOIN,
        ctx,
        reporter=call.means.reporter,
        clock=call.means.clock,
        only=call.request.only,
        skip=call.configuration.skip_phases,
    )
