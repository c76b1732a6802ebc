"""Checkpoints: old and new contents of files that an operation replaces as one, stored until the change is verified.

A checkpoint is a directory. `old` and `new` contain the contents, `plan.json` says which files they belong to, and
`state` how far the operation has got. The state is written last, so a directory without it was never completed.
Whether a file has been replaced is determined by reading it, never by the state alone: a run that is killed, or loses
power, leaves each file in its old or its new form.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.base.change import Change
from kubewright.base.errors import CertificateError, HostError
from kubewright.base.records import dataclass, replace
from kubewright.host.decisions import decide_file
from kubewright.host.desired import Directory, File, Show
from kubewright.host.seam import Host
from kubewright.host.states import FileState, Kind
from kubewright.pki.encoding import pem

KEPT: Final = 3
"""How many finished checkpoints of each operation are kept."""
ABSENT: Final = ""
"""The digest of a missing file."""
_FORMAT: Final = 1
_PRIVATE: Final = 0o700
_PLAN: Final = "plan.json"
_STATE: Final = "state"


class State(enum.Enum):
    """How far the operation of a checkpoint has got. While it is only prepared, nothing has been changed."""

    PREPARED = "prepared"
    IN_PROGRESS = "in progress"
    DONE = "done"
    ROLLED_BACK = "rolled back"


OPEN: Final = (State.PREPARED, State.IN_PROGRESS)


class Form(enum.Enum):
    """Which content a file has now.

    `PARKED`: the operation has removed it temporarily. `NEITHER`: somebody else has written it since the checkpoint
    was made.
    """

    OLD = "old"
    NEW = "new"
    PARKED = "parked"
    NEITHER = "neither"


@dataclass(frozen=True, kw_only=True)
class Swap:
    """A file that is replaced: the digests of its contents, and its modes. `before` is `ABSENT` if there was no file.

    `parks`: the operation removes the file before it writes the new content, so that nothing runs from it in the
    meantime. `pair` names a certificate that is renewed with the operation, such as `apiserver`, whose files are
    replaced together; '' for other files.
    """

    target: PurePosixPath
    before: str
    after: str
    old_mode: int
    new_mode: int
    parks: bool = False
    pair: str = ""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One checkpoint. `goal` is what the operation is for, such as a version, in messages.

    `authorities` are digests of the cluster's CA certificates at that time: a checkpoint of another cluster, to which
    the machine belonged before, does not count.
    """

    directory: PurePosixPath
    operation: str
    goal: str
    swaps: tuple[Swap, ...]
    authorities: tuple[str, ...] = ()
    state: State = State.PREPARED

    @property
    def changed(self) -> tuple[Swap, ...]:
        """The files whose content changes, and whose earlier content is restored if the operation fails."""
        return tuple(one for one in self.swaps if one.before != one.after and not one.pair)

    @property
    def pairs(self) -> dict[str, list[Swap]]:
        """The files of each renewed certificate, in the order in which they are replaced. They keep the new content if the operation fails."""
        found: dict[str, list[Swap]] = {}
        for one in self.swaps:
            if one.pair:
                found.setdefault(one.pair, []).append(one)
        return found

    def swap(self, target: PurePosixPath) -> Swap:
        """Return the row of a file. Raises KeyError."""
        return {one.target: one for one in self.swaps}[target]


def parent(host: Host) -> PurePosixPath:
    """Return the directory of all checkpoints of a machine."""
    return host.layout.checkpoints


def digest(content: bytes | None) -> str:
    """Return the digest of a file's content; `ABSENT` if there is none."""
    return ABSENT if content is None else hashlib.sha256(content).hexdigest()


Pairs = Mapping[str, Sequence[File]]
"""The files of each renewed certificate, by its name; the key comes first, because it is replaced first."""


def prepare(
    host: Host,
    *,
    operation: str,
    goal: str,
    files: Sequence[File],
    at: datetime,
    parks: Collection[PurePosixPath] = (),
    renewed: Callable[[], Pairs] = dict,
) -> Checkpoint:
    """Return the checkpoint of an operation that replaces these files: that of an interrupted run with the same goal, or a new one.

    `parks` are the files that the operation removes before it replaces them. `renewed` creates the certificates that
    are renewed with it; an interrupted run has created its own. Raises HostError if another operation is in progress,
    and for a checkpoint that cannot be read.
    """
    wanted = {file.path: digest(file.content) for file in files}
    present = every(host)
    begun = unfinished(present)
    if begun is not None:
        if begun.operation == operation and {swap.target: swap.after for swap in begun.swaps if not swap.pair} == wanted:
            return begun
        raise _in_progress(begun)
    for found in present:
        if found.state is State.PREPARED:  # it has changed nothing, and the machine may have changed since
            discard(host, found)
    _discard_all_but(host, present)
    rows = [("", file) for file in files] + [(name, file) for name, pair in renewed().items() for file in pair]
    return _made(host, operation, goal, rows, at, parks)


def require_none_in_progress(host: Host) -> None:
    """Refuse to work on a machine that an interrupted operation has left between two states.

    Raises HostError, also for a checkpoint that cannot be read. If another tool has reset the machine since, its
    checkpoints are removed, because they are from before that.
    """
    layout = host.layout
    made = (layout.kubeconfig("kubelet"), layout.kubelet_config, layout.certificate("ca"))
    if all(host.state(path) is None for path in made):
        for directory in host.entries(parent(host)):
            host.remove(directory)
        return
    found = unfinished(every(host))
    if found is not None:
        raise _in_progress(found)


def _in_progress(found: Checkpoint) -> HostError:
    return HostError(
        f"an operation on this machine was interrupted: {found.operation} to {found.goal}",
        detail=f"{found.directory} has the files that it replaces",
        remedy=_REMEDIES.get(found.operation, _REMEDY),
    )


_REMEDY: Final = "finish it with the same command and configuration, or take it back with `kubewright upgrade rollback`"
_REMEDIES: Final = {
    "backup-restore": "run the same command again: it continues where it was interrupted; or remove what it has written with `kubewright reset --force`",
    "etcd-restore": "run the same command again: it continues where it was interrupted",
    "etcd-member-replace": "run the same command again: it continues where it was interrupted",
    "etcd-fence": "run `kubewright etcd member replace`, or start etcd as it was with `kubewright etcd restore --unfence`",
}
"""The command that finishes an operation, by the operation's name."""


def _made(
    host: Host, operation: str, goal: str, rows: Sequence[tuple[str, File]], at: datetime, parks: Collection[PurePosixPath]
) -> Checkpoint:
    directory = parent(host) / f"{at:%Y-%m-%d-%H-%M-%S}-{at.microsecond:06d}-{operation}"
    host.ensure(Directory(path=parent(host), mode=_PRIVATE, enforce=True))
    host.ensure(Directory(path=directory, mode=_PRIVATE, enforce=True))
    swaps = []
    for number, (pair, file) in enumerate(rows):
        content, state = host.read(file.path), host.state(file.path)
        if content is not None:
            host.ensure(_private(directory / "old" / str(number), content))
        host.ensure(_private(directory / "new" / str(number), file.content))
        mode = file.mode if state is None else state.mode
        digests = {"before": digest(content), "after": digest(file.content)}
        swaps.append(Swap(target=file.path, **digests, old_mode=mode, new_mode=file.mode, parks=file.path in parks, pair=pair))
    found = Checkpoint(directory=directory, operation=operation, goal=goal, swaps=tuple(swaps), authorities=_authorities(host))
    host.ensure(_private(directory / _PLAN, _encoded(found)))
    return mark(host, found, State.PREPARED)


def _private(path: PurePosixPath, content: bytes) -> File:
    return File(path=path, content=content, mode=0o600, show=Show.SIZE, directory_mode=_PRIVATE)


def mark(host: Host, found: Checkpoint, state: State) -> Checkpoint:
    """Record how far an operation has got, and return the checkpoint with that state."""
    host.ensure(_private(found.directory / _STATE, f"{state.value}\n".encode()))
    return replace(found, state=state)


def finish(host: Host, found: Checkpoint, state: State) -> Checkpoint:
    """Record the end of an operation; remove all but the latest checkpoints of it, and the keys in those that remain."""
    done = mark(host, found, state)
    ended = [one for one in every(host) if one.state not in OPEN]
    for old in [one for one in ended if one.operation == found.operation][:-KEPT]:
        discard(host, old)
    for one in ended:
        for path in [path for pair in one.pairs.values() for swap in pair for path in _contents(one, swap)]:
            host.remove(path)
    return done


def discard(host: Host, found: Checkpoint) -> None:
    """Remove a checkpoint: its state first, so that the rest counts as incomplete if the removal is interrupted."""
    host.remove(found.directory / _STATE)
    host.remove(found.directory)


def _discard_all_but(host: Host, known: Iterable[Checkpoint]) -> None:
    """Remove incomplete checkpoints, and those of other clusters."""
    kept = {found.directory for found in known}
    for directory in host.entries(parent(host)):
        if directory not in kept:
            host.remove(directory)


def close_reverted(host: Host) -> None:
    """Mark an interrupted operation as rolled back if all its files have their old content again.

    The component that runs from these files may not work; another operation can then repair it. An operation that parks
    files stays open, because it has also changed what its checkpoint does not contain.
    """
    found = unfinished(every(host))
    if found is None or any(swap.parks for swap in found.swaps):
        return
    if found.changed and all(swap.before != ABSENT and form(host, swap) is Form.OLD for swap in found.changed):
        for _ in complete_pairs(host, found):
            pass
        finish(host, found, State.ROLLED_BACK)


def form(host: Host, swap: Swap) -> Form:
    """Determine which content a file has. Equal contents count as the new one: nothing is left to do."""
    now = digest(host.read(swap.target))
    if now in (swap.after, swap.before):
        return Form.NEW if now == swap.after else Form.OLD
    return Form.PARKED if now == ABSENT and swap.parks else Form.NEITHER


def require_known(host: Host, found: Checkpoint) -> None:
    """Refuse to continue if somebody else has written one of the files. Raises HostError, naming them."""
    foreign = [str(swap.target) for swap in found.swaps if not swap.pair and form(host, swap) is Form.NEITHER]
    if foreign:
        raise HostError(
            f"files have been changed since {found.operation} to {found.goal} began",
            detail=f"neither as before nor as wanted: {', '.join(foreign)}; both contents are in {found.directory}",
            remedy="put one of the two contents back, then run the same command again",
        )


def park(host: Host, found: Checkpoint) -> None:
    """Remove the files that are parked during the operation. Their contents stay in the checkpoint."""
    for swap in found.swaps:
        if swap.parks:
            host.remove(swap.target, own=(swap.target,))


def put_new(host: Host, found: Checkpoint, target: PurePosixPath, *, instead: bytes | None = None) -> Change:
    """Write the new content of a file, or another one that was not known before. Raises KeyError if the file is not in the checkpoint.

    The change of a parked file is relative to its old content.
    """
    swap = found.swap(target)
    wanted = File(
        path=target,
        content=content(host, found, swap, side="new") if instead is None else instead,
        mode=swap.new_mode,
        show=Show.MADE if swap.pair else Show.DIFF,
    )
    parked = swap.before != ABSENT and form(host, swap) is Form.PARKED
    change = host.ensure(wanted)
    if not parked:
        return change
    return decide_file(FileState(kind=Kind.FILE, mode=swap.old_mode), content(host, found, swap, side="old"), wanted)


def put_pair(host: Host, found: Checkpoint, name: str) -> list[Change]:
    """Replace the files of a renewed certificate, unless somebody else has written one of them since: then all stay unchanged."""
    swaps = found.pairs[name]
    if any(form(host, swap) is Form.NEITHER for swap in swaps):
        return []
    return [put_new(host, found, swap.target) for swap in swaps]


def complete_pairs(host: Host, found: Checkpoint) -> Iterator[Change]:
    """Complete certificates of which a killed run has replaced only one file: a key without its certificate is useless."""
    for name, swaps in found.pairs.items():
        if len({form(host, swap) for swap in swaps}) > 1:
            yield from put_pair(host, found, name)


def put_old(host: Host, found: Checkpoint, target: PurePosixPath) -> Change:
    """Restore the old content of a file, or remove the file if there was none."""
    swap = found.swap(target)
    if swap.before == ABSENT:
        return host.remove(target, own=(target,))
    return host.ensure(File(path=target, content=content(host, found, swap, side="old"), mode=swap.old_mode))


def content(host: Host, found: Checkpoint, swap: Swap, *, side: str) -> bytes:
    """Read one side of a swap, `old` or `new`. Raises HostError if it is not the content that was stored."""
    path = _contents(found, swap)[side == "new"]
    kept = host.read(path)
    if kept is None or digest(kept) != (swap.before if side == "old" else swap.after):
        raise _damaged(found.directory, f"{path} is not what was kept for {swap.target}")
    return kept


def _contents(found: Checkpoint, swap: Swap) -> tuple[PurePosixPath, PurePosixPath]:
    """Return where the old and the new content of a file are stored."""
    number = str(found.swaps.index(swap))
    return found.directory / "old" / number, found.directory / "new" / number


def every(host: Host) -> list[Checkpoint]:
    """Read all complete checkpoints of this cluster, the oldest first. Raises HostError, naming the directory, for one that is damaged."""
    found = [_read(host, directory) for directory in host.entries(parent(host)) if host.state(directory / _STATE) is not None]
    present = set(_authorities(host) if found else ())
    return [one for one in found if not (one.authorities and present) or present.intersection(one.authorities)]


def _authorities(host: Host) -> tuple[str, ...]:
    """Return the digests of the certificates in ca.crt; none if it does not exist, as on a machine that is restored."""
    content = host.read(host.layout.certificate("ca"))
    try:
        return tuple(digest(block.der) for block in pem.blocks(content or b"", source="ca.crt"))
    except CertificateError:
        return ()


def unfinished(found: Iterable[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint of an operation that has begun and not ended."""
    return next((one for one in found if one.state is State.IN_PROGRESS), None)


def _encoded(found: Checkpoint) -> bytes:
    swaps = [{**{name: getattr(swap, name) for name in _SWAP}, "target": str(swap.target)} for swap in found.swaps]
    head = {"format": _FORMAT, "operation": found.operation, "goal": found.goal, "authorities": list(found.authorities)}
    document = {**head, "swaps": swaps}
    return (json.dumps(document, indent=1) + "\n").encode()


_SWAP: Final = {"target": str, "before": str, "after": str, "old_mode": int, "new_mode": int, "parks": bool, "pair": str}


def _read(host: Host, directory: PurePosixPath) -> Checkpoint:
    try:
        document = json.loads(host.read(directory / _PLAN) or b"")
        return Checkpoint(
            directory=directory,
            operation=_operation(document),
            goal=_text(document["goal"]),
            swaps=tuple(map(_swap, document["swaps"])),
            authorities=tuple(map(_text, document.get("authorities", ()))),
            state=State((host.read(directory / _STATE) or b"").decode().strip()),
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise _damaged(directory, str(error)) from error


def _swap(value: dict[str, Any]) -> Swap:
    wrong = [name for name, kind in _SWAP.items() if type(value[name]) is not kind]
    if wrong or not value["target"].startswith("/"):
        raise ValueError(f"swap with a wrong {', '.join(wrong) or 'target'}")
    return Swap(**{**{name: value[name] for name in _SWAP}, "target": PurePosixPath(value["target"])})


def _operation(document: dict[str, Any]) -> str:
    if document["format"] != _FORMAT:
        raise ValueError(f"format {document['format']}")
    return _text(document["operation"])


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _damaged(directory: PurePosixPath, detail: str) -> HostError:
    return HostError(
        f"the checkpoint {directory} is damaged",
        detail=detail,
        remedy="see which files of /etc/kubernetes are old and which are new, then move that directory away",
    )
