"""Trusted paths: opening a directory step by step, so that no other user can redirect us on the way.

Every directory on the way must belong to a trusted user: root, ourselves, or the owner of `/` (root as a user namespace
shows it). A symbolic link on the way is followed only if it belongs to one of them, as `/var/run` and a PKI directory
that an administrator moved do. Its target is checked step by step in the same way. Only etcd's data directory may belong
to any user, because the user of etcd can write all objects of the cluster anyway, and so run programs as root.

Files that decide about us or run as root must not be writable by others (`weakness`). For those, a directory on the way
that others may write to is a problem as well, unless it is sticky, as /tmp is: then only the owner of an entry can
replace it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.host.states import FileState, Kind

_STEP: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLLOW: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_LINK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LAST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
MOST_LINKS: Final = 40
"""Links in one path: Linux does not follow more (path_resolution(7))."""
OUTER_MODE: Final = 0o755
"""Mode of directories that are created above the parent of a file."""

_GROUP, _EVERYBODY = 0o020, 0o002

Look = Callable[[PurePosixPath], FileState | None]
"""Returns the state of a path, the last link not followed, as `FileReader.state` does."""


def checked(path: PurePosixPath) -> PurePosixPath:
    """Return the path. Raises HostError unless it is absolute, names something, and has no `..`."""
    if not path.is_absolute() or ".." in path.parts or path.name == "":
        raise HostError(
            f"{quoted(str(path))} is not a path to write to",
            detail="it must be absolute and must not contain `..`",
            remedy="use an absolute path",
        )
    return path


@contextmanager
def open_directory(
    path: PurePosixPath,
    *,
    make: int | None = None,
    above: int = OUTER_MODE,
    durable: bool = False,
    theirs: Collection[PurePosixPath] = (),
) -> Iterator[int]:
    """Open a directory for the block; the value can be listed, synced and used as `dir_fd`.

    With `make`, missing directories are created: the last one with that mode, others with that of `above`.
    `theirs` are directories that, with those below them, may belong to any user. Raises OSError as the system does, and
    HostError if another component of the path belongs to an untrusted user.
    """
    opened = _open_path(path, make=make, above=above, durable=durable, free=_free(path, theirs))
    try:
        yield opened
    finally:
        os.close(opened)


def _free(path: PurePosixPath, theirs: Collection[PurePosixPath]) -> int:
    """Return how many components may follow a directory of the path that may belong to any user; -1 for none."""
    return max((len(path.parts) - len(one.parts) for one in theirs if path.is_relative_to(one)), default=-1)


def _open_path(path: PurePosixPath, *, make: int | None, above: int, durable: bool, free: int) -> int:
    trusted = trusted_users()
    left = [(name, None if make is None else above) for name in path.parts[1:-1]] + [(name, make) for name in path.parts[1:][-1:]]
    here, at, links = os.open("/", _FOLLOW), PurePosixPath("/"), 0
    try:
        while left:
            name, mode = left.pop(0)
            found = _step(here, name, at / name, trusted=trusted, make=mode, durable=durable, free=len(left) <= free)
            if isinstance(found, str):  # the target of a link
                links += 1
                _require_few(links)
                left[:0] = [(part, None) for part in steps(found)]
                if not found.startswith("/"):
                    continue
                found, at = os.open("/", _FOLLOW), PurePosixPath("/")
            else:
                at = at.parent if name == ".." else at / name
            previous, here = here, found
            os.close(previous)  # invalidate it first: Ctrl-C during this call must not cause a second close
        return os.open(".", _LAST, dir_fd=here)
    finally:
        os.close(here)


def _require_few(links: int) -> None:
    if links > MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def follow(path: PurePosixPath, *, look: Look, makes: bool = False, theirs: Collection[PurePosixPath] = ()) -> PurePosixPath:
    """Resolve the path of a directory by reading only: return the directory that `open_directory` would open.

    From the first missing component on, the path is returned as it is; with `makes`, `open_directory` would create that
    part.
    Raises OSError and HostError as `open_directory` does.
    """
    trusted, free = trusted_users(), _free(path, theirs)
    for step in _walk(path, look=look):
        if step.state is None:
            if makes and step.linked:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        elif step.state.kind not in {Kind.DIRECTORY, Kind.LINK}:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        elif step.state.owner not in trusted and (step.state.kind is Kind.LINK or len(step.left) > free):
            raise _foreign(step.path, step.state.kind.value, step.state.owner)
    return step.rest


def resolved(path: PurePosixPath, *, look: Look) -> PurePosixPath:
    """Return a path with all links followed, including the last one and regardless of their owners.

    Unreadable parts are left as they are.
    """
    last: _Looked | None = None
    with suppress(OSError, HostError):
        for step in _walk(path, look=look):
            last = step
    return path if last is None else last.rest


@dataclass(frozen=True)
class _Looked:
    """A step of a path, and the state found there. `linked` means that the step comes from the target of a link."""

    path: PurePosixPath
    state: FileState | None
    at: PurePosixPath
    left: Sequence[str]
    linked: bool

    @property
    def rest(self) -> PurePosixPath:
        """The whole path from there on as far as links are resolved."""
        return self.at.joinpath(*self.left)


def _walk(path: PurePosixPath, *, look: Look) -> Iterator[_Looked]:
    """Go to a path step by step; the walk ends at a step that is neither a directory nor a link."""
    left = [(name, False) for name in path.parts[1:]]
    at, links = PurePosixPath("/"), 0
    yield _Looked(at, FileState(kind=Kind.DIRECTORY, mode=OUTER_MODE), at, path.parts[1:], linked=False)
    while left:
        name, linked = left.pop(0)
        here = at.parent if name == ".." else at / name
        state = look(here)
        if state is not None and state.kind is Kind.LINK and state.target:
            links += 1
            _require_few(links)
            left[:0] = [(part, True) for part in steps(state.target)]
            at = PurePosixPath("/") if state.target.startswith("/") else at
            yield _Looked(here, state, at, [name for name, _ in left], linked)
            continue
        at = here
        yield _Looked(here, state, at, [name for name, _ in left], linked)
        if state is None or state.kind not in {Kind.DIRECTORY, Kind.LINK}:
            return


def trusted_users() -> frozenset[int]:
    """Return the users that we trust with the files we read and write: root, ourselves, and the owner of `/`."""
    return frozenset({0, os.geteuid(), os.lstat("/").st_uid})


def steps(target: str) -> list[str]:
    """Return the components of a link's target, from `/` or from the link's directory."""
    return [part for part in target.split("/") if part not in {"", "."}]


def _step(here: int, name: str, path: PurePosixPath, *, trusted: frozenset[int], make: int | None, durable: bool, free: bool) -> int | str:
    """Open the next directory, or return the target of the link that is there. `free`: the directory may belong to any user."""
    try:
        below = _open(here, name, path, trusted)
    except FileNotFoundError:
        if make is None:
            raise
        _make(here, name, make, durable=durable)
        below = _open(here, name, path, trusted)
    if isinstance(below, str):
        return below
    owner = os.fstat(below).st_uid
    if owner not in trusted and not free:
        os.close(below)
        raise _foreign(path, "directory", owner)
    return below


def _open(here: int, name: str, path: PurePosixPath, trusted: frozenset[int]) -> int | str:
    try:
        return os.open(name, _STEP, dir_fd=here)
    except NotADirectoryError:
        link = os.open(name, _LINK, dir_fd=here)
        try:
            found = os.fstat(link)
            if not stat.S_ISLNK(found.st_mode):
                raise
            if found.st_uid not in trusted:
                raise _foreign(path, "symbolic link", found.st_uid) from None
            return os.readlink("", dir_fd=link)
        finally:
            os.close(link)


def _make(here: int, name: str, mode: int, *, durable: bool) -> None:
    """Create a directory with exactly this mode, regardless of the umask.

    Another thread or process may create it first.
    """
    try:
        os.mkdir(name, mode, dir_fd=here)  # if killed before the next call, the directory is as wanted except for the umask
    except FileExistsError:
        return
    os.chmod(name, mode, dir_fd=here)
    if durable:
        sync(here)


def sync(here: int) -> None:
    """Make renames, creations and removals in an open directory survive a power cut."""
    opened = os.open(".", _LAST, dir_fd=here)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _foreign(path: PurePosixPath, kind: str, owner: int) -> HostError:
    return HostError(
        f"{path} is a {kind} that belongs to user {owner}",
        detail=f"user {owner} could replace what user {os.geteuid()} writes below it",
        remedy=f"choose another directory, or change its owner with `chown -h {os.geteuid()} {path}`",
    )


def weakness(path: PurePosixPath) -> str:
    """Return what lets others change the object at a path, links followed, or replace it; '' if nothing does.

    A path that does not exist has no owner. Raises OSError if the system refuses access, ELOOP for circular links.
    """
    trusted = trusted_users()
    here, left, links = PurePosixPath("/"), steps(str(path)), 0
    fault = _fault(here, os.lstat(here), trusted, last=not left)
    while left and not fault:
        name = left.pop(0)
        at = here.parent if name == ".." else here / name
        try:
            found = os.lstat(at)
        except FileNotFoundError:
            return ""
        fault = _fault(at, found, trusted, last=not left)
        if not stat.S_ISLNK(found.st_mode):
            here = at
            continue
        if (links := links + 1) > MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = os.readlink(at)  # noqa: PTH115 - a text, not a path: it is taken to pieces
        here = PurePosixPath("/") if target.startswith("/") else here
        left[:0] = steps(target)
    return fault


def _fault(path: PurePosixPath, found: os.stat_result, trusted: frozenset[int], *, last: bool) -> str:
    if found.st_uid not in trusted:
        return f"{path} belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):  # the mode of a link has no effect
        return ""
    others = found.st_mode & _EVERYBODY or (found.st_mode & _GROUP and found.st_gid not in {0, found.st_uid})
    passed_by = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not last
    return f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):04o})" if others and not passed_by else ""
