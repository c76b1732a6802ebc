"""File systems that are mounted below a directory, as the kernel lists them, what keeps us from removing them, and unmounting one."""

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
"""<sys/mount.h>; the names are those of `unmountFlags` in a ResetConfiguration."""

_ESCAPE: Final = Pattern(r"\\([0-3][0-7]{2})")
"""The kernel writes blanks, tabs, line ends, `#` and backslashes of a path like this (mangle_path of fs/seq_file.c)."""


def mount_points(table: bytes) -> list[PurePosixPath]:
    """Return where file systems are mounted, in the order of the kernel's table: what was mounted later comes later."""
    found = [line.split(b" ") for line in table.split(b"\n") if line]
    return [PurePosixPath(os.fsdecode(unescaped(fields[1]))) for fields in found if len(fields) > 1]


def unescaped(field: bytes) -> bytes:
    """Return the path that a field of the table stands for. Names of files are bytes, in whatever encoding."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 8)), field.decode("latin-1")).encode("latin-1")


def below(table: bytes, directory: PurePosixPath) -> list[PurePosixPath]:
    """Return what is mounted below a directory, the directory itself left out; it is compared as it is written."""
    return [path for path in mount_points(table) if path != directory and path.is_relative_to(directory)]


def decide_unmount(there: Iterable[PurePosixPath], path: PurePosixPath, *, allowed: PurePosixPath) -> Change:
    """Compare with nothing mounted. Raises HostError for a place that is not below the directory where we may unmount."""
    if not path.is_relative_to(allowed) or path == allowed:
        raise HostError(f"{path} is not ours to unmount", detail=f"it is not below {allowed}", remedy=f"umount {path}, if nothing needs it")
    return Change(target=f"mount {path}", action=Action.DELETE if path in there else Action.NONE)


def unmount(path: PurePosixPath, *, flags: Collection[str]) -> bool:
    """Unmount what is mounted at a path; False if nothing is, any more. Raises HostError."""
    import ctypes  # most machines that are reset have something mounted, others need not wait for this

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(path), sum(FLAGS[flag] for flag in set(flags))) == 0:
        return True
    code = ctypes.get_errno()
    if code in {errno.EINVAL, errno.ENOENT}:
        return False
    raise HostError(f"{path} cannot be unmounted", detail=os.strerror(code), remedy=_remedy(code, path))


def mounted_at(path: PurePosixPath) -> HostError:
    """Return the error for what is not removed because another file system is mounted there."""
    return HostError(f"a file system is mounted at {path}", detail="its contents do not belong to kubewright", remedy=f"umount {path}")


def unknown_mounts(what: str) -> HostError:
    """Return the error for what is not done where nobody knows what is mounted."""
    return HostError(
        what,
        detail="without /proc it is unknown whether another file system is mounted there, which must not be emptied",
        remedy="mount /proc, with --rootfs DIR below that directory (`mount -t proc proc DIR/proc`)",
    )


def mount_of(opened: int) -> str:
    """Return the number of the mount that a file is opened on: a bind mount has the device of what it shows. '' without /proc."""
    with suppress(OSError):
        told = Path(f"/proc/self/fdinfo/{opened}").read_bytes().decode(errors="replace")
        return next((line for line in told.splitlines() if line.startswith("mnt_id:")), "")
    return ""


def _remedy(code: int, path: PurePosixPath) -> str:
    if code == errno.EBUSY:
        return f"stop the processes that use it (`fuser -vm {path}` shows them), then run the same command again"
    if code == errno.EPERM:
        return "run the command as root"
    return f"try `umount {path}`, then run the same command again"
