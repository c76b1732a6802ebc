"""Refuses to join while a voting member of etcd is dead, before anything is written.

Etcd would accept no new member, and kubeadm tries for two minutes to add one, with messages that name no member. A
joining machine does not have the files for etcd's client yet, so they are created in an overlay.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import HostError, WaitTimeout
from kubewright.base.events import SilentReporter, Waited
from kubewright.base.records import replace
from kubewright.etcd import alarms, voters
from kubewright.etcd.api import Member
from kubewright.etcd.voters import Voters
from kubewright.host.overlay import OverlayHost
from kubewright.lifecycle.join import control_plane
from kubewright.lifecycle.stacked_etcd import NAMESPACE, QUORUM_REMEDY, patient, peer_url
from kubewright.lifecycle.steps import certificates as steps
from kubewright.pki import keys, specs, store, table
from kubewright.pki.ensure import IssuingSources

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_WITHIN: Final = 5.0
"""Seconds that a member may need to restart: etcd waits as long after one was added before it accepts the next."""
_CLIENT: Final = "etcd-healthcheck-client"
_ADMINISTRATOR: Final = "admin"


def alive(ctx: JoinContext) -> Waited:
    """Ask etcd for its voting members, and wait a moment for members that are down.

    If etcd does not answer, the request is repeated for as long as kubeadm does. Raises WaitTimeout, for dead members
    with their names and the command that removes them, and HostError if a member has raised an alarm: the API
    server could not store what a join writes.
    """
    found = Voters(members=(), dead=())

    def seen() -> None:
        nonlocal found
        found = voters.look(ctx.etcd, without=peer_url(ctx.addresses))

    def dead() -> str | None:
        seen()
        return "; ".join(one.reason for one in found.dead) or None

    limit = ctx.configuration.init.timeouts.etcd_api_call.seconds
    asked = ctx.waiter.until(patient(seen), within=limit, saying="etcd to report its members", remedy=QUORUM_REMEDY)
    if found.alarms:
        raise HostError(
            "etcd has raised an alarm, so no member is added",
            detail="\n".join(alarms.described(found.alarms, found.members)),
            remedy=alarms.remedy(found.alarms),
        )
    if not found.dead:
        return asked
    try:
        return ctx.waiter.until(patient(dead), within=min(_WITHIN, limit), saying="every voting member of etcd to be up")
    except WaitTimeout as error:
        names = ", ".join(one.member.shown for one in found.dead)
        raise WaitTimeout(
            f"etcd accepts no new member while a voting one is dead: {names}",
            detail=error.detail,
            remedy=_remedy(found, pki=ctx.layout.pki),
        ) from error


def _remedy(found: Voters, *, pki: PurePosixPath) -> str:
    if not found.has_quorum:
        return QUORUM_REMEDY
    commands = " && ".join(removal(one.member, by=found.living, pki=pki) for one in found.dead)
    return f"start it again; if its machine no longer exists, remove the member: `{commands}`; then run the same command again"


def removal(member: Member, *, by: Sequence[Member], pki: PurePosixPath) -> str:
    """Return the command that removes a member, run in the static pod of a living one."""
    place = pki / "etcd"
    credentials = f"--cacert={place}/ca.crt --cert={place}/healthcheck-client.crt --key={place}/healthcheck-client.key"
    return f"kubectl -n {NAMESPACE} exec etcd-{by[0].name} -- etcdctl {credentials} member remove {member.hex_id}"


def rehearsed(ctx: JoinContext) -> JoinContext | None:
    """Return a context with a client of the cluster's etcd, whose machine is an overlay: the credentials are created there only.

    None if the CAs that sign them, or etcd, are external. Raises as `download_certs` does.
    """
    if ctx.cluster.etcd.external is not None:
        return None
    sources = replace(ctx.sources, known=lambda _: ctx.found, configuration=lambda _: ctx.configuration)
    copy = replace(ctx, sources=sources, bound=replace(ctx.bound, host=OverlayHost(ctx.host), reporter=SilentReporter()))
    for _ in control_plane.download_certs(copy):
        pass
    for base in ("ca", "etcd/ca"):
        authority = store.load_authority(copy.certificates, base)
        if authority is None or authority.key is None:
            return None
    quick = IssuingSources(ctx.clock, ctx.random, _QuickKeys(), ctx.bound.started)
    client = specs.of(table.row(_CLIENT), ctx.configuration, ctx.addresses)
    steps.certificate(client, store=copy.certificates, sources=quick, reporter=copy.reporter)
    administrator = specs.of_kubeconfig(table.kubeconfig(_ADMINISTRATOR), ctx.configuration, ctx.addresses)
    steps.kubeconfig(administrator, files=copy.kubeconfigs, certificates=copy.certificates, sources=quick, reporter=copy.reporter)
    return copy


class _QuickKeys:
    """Generates cheap keys, regardless of the cluster's algorithm: they are used for seconds."""

    def take(self, _: keys.Algorithm | str, /) -> keys.PrivateKey:
        return keys.generate(keys.Algorithm.ECDSA_P256)
