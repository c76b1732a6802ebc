"""Mounts a directory or file of the host in a running machine: `python -m kubewright.machines.mounting PID SOURCE TARGET ro|rw`.

mount(2) cannot reach from one mount namespace into another; open_tree(2) and move_mount(2) can (Linux 5.2). Before the
machine sees the mount and those below it, mount_setattr(2) makes them slaves (Linux 5.12), so that the host keeps what
the machine unmounts, and with `ro` read-only. A separate process does this, because only a process with a single thread
may enter another mount namespace (setns(2)).
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path
from typing import Final

_OPEN_TREE: Final = 428
_MOVE_MOUNT: Final = 429
_MOUNT_SETATTR: Final = 442
"""The numbers of the system calls, which are the same for all architectures (linux: scripts/syscall.tbl)."""
_HERE: Final = -100
_CLONE: Final = 0x1 | 0x8000
"""OPEN_TREE_CLONE and AT_RECURSIVE: a copy of the mount with those below it (linux/mount.h, linux/fcntl.h)."""
_FROM_DESCRIPTOR: Final = 0x4
_ITSELF: Final = 0x1000 | 0x8000
"""AT_EMPTY_PATH and AT_RECURSIVE: the tree of a descriptor."""
_ATTRIBUTES: Final = {"ro": struct.pack("=QQQQ", 1, 0, 1 << 19, 0), "rw": struct.pack("=QQQQ", 0, 0, 1 << 19, 0)}
"""Each a mount_attr: MOUNT_ATTR_RDONLY or nothing is set, nothing cleared, and the propagation is MS_SLAVE (linux/mount.h)."""
_MOUNT_NAMESPACE: Final = 0x00020000


def main() -> int:
    """Mount, and create the path in the machine if it does not exist. Exit code 1 with the reason if that is not possible."""
    pid, source, target, mode = sys.argv[1:]
    is_directory = Path(source).is_dir()
    libc = ctypes.CDLL(None, use_errno=True)

    def call(function: ctypes._NamedFuncPointer, *arguments: object) -> int:
        found = int(function(*arguments))
        if found < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return found

    try:
        tree = call(libc.syscall, _OPEN_TREE, _HERE, os.fsencode(source), _CLONE)
        call(libc.syscall, _MOUNT_SETATTR, tree, b"", _ITSELF, _ATTRIBUTES[mode], len(_ATTRIBUTES[mode]))
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        call(libc.setns, namespace, _MOUNT_NAMESPACE)
        make_place(Path(target), is_directory=is_directory)
        call(libc.syscall, _MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _FROM_DESCRIPTOR)
    except OSError as error:
        sys.stderr.write(f"{error.strerror}\n")
        return 1
    return 0


def make_place(target: Path, *, is_directory: bool) -> None:
    """Make an empty directory or file to mount at, unless there is one; an empty one of the other kind, as earlier mounts leave it, is replaced."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if is_directory:
        if target.is_file() and not target.stat().st_size:
            target.unlink()
        target.mkdir(exist_ok=True)
        return
    if target.is_dir():
        target.rmdir()
    target.touch()


if __name__ == "__main__":
    sys.exit(main())
