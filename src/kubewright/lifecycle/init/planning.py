"""`init --plan` and `init --dry-run`: the phases against an overlay of the machine and a cluster that only remembers (DESIGN principle 3)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.change import Change, Lifetime
from kubewright.base.waiting import InstantWaiter
from kubewright.host import dryrun
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.dry_run import DryRunKube
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.init import calls, observing, stand_ins
from kubewright.lifecycle.init.calls import Call
from kubewright.lifecycle.init.telling import TellingHost, TellingWaiter, announce
from kubewright.pki import table
from kubewright.workflow.plan import Plan

_AUTHORITIES: Final = tuple(row.base for row in table.CERTIFICATES if isinstance(row, table.Authority))


def plan(call: Call, *, observe: observing.Observe = observing.cluster) -> Plan:
    """Return what a run would change; nothing is written anywhere.

    A machine on which nothing durable differs has an empty plan, though a run would make short-lived things anew, such as a token.
    """
    host = OverlayHost(call.host)
    with _observed(call, observe) as base:

        @functools.cache
        def kube() -> KubeAPI:
            return RecordingKube(base(), stand_ins=stand_ins.objects(call.configuration))

        made = stand_ins.kubelet_files(call.host.layout)
        with calls.context(call, host, waiter=InstantWaiter(), connect=lambda _: kube(), kubelet_makes=made) as ctx:
            return settled(Plan.of(calls.run(ctx, call).changes))


def settled(found: Plan) -> Plan:
    """Return the plan, or an empty one where all of it is short-lived."""
    return found if any(change.lifetime is Lifetime.DURABLE for change in found.changes) else Plan(changes=())


def dry_run(
    call: Call, directory: PurePosixPath, *, writer: Host, observe: observing.Observe = observing.cluster
) -> tuple[Plan, tuple[Change, ...]]:
    """Tell what a run would do, in kubeadm's form, and write its files into a directory. Returns the plan, and what was written there.

    Authorities, and kubeconfigs of one that is kept elsewhere, are copied into the directory as well.
    """
    reporter = call.means.reporter
    host = TellingHost(call.host, reporter=reporter)
    with _observed(call, observe) as base:

        @functools.cache
        def kube() -> KubeAPI:
            return DryRunKube(base(), reporter=reporter, stand_ins=stand_ins.objects(call.configuration))

        with calls.context(call, host, waiter=TellingWaiter(reporter=reporter), connect=lambda _: kube()) as ctx:
            found = calls.run(ctx, call)
    written = dryrun.materialise(host, directory, writer=writer, copies=_reused_files(call))
    announce(reporter, f'Wrote certificates, kubeconfigs, manifests and the files of the kubelet to "{directory}"')
    announce(reporter, "Certificates and kubeconfigs were not printed, because they hold private keys")
    return Plan.of(found.changes), tuple(written)


def _reused_files(call: Call) -> list[PurePosixPath]:
    """Return the authorities that are there; where the cluster's own is kept elsewhere, also the kubeconfigs, which nobody here can make."""
    layout, there = call.host.layout, call.host.state
    wanted = [path for base in _AUTHORITIES for path in (layout.certificate(base), layout.key(base))]
    if there(layout.certificate("ca")) is not None and there(layout.key("ca")) is None:
        wanted += [layout.kubeconfig(row.name) for row in table.KUBECONFIGS]
    return [path for path in wanted if there(path) is not None]


@contextmanager
def _observed(call: Call, observe: observing.Observe) -> Iterator[Callable[[], KubeAPI | None]]:
    """Give what observes the cluster once it is needed: phases that only write files wait for no server."""
    with ExitStack() as stack:

        def base() -> KubeAPI | None:
            found = observe(call)
            if isinstance(found, KubeClient):
                stack.callback(found.close)
            return found

        yield base
