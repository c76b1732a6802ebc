"""The owner of a cluster of machines: the user who called sudo. The cluster's files in the home directory are accessed as this user."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.filesystem.paths import open_directory
from kubewright.local import record
from kubewright.local.paths import CLUSTERS, ClusterPaths, cluster_paths, state_directory
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
        return self.home.joinpath(".local", "state", *CLUSTERS)


def caller(environment: Mapping[str, str]) -> Owner | None:
    """Return the user who called sudo, None if nobody did, or root did."""
    given = environment.get(_SUDO_UID, "")
    if os.geteuid() != 0 or not given.isascii() or not given.isdigit() or int(given) == 0:
        return None
    return _user(int(given))


def _user(uid: int) -> Owner | None:
    """Return a user, None if the host does not know it."""
    try:
        found = pwd.getpwuid(uid)
    except KeyError:
        return None
    return Owner(uid=found.pw_uid, gid=found.pw_gid, home=Path(found.pw_dir))


def paths_of(name: str, *, state_dir: str = "", new: bool = False) -> ClusterPaths:
    """Return the paths of a cluster. Called with sudo, it may be a cluster of machines of the caller, as a new one is.

    Without sudo, it may be one that the user has made with it. Raises UsageError as `cluster_paths` does.
    """
    mine, owner = cluster_paths(name, state_dir=state_dir), caller(os.environ)
    found = next((paths for paths in visible(state_dir) if paths.name == name), None)
    if found is not None or not new or state_dir or owner is None:
        return found or mine
    return cluster_paths(name, state_dir=str(owner.clusters))


def visible(state_dir: str = "") -> list[ClusterPaths]:
    """Return the clusters of this user by name: with sudo also the caller's, without it also those that the user has made with it.

    The latter are not in the directory that XDG_STATE_HOME names, because sudo clears this variable.
    """
    own, is_root = state_directory(state_dir), os.geteuid() == 0
    other = caller(os.environ) if is_root else _user(os.geteuid())
    found = _in(own)
    if other is not None and not state_dir and other.clusters != own:
        found += [paths for paths in _in(other.clusters) if is_root or _is_whole(paths)]
    return found


def _in(directory: Path) -> list[ClusterPaths]:
    """Return the clusters in a directory; none if it cannot be read, because the next access to it reports that."""
    try:
        return [ClusterPaths(path.parent) for path in sorted(directory.glob("*/cluster.json"))]
    except PermissionError:
        return []


def _is_whole(paths: ClusterPaths) -> bool:
    try:
        found = record.load(paths.record)
    except HostError:
        return False
    return found is not None and found.is_whole


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

    Applies to the whole process, so no other thread may need root in the meantime.
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
