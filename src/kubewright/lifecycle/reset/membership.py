"""The phases `remove-etcd-member` and `delete-node`: this machine leaves its cluster.

Its etcd member is removed with its data, an external etcd is left alone; its Node is deleted, if the user wants that,
while there are still credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import Forbidden, HostError, KubewrightError
from kubewright.base.messages import quoted
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.steps import cleanup

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd

LEADERLESS: Final = 20.0
"""Seconds in which etcd may elect a leader. kubeadm waits for two minutes, as we do while a leader answers that the member cannot be removed yet."""
PREFIX = "system:node:"


def remove_etcd_member(ctx: ResetContext) -> Iterator[Change]:
    """Remove the member and empty its data directory. A member that cannot be removed is a warning, as in kubeadm."""
    yield from ctx.cleanup.attempt(lambda: _leave(ctx))
    yield from ctx.cleanup.attempt(lambda: cleanup.empty_etcd(ctx.cleanup))


def _leave(ctx: ResetContext) -> Iterator[Change]:
    inventory = ctx.inventory
    if inventory.member is None:
        if inventory.foreign_data:
            data = inventory.layout.etcd_data
            ctx.say(f'"{data}" is left as it is: nothing on this machine says that its etcd is of this cluster')
        return
    ctx.report_step("", "Would remove the etcd member on this node from the etcd cluster")
    yield from _member(ctx, inventory.member.peer_url, inventory.member.endpoints)


def _member(ctx: ResetContext, peer_url: str, endpoints: tuple[str, ...]) -> Iterator[Change]:
    from kubewright.etcd.membership import remove_member

    within = ctx.configuration.timeouts.etcd_api_call.seconds
    etcd: Etcd | None = None
    try:
        etcd = ctx.etcd(endpoints)
        change = remove_member(etcd, peer_url, clock=ctx.clock, within=within, leaderless=LEADERLESS)
    except KubewrightError as error:
        ctx.cleanup.warn(
            f"the etcd member {peer_url} may still be in its cluster, because etcd could not be reached: {error}."
            " If the cluster continues without this machine, remove the member from another control plane (`etcdctl member remove`)"
        )
        return
    finally:
        close = getattr(etcd, "close", None)
        if close is not None:
            close()
    if change:
        ctx.report_step(f"Removed the {change.target} from the etcd cluster", "")
    yield change


def node_stays(ctx: ResetContext) -> str | None:
    """Return why the Node stays."""
    return None if ctx.inventory.options.node else "--delete-node was not given"


def delete_node(ctx: ResetContext) -> Iterable[Change]:
    """Delete the Node object of this machine; a missing one is not an error."""
    return ctx.cleanup.attempt(lambda: _delete(ctx))


def _delete(ctx: ResetContext) -> Iterator[Change]:
    from kubewright.kube.objects import remove_object
    from kubewright.kube.resources import NODE

    if ctx.host.state(ctx.inventory.layout.kubeconfig("kubelet")) is None:
        ctx.cleanup.warn("this machine has no kubelet.conf, so its Node is not known: `kubectl delete node NAME` deletes it")
        return
    name = node_name(ctx)
    ctx.report_step(f'Deleting the Node "{name}"', f'Would delete the Node "{name}"')
    try:
        change = remove_object(ctx.connect(), NODE, name)
    except Forbidden as error:
        error.remedy = f"pass a kubeconfig that may delete Nodes with --kubeconfig, or run `kubectl delete node {name}` on another machine"
        raise
    yield change


def node_name(ctx: ResetContext) -> str:
    """Return the name of this machine's Node, from its kubelet's certificate. Raises HostError if it is unknown."""
    from kubewright.kube.credentials import ClientCertificate
    from kubewright.kube.kubeconfigs import load_access
    from kubewright.pki import certificates

    path = ctx.inventory.layout.kubeconfig("kubelet")
    try:
        identity = load_access(path, read=ctx.host.read).identity
        if not isinstance(identity, ClientCertificate):
            raise _unknown(f"{path} contains no client certificate")
        name = certificates.parse(identity.cert_pem, source=str(path))[0].common_name
    except KubewrightError as error:
        raise _unknown(str(error)) from error
    if not name.startswith(PREFIX):
        raise _unknown(f"the certificate of {path} is for {quoted(name)}")
    return name.removeprefix(PREFIX)


def _unknown(why: str) -> HostError:
    return HostError("the name of this machine's Node is not known", detail=why, remedy="delete it manually: kubectl delete node NAME")
