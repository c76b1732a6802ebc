"""The owner of a cluster of machines: the user who called sudo. The cluster's files in the home directory are accessed as this user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.records import dataclass
from kubewright.host.filesystem.paths import open_directory
from kubewright.local.paths import ClusterPaths, cluster_paths
from kubewright.local.state_directory import changing

_SUDO_UID: Final = "SUDO_UID"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """A user other than root, with its group and home directory."""

    uid: int
    gid: int
    home: Path

    @property
    def clusters(self) -> Path:
        """The directory of this user's clusters. sudo clears XDG_STATE_HOME, so that the default applies."""
        return self.home / ".local" / "state" / "kubewright" / "clusters"


def caller(environment: Mapping[str, str]) -> Owner | None:
    """Return the user who called sudo, None if nobody did, or root did."""
    given = environment.get(_SUDO_UID, "")
    if os.geteuid() != 0 or not given.isascii() or not given.isdigit() or int(given) == 0:
        return None
    try:
        found = pwd.getpwuid(int(given))
    except KeyError:
        return None
    return Owner(uid=found.pw_uid, gid=found.pw_gid, home=Path(found.pw_dir))


def paths_of(name: str, *, state_dir: str = "", new: bool = False) -> ClusterPaths:
    """Return the paths of a cluster. Called with sudo, it may be a cluster of machines of the caller, as a new one is.

    Raises UsageError as `cluster_paths` does.
    """
    mine, owner = cluster_paths(name, state_dir=state_dir), caller(os.environ)
    if state_dir or owner is None or mine.record.exists():
        return mine
    theirs = cluster_paths(name, state_dir=str(owner.clusters))
    return theirs if new or theirs.record.exists() else mine


def of_cluster(paths: ClusterPaths) -> Owner | None:
    """Return the owner of an existing cluster's directory, or the caller for a new one; None if it is root, or we are not root.

    Raises HostError for a directory of root to which other users could have redirected us.
    """
    if os.geteuid() != 0:
        return None
    try:
        found = paths.root.lstat()
    except (FileNotFoundError, NotADirectoryError):
        owner = caller(os.environ)
        return owner if owner is not None and paths.root.is_relative_to(owner.home) else None
    if found.st_uid:
        return Owner(uid=found.st_uid, gid=found.st_gid, home=paths.root)
    with open_directory(PurePosixPath(paths.root.parent)):
        return None


def uid_of(paths: ClusterPaths) -> int:
    """Return the user who owns a cluster."""
    found = of_cluster(paths)
    return 0 if found is None else found.uid


@lru_cache(maxsize=8)
def groups_of(uid: int, gid: int) -> tuple[int, ...]:
    """Return all groups of a user; only the given one for a user without an account."""
    try:
        return tuple(os.getgrouplist(pwd.getpwuid(uid).pw_name, gid))
    except KeyError:
        return (gid,)


@contextmanager
def acting_as(owner: Owner | None) -> Iterator[None]:
    """Access files as an owner inside the block: below a directory of another user, root could be made to write elsewhere.

    Applies to the whole process, so that no other thread may need root meanwhile.
    """
    if owner is None:
        yield
        return
    groups = os.getgroups()
    try:  # an interruption comes at any moment
        os.setgroups(groups_of(owner.uid, owner.gid))
        os.setegid(owner.gid)
        os.seteuid(owner.uid)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@contextmanager
def changing_as(owner: Owner | None, paths: ClusterPaths, *, doing: str) -> Iterator[None]:
    """Hold the lock of a cluster's directory, which belongs to its owner; the block itself runs as root."""
    with ExitStack() as stack:
        with acting_as(owner):
            stack.enter_context(changing(paths, doing=doing))
        try:
            yield
        finally:
            with acting_as(owner):
                stack.close()
