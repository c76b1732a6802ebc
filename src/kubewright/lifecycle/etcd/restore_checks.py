"""Checks of `etcd restore` before it changes anything, and its question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubewright.apis.machine import url
from kubewright.base.errors import APIError, CheckFailed
from kubewright.base.events import Warned
from kubewright.base.versions import Version
from kubewright.etcd.api import by_peer_url
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.etcd import fencing, restored_objects, saving
from kubewright.lifecycle.etcd.this_member import FENCE, RESTORE
from kubewright.lifecycle.steps import checkpoint

if TYPE_CHECKING:
    from kubewright.base.change import Change
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.etcd.context import RestoreContext


def check(ctx: RestoreContext) -> Iterable[Change]:
    """Run the checks, and ask. Raises what `planned` raises, and UsageError for any answer but yes."""
    planned(ctx)
    replaces = not (ctx.request.fence or ctx.request.unfence)
    if replaces and ctx.restored is None:
        _ = ctx.etcdutl  # it may have to be fetched, which must happen before anything stops
        _warn_of_another_encryption(ctx)
        if ctx.cluster_api is not None:
            restored_objects.warn_of_webhooks(ctx.cluster_api, reporter=ctx.reporter)
    if ctx.request.fence or (replaces and ctx.restored is None and ctx.begun(RESTORE) is None):
        ctx.confirm(_lost(ctx))
    return ()


def planned(ctx: RestoreContext) -> Sequence[Change]:
    """Run the checks. Raises CheckFailed, and HostError if another operation was interrupted."""
    begun = ctx.begun(RESTORE)
    if ctx.begun(FENCE) is None and (begun is None or begun.goal != ctx.goal):
        checkpoint.close_reverted(ctx.host)  # etcd may be what an upgrade could not bring back
        checkpoint.require_none_in_progress(ctx.host)
    _ = ctx.status
    if ctx.request.fence or ctx.request.unfence:
        return ()
    _require_cluster(ctx)
    _require_version(ctx)
    if ctx.restored is None:
        require_others_stopped(ctx)
    return ()


def require_others_stopped(ctx: RestoreContext) -> None:
    """Require that no other member runs, unless the restore has begun already. Raises CheckFailed, APIError."""
    if ctx.begun(RESTORE) is None:
        known, unknown = others(ctx)
        found = fencing.look(known, ports=ctx.member.ports, unknown=unknown)
        if not found and ctx.task.source is None and ctx.status.problem:
            found = [fencing.UNKNOWN]
        fencing.require_stopped(found, gone=ctx.request.peers_are_gone)


def others(ctx: RestoreContext) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the peer URLs of the other members by name, and the names of members without a known URL. Raises APIError."""
    found = dict(ctx.member.peers)
    try:
        members = ctx.own.members(agreed=False) if not ctx.status.problem else []
    except APIError:
        members = []
    own = by_peer_url(members, ctx.member.peer_url)
    if own is not None:
        found = {one.name or one.hex_id: one.peer_urls[0] for one in members if one is not own and one.peer_urls}
    elif ctx.cluster_api is not None:  # other members serve its data
        found = {**_of_pods(ctx, ctx.cluster_api), **found}
    named = [] if own is not None else list(ctx.task.description.get("members") or ())
    return found, [name for name in named if name not in found and name != ctx.member.name]


def _of_pods(ctx: RestoreContext, api: KubeAPI) -> Mapping[str, str]:
    """Return the peer URLs of the other members, by the Nodes of their pods. All members use the same port.

    None are known if a restore that has begun already has stopped the API server. Raises APIError otherwise.
    """
    try:
        clients = stacked_etcd.by_node(api)
    except APIError:
        if ctx.begun(RESTORE) is None:
            raise
        return {}
    port = urlsplit(ctx.member.peer_url).port or 0
    hosts = {node: urlsplit(client).hostname for node, client in clients.items()}
    return {node: url(host, port) for node, host in hosts.items() if host and node != ctx.member.name}


def _require_cluster(ctx: RestoreContext) -> None:
    """Refuse a snapshot of a cluster with other CAs or keys: once restored, it would serve none of its clients."""
    pki = ctx.member.layout.pki
    wanted: Mapping[str, object] = {
        "certificateAuthorities": saving.authorities(ctx.host, pki),
        "serviceAccountKeys": saving.service_account_keys(ctx.host, pki),
    }
    described = ctx.task.description
    wrong = [name for name, here in wanted.items() if described.get(name) and here and described[name] != here]
    if wrong:
        raise CheckFailed(
            f"{ctx.task.source} is the snapshot of another cluster",
            detail=f"{', '.join(wrong)}: {saving.SUFFIX.removeprefix('.')} next to it lists other ones than {ctx.member.layout.pki} contains",
            remedy="use a snapshot of this cluster, or put the certificates and keys of that one into place first",
        )


def _require_version(ctx: RestoreContext) -> None:
    """Refuse a snapshot of an etcd whose minor release is newer than this machine's, or more than one older."""
    saved_by, here = str(ctx.task.description.get("etcdVersion") or ""), ctx.member.version
    if not saved_by or not here:
        return
    old, new = (Version.parse(f"v{text}") for text in (saved_by, here))
    if old.major != new.major or new.minor - old.minor not in (0, 1):
        raise CheckFailed(
            f"etcd {here} of this machine cannot restore a snapshot of etcd {saved_by}",
            detail="it takes those of its own minor release and of the one before",
            remedy="restore with the version of etcd that saved the snapshot",
        )


def _warn_of_another_encryption(ctx: RestoreContext) -> None:
    """Warn if the API server may be unable to read encrypted objects of the snapshot: keys for that may have been replaced since."""
    told = ctx.task.description.get("encryptionConfiguration")
    if told and ctx.begun(RESTORE) is None and told != saving.encryption_configuration(ctx.host)[1]:
        text = (
            "the API server's configuration for encryption is not the one that it had when the snapshot was saved:"
            " encrypted objects whose key it does not contain cannot be read"
        )
        ctx.reporter.emit(Warned(text=text))


def _lost(ctx: RestoreContext) -> str:
    """Return the first part of the question: what is lost."""
    if ctx.request.fence:
        return f"etcd and the API server of this machine ({ctx.member.name}) are stopped, and stay stopped until they are started again."
    kept = f"The present data stays in {ctx.member.layout.etcd_data}."
    if ctx.task.source is None:
        return (
            f"etcd begins again with {ctx.member.name} as its only member. Writes that only the other members have are lost; "
            f"they must not come back with their data. {kept}"
        )
    described = ctx.task.description
    since = f" of {described['time']}, revision {described.get('revision')}" if described.get("time") else ""
    now = f" It is at revision {ctx.status.revision} now." if ctx.status.revision else ""
    return f"The cluster is restored to {ctx.task.source}{since}.{now} Everything that was written since is lost. {_lost_nodes(ctx)}{kept}"


def _lost_nodes(ctx: RestoreContext) -> str:
    """Return a sentence about the Nodes that a snapshot lacks, as far as these are known; '' if there are none."""
    saved = ctx.task.description.get("nodes")
    if saved is None or (present := restored_objects.nodes(ctx.cluster_api)) is None:
        return ""
    lost = sorted(present.difference(saved))
    return f"It lacks the Nodes {', '.join(lost)}. " if lost else ""
