"""Being told when something in a directory changed: inotify, and looking five times a second where the kernel has no instance left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import ctypes

POLL_EVERY: Final = 0.2
"""Seconds between two looks without inotify."""
LOOK_ANYWAY_EVERY: Final = 20.0
"""Seconds between two looks with it, as the kubelet does (fileCheckFrequency): a network file system or a replaced directory tells nothing."""

# inotify(7). Not IN_CREATE and IN_MODIFY: a file that is being written is not looked at before its writer closes it.
_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x8, 0x40, 0x80, 0x200, 0x400, 0x800
_ONLYDIR: Final = 0x01000000
_MASK: Final = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR


class DirectoryWatch:
    """Calls `look` soon after something in a directory changed, and now and then in any case.

    constructed ── start() ──> watching ── stop() ──> stopped
    """

    def __init__(self, directory: Path, look: Callable[[], None], *, inotify: bool = True) -> None:
        self._directory = directory
        self._look = look
        self._wanted = inotify
        self._fd = -1
        self._task: asyncio.Task[None] | None = None

    @property
    def told(self) -> bool:
        """Whether the kernel tells us; else we look."""
        return self._fd >= 0

    def start(self) -> None:
        """Begin. What was there before is not told: look once yourself, after this."""
        if self._wanted:
            with contextlib.suppress(OSError):
                self._fd = _open()
        if self.told:
            self._watch()
            asyncio.get_running_loop().add_reader(self._fd, self._drain)
        self._task = asyncio.create_task(self._look_anyway(), name=f"watch {self._directory}")

    async def stop(self) -> None:
        """End; may be called more than once."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self.told:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._fd, 1 << 16):
                pass
        self._look()

    async def _look_anyway(self) -> None:
        while True:
            await asyncio.sleep(LOOK_ANYWAY_EVERY if self.told else POLL_EVERY)
            if self.told:
                self._watch()  # adding the same directory again changes nothing; another one of its name is watched from now on
            self._look()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            _add(self._fd, self._directory)


def _open() -> int:
    """Return a new inotify descriptor. Raises OSError, also where the C library cannot be loaded."""
    descriptor = int(_libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    return _checked(descriptor)


def _add(descriptor: int, directory: Path) -> None:
    _checked(int(_libc().inotify_add_watch(descriptor, os.fsencode(directory), _MASK)))


def _checked(result: int) -> int:
    import ctypes

    if result < 0:
        number = ctypes.get_errno() or errno.EINVAL
        raise OSError(number, os.strerror(number))
    return result


def _libc() -> ctypes.CDLL:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)
