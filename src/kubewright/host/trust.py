"""Who else could change what stands at a path: what decides about us, or is run as root, may be changed by nobody but root and ourselves.

The rules are those of `walking`, and one more: a directory on the way that others may write to lets them put something else there, unless it
is sticky, as /tmp is; then only the owner of an entry can replace it.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import PurePosixPath

from kubewright.host.walking import MOST_LINKS, parts, trusted_users

_GROUP, _EVERYBODY = 0o020, 0o002


def weakness(path: PurePosixPath) -> str:
    """Say what lets others change what stands at a path, links followed, or put something else in its place; '' if nothing does.

    What is not there is nobody's. Raises OSError where the system refuses to look, ELOOP for links in a circle.
    """
    trusted = trusted_users()
    here, left, links = PurePosixPath("/"), parts(str(path)), 0
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
        left[:0] = parts(target)
    return fault


def _fault(path: PurePosixPath, found: os.stat_result, trusted: frozenset[int], *, last: bool) -> str:
    if found.st_uid not in trusted:
        return f"{path} belongs to user {found.st_uid}"
    if stat.S_ISLNK(found.st_mode):  # its mode means nothing
        return ""
    others = found.st_mode & _EVERYBODY or (found.st_mode & _GROUP and found.st_gid not in {0, found.st_uid})
    passed_by = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX and not last
    return f"others may write to {path} (mode {stat.S_IMODE(found.st_mode):04o})" if others and not passed_by else ""
