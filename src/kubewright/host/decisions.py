"""The pure part of `ensure`: compare what was found with what is desired and return a `Change`.

No I/O; tested as tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change, unified_diff
from kubewright.base.errors import DiskFull, HostError
from kubewright.base.masking import mask
from kubewright.host.desired import Accounts, Directory, File, Generated, Ownership, Service, Show, Streamed
from kubewright.host.states import FileState, FileSystem, Kind, ServiceState

if TYPE_CHECKING:
    from kubewright.host.accounts import ChangedAccounts


DIFF_LIMIT: Final = 256 * 1024
"""Bytes above which only the size of a file is shown, because difflib takes seconds for more."""

UNITS: Final = PurePosixPath("/etc/systemd/system")
"""The directory for unit files that do not come from a package."""

NAMED: Final = 8
"""How many entries of an emptied directory are named."""


def decide_file(found: FileState | None, content: bytes | None, desired: File) -> Change:
    """Compare a file. `content` is the existing content; it is None if there is no file.

    Raises HostError if something other than a regular file is in its place.
    """
    if found is not None:
        _require(Kind.FILE, found, desired.path)
    if found is None or content is None:  # or it was removed between the two reads
        diff, reason = _described(b"", desired, differs=True)
        return Change(target=desired.target, action=Action.CREATE, diff=diff, reason=reason, lifetime=desired.lifetime)
    differs = not desired.same(content, desired.content)
    reasons = _metadata(found, mode=desired.mode, owner=desired.owner, group=desired.group)
    if not differs and not reasons:
        return Change(target=desired.target, action=Action.NONE, lifetime=desired.lifetime)
    diff, reason = _described(content, desired, differs=differs)
    reasons = [reason, *reasons] if reason else reasons
    return Change(target=desired.target, action=Action.UPDATE, diff=diff, reason=", ".join(reasons), lifetime=desired.lifetime)


def decide_directory(found: FileState | None, desired: Directory) -> Change:
    """Compare a directory. Raises HostError if something else is in its place."""
    if found is None:
        return Change(target=desired.target, action=Action.CREATE, reason=f"mode {desired.mode:04o}", lifetime=desired.lifetime)
    _require(Kind.DIRECTORY, found, desired.path)
    reasons = _metadata(found, mode=desired.mode if desired.enforce else None, owner=desired.owner, group=desired.group)
    return Change(
        target=desired.target,
        action=Action.UPDATE if reasons else Action.NONE,
        reason=", ".join(reasons),
        lifetime=desired.lifetime,
    )


def decide_ownership(found: FileState | None, desired: Ownership) -> Change:
    """Compare the owner of a path. Its contents are not compared: a tree belongs to one user as a whole.

    Raises HostError if the path does not exist or is a link.
    """
    if found is None or found.kind not in {Kind.FILE, Kind.DIRECTORY}:
        raise HostError(
            f"{desired.path} is {'not there' if found is None else f'a {found.kind.value}'}",
            detail=f"user {desired.owner} must own it",
            remedy="run the phases that make it first (`init phase certs all`, `init phase kubeconfig all`)",
        )
    reasons = _metadata(found, mode=desired.mode, owner=desired.owner, group=desired.group)
    return Change(target=desired.target, action=Action.UPDATE if reasons else Action.NONE, reason=", ".join(reasons))


def decide_accounts(added: ChangedAccounts, desired: Accounts) -> Change:
    """Report which users and groups are added."""
    names = [*(f"user {name}" for name in added.users), *(f"group {name}" for name in added.groups)]
    return Change(target=desired.target, action=Action.CREATE if names else Action.NONE, reason=", ".join(names))


def decide_no_accounts(left: ChangedAccounts, unwanted: Accounts) -> Change:
    """Report which users and groups are removed."""
    names = [*(f"user {name}" for name in left.users), *(f"group {name}" for name in left.groups)]
    return Change(target=unwanted.target, action=Action.DELETE if names else Action.NONE, reason=", ".join(names))


def decide_service(found: ServiceState | None, desired: Service, *, units: Sequence[Change] = ()) -> Change:
    """Compare a service. If `found` is None, nothing is known about it, and every desired action is taken.

    `units` are the changes of its unit files.
    """
    verbs = service_verbs(found, desired, units=units)
    diff = "".join(unit.diff for unit in units)
    return Change(target=desired.target, action=Action.UPDATE if verbs else Action.NONE, diff=diff, reason=", ".join(verbs))


def service_verbs(found: ServiceState | None, desired: Service, *, units: Sequence[Change] = ()) -> tuple[str, ...]:
    """Return the actions that a service needs, in order: `reload`, `enable`, `disable`, `start`, `stop`, `restart`."""
    changed = any(units) or (found is not None and found.stale)
    verbs = ["reload"] if changed else []
    if desired.enabled is not None and (found is None or found.enabled != desired.enabled):
        verbs.append("enable" if desired.enabled else "disable")
    if not desired.running:
        if found is None or found.running or found.again:
            verbs.append("stop")
    elif desired.restart or (changed and found is not None and found.running):
        verbs.append("restart")
    elif found is None or not found.running:
        verbs.append("start")
    return tuple(verbs)


def decide_removal(found: FileState | None, path: PurePosixPath, *, layout: Layout, own: Iterable[PurePosixPath] = ()) -> Change:
    """Decide the removal of a path, with everything below a directory.

    Raises HostError for a path outside the layout's directories and those in `own`.
    """
    require_below(path, (*roots(layout), *own))
    kind = Kind.FILE if found is None else found.kind
    return Change(target=f"{kind.value} {path}", action=Action.NONE if found is None else Action.DELETE)


def decide_no_units(there: Sequence[PurePosixPath], service: str, *, directories: Sequence[PurePosixPath] = (UNITS,)) -> Change:
    """Compare the unit files of a service with none.

    Raises HostError for a place where systemd does not keep those of administrators.
    """
    for path in there:
        require_below(path, directories)
    return Change(target=f"units of {service}", action=Action.DELETE if there else Action.NONE, reason=", ".join(map(str, there)))


def decide_emptying(entries: Sequence[PurePosixPath], path: PurePosixPath, *, layout: Layout, own: Iterable[PurePosixPath] = ()) -> Change:
    """Decide the removal of everything in a directory.

    Raises HostError for a path outside the layout's directories and those in `own`.
    """
    require_below(path, (*roots(layout), *own))
    more = len(entries) - NAMED
    reason = ", ".join(entry.name for entry in entries[:NAMED]) + (f" and {more} more" if more > 0 else "")
    return Change(target=f"contents of {path}", action=Action.DELETE if entries else Action.NONE, reason=reason)


def decide_move(found: FileState | None, there: FileState | None, path: PurePosixPath, target: PurePosixPath, *, layout: Layout) -> Change:
    """Decide a rename: compare the path with the target.

    Raises HostError if both or neither of the two exist, and outside the layout.
    """
    for one in (path, target):
        require_below(one, roots(layout))
    if (found is None) is (there is None):
        both = found is not None
        raise HostError(
            f"{path} cannot be renamed to {target}",
            detail="both exist" if both else "neither exists",
            remedy=f"see what is in {path.parent}, and move one of the two away" if both else f"see what is in {path.parent}",
        )
    kind = (found or there or FileState(kind=Kind.DIRECTORY, mode=0)).kind
    return Change(target=f"{kind.value} {path}", action=Action.NONE if found is None else Action.UPDATE, reason=f"renamed to {target}")


def decide_generated(found: FileState | None, desired: Generated) -> Change:
    """Compare a directory that a program writes: an existing one is complete.

    Raises HostError if something else is in its place.
    """
    if found is not None:
        _require(Kind.DIRECTORY, found, desired.path)
    program = desired.arguments(desired.path)[0]
    return Change(target=desired.target, action=Action.CREATE if found is None else Action.NONE, reason=f"written by {program}")


def decide_streamed(found: FileState | None, desired: Streamed) -> Change:
    """Compare a file that arrives piece by piece: an existing one is complete.

    Raises HostError if something else is in its place.
    """
    if found is not None:
        _require(Kind.FILE, found, desired.path)
    return Change(
        target=desired.target, action=Action.CREATE if found is None else Action.NONE, reason=f"about {desired.size} bytes, not shown"
    )


def require_space(free: FileSystem, desired: Streamed) -> None:
    """Raise DiskFull unless a file fits into a file system and leaves enough space free."""
    if free.available < desired.size + desired.spare:
        raise DiskFull(
            f"{desired.path} does not fit on its file system",
            detail=f"it needs about {desired.size + desired.spare} bytes, {desired.spare} of which stay free, and {free.available} are available",
            remedy="make space there, then run the same command again",
        )


def keeps_owner(*, user: int, mode: int) -> bool:
    """Return whether root keeps the owner of a file when replacing it in a directory of this user and mode.

    It keeps the owner, as writing into the file would, except in a directory that others may write to: anyone could
    have created the file there.
    """
    return user == 0 and not mode & 0o022


def roots(layout: Layout) -> tuple[PurePosixPath, ...]:
    """Return the directories of a machine that kubewright may clean up."""
    return (layout.kubernetes, layout.pki, layout.kubelet, layout.etcd_data, layout.run, layout.state, layout.cni, layout.oneinfra)


def require_below(path: PurePosixPath, allowed: Iterable[PurePosixPath]) -> None:
    """Raise HostError unless the path is one of the directories, or below one without `..`."""
    if ".." in path.parts or not any(path.is_relative_to(root) for root in allowed):
        raise HostError(
            f"{path} is not ours to remove",
            detail="it is outside the directories of this machine",
            remedy="remove it by hand if nothing needs it",
        )


def _require(kind: Kind, found: FileState, path: PurePosixPath) -> None:
    if found.kind is not kind:
        raise HostError(
            f"{path} is a {found.kind.value}, not a {kind.value}",
            detail="it is not replaced, because it may have been put there on purpose",
            remedy="move it out of the way, then run the same command again",
        )


def _metadata(found: FileState, *, mode: int | None, owner: int | None, group: int | None) -> list[str]:
    rows = (
        ("mode", found.mode, mode, "04o"),
        ("owner", found.owner, owner, "d"),
        ("group", found.group, group, "d"),
    )
    return [f"{name} {has:{form}} instead of {wants:{form}}" for name, has, wants, form in rows if wants is not None and has != wants]


def _described(content: bytes, desired: File, *, differs: bool) -> tuple[str, str]:
    """Return the diff and the reason that describe a change of content."""
    if not differs:
        return "", ""
    if desired.show is Show.MADE:
        return "", "made on apply"
    before, after = _text(content), _text(desired.content)
    if desired.show is Show.SIZE or before is None or after is None:
        return "", f"{len(desired.content)} bytes, not shown"
    diff = masked_diff(before, after, name=str(desired.path))
    return diff, "" if diff or not (before or after) else "only values that are not shown differ"


def masked_diff(before: str, after: str, *, name: str) -> str:
    """Return a unified diff of two texts; secrets are masked in both before the comparison."""
    return unified_diff(mask(before), mask(after), name=name)


def _text(content: bytes) -> str | None:
    if len(content) > DIFF_LIMIT or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
