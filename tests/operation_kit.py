"""Runs of the phases of `init` for tests: with a given cluster, on a given host, without checks of the machine."""

from __future__ import annotations

from kubewright.base.events import Warned
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import InstantWaiter
from kubewright.host.decisions import roots
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.lifecycle.binding import bind
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.init import operation as init
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import stand_ins
from kubewright.workflow import runner


@dataclass(frozen=True, kw_only=True)
class KnownCluster(InitContext):
    """Uses the cluster from `observe` in plans, and otherwise only `kube`."""

    observe: object = None
    kube: object = None
    asks_components: bool = True

    @property
    def health_checks(self):
        return super().health_checks if self.asks_components else {}

    def connect(self, name, *, timeout=0.0):
        return self.kube or self.bound.connections.own(
            lambda: self._access(name), observe=lambda: self.observe(self), stand_ins=stand_ins.objects(self.configuration), timeout=timeout
        )


def observed(observe):
    """`init` whose plans use the cluster from `observe`."""

    def context(request, configuration, bound):
        made = init.context(request, configuration, bound)
        return KnownCluster(
            bound=bound, configuration=configuration, layout=made.layout, addresses=made.addresses, request=made.request, observe=observe
        )

    return replace(init.INIT, context=context)


def run_phases(prepared, request, machine, *, kube, reporter, host=None, waiter=None, kubelet_makes=()):
    """Run the requested phases as they are: every change is returned, even if nothing differs. `preflight` only names images."""
    row = observed(lambda _: None)
    for warning in prepared.warnings:
        reporter.emit(Warned(text=warning))
    with bind(row, prepared, machine, mode=Mode.PLAN, reporter=reporter) as seams:
        bound = replace(seams, host=host or prepared.host, waiter=waiter or InstantWaiter(), kubelet_makes=kubelet_makes)
        ctx = replace(row.context(request, prepared.configuration, bound), kube=kube, asks_components=False)
        row.opening(ctx)
        return runner.run(row.phases, ctx, reporter=reporter, clock=machine.clock, only=prepared.only, skip=prepared.skip).changes


class NoCluster:
    """A cluster that must not be asked."""

    def __getattr__(self, _: str) -> object:
        raise AssertionError("a cluster was asked")


class Below(OverlayHost):
    """A host on which kubeadm's directories are replaced by those of an overlay; other writes, as those of a dry run, are real."""

    def ensure(self, desired, /):
        path = getattr(desired, "path", None)
        beside = path is not None and not any(path.is_relative_to(root) for root in roots(self.layout))
        return RealHost(layout=self.layout).ensure(desired) if beside else super().ensure(desired)


def stand_in_machine(machine, *, client):
    """A machine that uses the clients that `client` returns for an access and a time limit."""

    class StandIn(type(machine)):
        def client(self, access, *, timeout=0.0, proxied=True):
            return client(access, timeout)

    return StandIn(**{name: getattr(machine, name) for name in ("at", "clock", "random", "layout", "environment")})
