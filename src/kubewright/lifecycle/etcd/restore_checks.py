"""What has to be true before the data of etcd is replaced, and the question that is asked then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kubewright.base.errors import APIError, CheckFailed, UsageError
from kubewright.base.versions import Version
from kubewright.etcd.api import by_peer_url
from kubewright.lifecycle.etcd import fencing, saving
from kubewright.lifecycle.etcd.context import agreed
from kubewright.lifecycle.etcd.this_member import FENCE, RESTORE
from kubewright.lifecycle.steps import checkpoint

if TYPE_CHECKING:
    from kubewright.base.change import Change
    from kubewright.base.clock import Clock
    from kubewright.lifecycle.etcd.context import RestoreContext


def check(ctx: RestoreContext) -> Iterable[Change]:
    """Check everything, and ask. Raises CheckFailed, HostError for another operation that was interrupted, UsageError for any answer but yes."""
    resumed = planned(ctx)
    if not (ctx.request.fence or ctx.request.unfence):
        _ = ctx.etcdutl  # it may have to be fetched: that comes before anything stops
    question = f"{_lost(ctx)}\n[etcd] Continue? [y/N]: "
    if not resumed and not ctx.request.unfence and not agreed(question, yes=ctx.request.yes, ask=ctx.request.ask):
        raise UsageError("nothing was changed: the answer was not y", remedy="answer y, or use --yes")
    return ()


def planned(ctx: RestoreContext) -> Sequence[Change]:
    """Check what can be checked without asking."""
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))
    resumes = begun is not None and begun.operation == RESTORE and begun.goal == ctx.goal
    if begun is not None and begun.operation != FENCE and not resumes:
        checkpoint.require_none_in_progress(ctx.host)
    _ = ctx.status
    if ctx.request.fence or ctx.request.unfence:
        return ()
    _require_cluster(ctx)
    _require_version(ctx)
    known, unknown = others(ctx)
    if not resumes:
        fencing.require_stopped(fencing.look(known, unknown=unknown), gone=ctx.request.peers_are_gone)
    return ()


def others(ctx: RestoreContext) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the peer URLs of the other members, and the names of those of which nobody knows one."""
    found = dict(ctx.member.peers)
    try:
        members = ctx.own.members(agreed=False) if not ctx.status.problem else []
    except APIError:
        members = []
    own = by_peer_url(members, ctx.member.peer_url)
    if own is not None:
        found = {one.name or one.hex_id: one.peer_urls[0] for one in members if one is not own and one.peer_urls}
    named = [] if own is not None else [str(name) for name in ctx.task.description.get("members", ())]
    return found, [name for name in named if name not in found and name != ctx.member.name]


def seconds_since(description: Mapping[str, Any], clock: Clock) -> float:
    """Return how many seconds old what is described is; 0 where nothing tells."""
    try:
        time = datetime.fromisoformat(str(description["time"]))
    except (KeyError, ValueError):
        return 0.0
    return max(0.0, (clock.now() - time.astimezone(UTC)).total_seconds())


def _require_cluster(ctx: RestoreContext) -> None:
    """Refuse a snapshot of a cluster with other CAs or keys: the one that is restored would serve none of its clients."""
    pki = ctx.member.layout.pki
    wanted: Mapping[str, object] = {
        "certificateAuthorities": saving.authorities(ctx.host, pki),
        "serviceAccountKeys": saving.service_account_keys(ctx.host, pki),
    }
    told = ctx.task.description
    wrong = [name for name, here in wanted.items() if told.get(name) and here and told[name] != here]
    if wrong:
        raise CheckFailed(
            f"{ctx.task.source} is the snapshot of another cluster",
            detail=f"{', '.join(wrong)}: {saving.SUFFIX.removeprefix('.')} beside it names others than {ctx.member.layout.pki} has",
            remedy="use a snapshot of this cluster, or put the certificates and keys of that one into place first",
        )


def _require_version(ctx: RestoreContext) -> None:
    """Refuse the snapshot of an etcd that the one of this machine cannot follow. Patch levels do not count."""
    told, here = str(ctx.task.description.get("etcdVersion") or ""), ctx.member.version
    if not told or not here:
        return
    old, new = (Version.parse(f"v{text}") for text in (told, here))
    if old.major != new.major or new.minor - old.minor not in (0, 1):
        raise CheckFailed(
            f"etcd {here} of this machine cannot restore a snapshot of etcd {told}",
            detail="it takes those of its own minor release and of the one before",
            remedy="restore with the version of etcd that saved the snapshot",
        )


def _lost(ctx: RestoreContext) -> str:
    """Say what is lost."""
    if ctx.request.fence:
        return f"etcd and the API server of this machine ({ctx.member.name}) are stopped, and stay so until they are told to start again."
    kept = f"The present data stays in {ctx.member.layout.etcd_data}."
    if ctx.task.source is None:
        return (
            f"etcd begins again with {ctx.member.name} as its only member. Writes that only the other members have are lost; "
            f"they must not come back with their data. {kept}"
        )
    told = ctx.task.description
    since = f" of {told['time']}, revision {told.get('revision')}" if told.get("time") else ""
    now = f" It is at revision {ctx.status.revision} now." if ctx.status.revision else ""
    return f"The cluster goes back to {ctx.task.source}{since}.{now} Everything that was written since is lost. {kept}"
