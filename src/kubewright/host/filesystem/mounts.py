"""File systems that are mounted below a directory, the errors for them, and unmounting one."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern

TABLE: Final = PurePosixPath("/proc/self/mounts")
FLAGS: Final[Mapping[str, int]] = {"MNT_FORCE": 1, "MNT_DETACH": 2, "MNT_EXPIRE": 4, "UMOUNT_NOFOLLOW": 8}
"""From <sys/mount.h>; the names are those of `unmountFlags` in a ResetConfiguration."""

_ESCAPE: Final = Pattern(r"\\([0-3][0-7]{2})")
"""The kernel escapes spaces, tabs, newlines, `#` and backslashes in a path like this (mangle_path of fs/seq_file.c)."""


def mount_points(table: bytes) -> list[PurePosixPath]:
    """Return all mount points in the order of the kernel's table: later mounts come later."""
    found = [line.split(b" ") for line in table.split(b"\n") if line]
    return [PurePosixPath(os.fsdecode(unescaped(fields[1]))) for fields in found if len(fields) > 1]


def unescaped(field: bytes) -> bytes:
    """Return the path in a field of the table. File names are bytes of any encoding."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field.decode("latin-1")).encode("latin-1")


def below(table: bytes, directory: PurePosixPath) -> list[PurePosixPath]:
    """Return the mount points below a directory, without the directory itself; paths are compared as text."""
    return [path for path in mount_points(table) if path != directory and path.is_relative_to(directory)]


def decide_unmount(there: Iterable[PurePosixPath], path: PurePosixPath, *, allowed: PurePosixPath) -> Change:
    """Decide the unmounting of a path.

    Raises HostError for a path that is not below the directory where we may unmount.
    """
    if not path.is_relative_to(allowed) or path == allowed:
        raise HostError(f"{path} is not ours to unmount", detail=f"it is not below {allowed}", remedy=f"umount {path}, if nothing needs it")
    return Change(target=f"mount {path}", action=Action.DELETE if path in there else Action.NONE)


def unmount(path: PurePosixPath, *, flags: Collection[str]) -> bool:
    """Unmount the file system at a path; False if nothing is mounted there (any more). Raises HostError."""
    import ctypes  # only some machines need this

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), sum(FLAGS[flag] for flag in set(flags))) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOENT}:
        return False
    raise HostError(f"{path} cannot be unmounted", detail=os.strerror(code), remedy=_remedy(code, path))


def mounted_at(path: PurePosixPath) -> HostError:
    """Return the error for a path that is not removed because another file system is mounted there."""
    return HostError(f"a file system is mounted at {path}", detail="its contents do not belong to kubewright", remedy=f"umount {path}")


def unknown_mounts(what: str) -> HostError:
    """Return the error for an action that is not taken because it is unknown what is mounted."""
    return HostError(
        what,
        detail="without /proc it is unknown whether another file system is mounted there, which must not be emptied",
        remedy="mount /proc, with --rootfs DIR below that directory (`mount -t proc proc DIR/proc`)",
    )


def mount_of(opened: int) -> str:
    """Return the ID of the mount that a file is opened on: a bind mount has the same device as its source. '' without /proc."""
    with suppress(OSError):
        text = Path(f"/proc/self/fdinfo/{opened}").read_bytes().decode(errors="replace")
        return next((line for line in text.splitlines() if line.startswith("mnt_id:")), "")
    return ""


def _remedy(code: int, path: PurePosixPath) -> str:
    if code == errno.EBUSY:
        return f"stop the processes that use it (`fuser -vm {path}` shows them), then run the same command again"
    if code == errno.EPERM:
        return "run the command as root"
    return f"try `umount {path}`, then run the same command again"
