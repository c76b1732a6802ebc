"""`join --dry-run` in kubeadm's form: what would be done is told, the files land in a directory (spec/kubeadm.md 2.5).

A cluster that answers is read. Where none does, kubeadm's stand-ins take its place, with a warning; whatever token and pin are given, because
there is nobody to prove anything.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.change import Action, Change
from kubewright.base.durations import Duration
from kubewright.base.errors import Unreachable, WaitTimeout
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host import dryrun
from kubewright.host.seam import Host
from kubewright.kube.credentials import Access, Anonymous, BearerToken, ClientCertificate
from kubewright.kube.dry_run import DryRunKube
from kubewright.lifecycle.init import stand_ins as nodes
from kubewright.lifecycle.init.telling import TellingHost, TellingWaiter, announce
from kubewright.lifecycle.join import calls, stand_ins
from kubewright.lifecycle.join.calls import Call
from kubewright.lifecycle.join.context import JoinContext, discover, reach_etcd
from kubewright.lifecycle.join.kubelet import BOOTSTRAP
from kubewright.lifecycle.join.planning import really
from kubewright.workflow.plan import Plan

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.join.planning import Connecting

_AT_ONCE: Final = Duration(0)


class _Host(TellingHost):
    """Keeps what the kubelet is let in with, which a run removes at its end: people want to see it."""

    def remove(self, path: PurePosixPath, /) -> Change:
        if path == self.layout.kubeconfig(BOOTSTRAP):
            return Change(target=f"file {path}", action=Action.NONE)
        return super().remove(path)


class _Kube(DryRunKube):
    """Closes the client that reads."""

    def close(self) -> None:
        close = getattr(self._base, "close", None)
        if close is not None:
            close()


class _Cluster:
    """The cluster as a dry run sees it: a real one until it does not answer, then stand-ins."""

    def __init__(self, call: Call, connecting: Connecting) -> None:
        self._reporter = call.means.reporter
        self._real = connecting(call)
        self._node = nodes.node(call.configuration.node_registration.name)
        self._lost: list[dict[str, Any]] = []

    def connect(self, access: Access) -> KubeAPI:
        if self._lost:
            return self._telling(None, self._lost)
        late = isinstance(access.identity, ClientCertificate)
        return self._telling(self._real(access), [self._node] if late else [])

    def find(self, ctx: JoinContext) -> Access:
        try:
            return discover(ctx)
        except (Unreachable, WaitTimeout) as error:
            ctx.reporter.emit(Warned(text=f"{error.what}; stand-ins at {stand_ins.SERVER} take the place of the cluster"))
            self._lost = [*stand_ins.objects(), self._node, *_shared(ctx)]
            token = ctx.join.discovery.tls_bootstrap_token
            return Access(server=stand_ins.SERVER, ca_pem=stand_ins.authority(), identity=BearerToken(token) if token else Anonymous())

    def etcd(self, ctx: JoinContext) -> Etcd:
        return RecordingEtcd(None if self._lost else reach_etcd(ctx))

    def _telling(self, base: KubeAPI | None, objects: list[dict[str, Any]]) -> KubeAPI:
        return _Kube(base, reporter=self._reporter, stand_ins=objects)


def _shared(ctx: JoinContext) -> list[dict[str, Any]]:
    plane = ctx.join.control_plane
    return (
        [stand_ins.shared(plane.certificate_key, clock=ctx.clock, random=ctx.random)] if plane is not None and plane.certificate_key else []
    )


def dry_run(call: Call, directory: PurePosixPath, *, writer: Host, connecting: Connecting = really) -> tuple[Plan, tuple[Change, ...]]:
    """Tell what a run would do, and write its files into a directory. Returns the plan, and what was written there."""
    timeouts = replace(call.configuration.timeouts, discovery=_AT_ONCE, kubernetes_api_call=_AT_ONCE)
    call = replace(call, configuration=replace(call.configuration, timeouts=timeouts))
    reporter = call.means.reporter
    host, cluster = _Host(call.host, reporter=reporter), _Cluster(call, connecting)
    with calls.context(
        call,
        host,
        waiter=TellingWaiter(reporter=reporter),
        connect=cluster.connect,
        discovered=cluster.find,
        reaching=cluster.etcd,
    ) as ctx:
        found = calls.run(ctx, call)
    written = dryrun.materialise(host, directory, writer=writer)
    announce(reporter, f'Wrote certificates, kubeconfigs, manifests and the files of the kubelet to "{directory}"')
    announce(reporter, "Certificates and kubeconfigs were not printed, because they hold private keys")
    return Plan.of(found.changes), tuple(written)
