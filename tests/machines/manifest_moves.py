"""Which manifests of a machine are taken away, as inotify tells the kubelet: a moment without a manifest is one without its component."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubewright.machines.machine import Machine

_MOVED_FROM, _DELETE = 0x40, 0x200
"""Events of inotify(7). A rename over a file is none of these."""
_EVENT = struct.Struct("iIII")
_LAST = ".end-of-watch"


@contextmanager
def taken_away(machine: Machine) -> Iterator[set[str]]:
    """Yield the names of manifests that are moved out of the directory, or deleted; complete at the end of the block.

    The machine must not be started again meanwhile.
    """
    directory = machine.root / "etc/kubernetes/manifests"
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(descriptor, os.fsencode(directory), _MOVED_FROM | _DELETE) >= 0, os.strerror(ctypes.get_errno())
    found: set[str] = set()
    reading = threading.Thread(target=_read, args=(descriptor, found))
    reading.start()
    try:
        yield found
    finally:
        _end(directory)
        reading.join(60)
        os.close(descriptor)


def _end(directory: Path) -> None:
    """Cause the last event. The kubelet ignores hidden files."""
    last = directory / _LAST
    last.touch()
    last.unlink()


def _read(descriptor: int, found: set[str]) -> None:
    while True:
        events = os.read(descriptor, 1 << 16)
        while events:
            *_, length = _EVENT.unpack_from(events)
            name = events[_EVENT.size : _EVENT.size + length].rstrip(b"\0").decode()
            events = events[_EVENT.size + length :]
            if name == _LAST:
                return
            if not name.startswith("."):
                found.add(name)
