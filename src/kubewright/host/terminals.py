"""A pseudo-terminal between the user's terminal and a program that another process starts, as ssh(1) has one.

The program's session gets the follower. Its line discipline turns Ctrl-C into a signal for the program; the user's
terminal only passes bytes on meanwhile (raw mode). Programs with access to the follower cannot reach the user's terminal.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import termios
import tty
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Final

_CHUNK: Final = 64 * 1024
_REST: Final = 1 << 20
"""Bytes of output that are still shown after the program has ended: others in its session may go on writing."""
_QUIET: Final = 1.0
"""Seconds without output after which this is not waited for any longer: others in its session may stay."""


class PseudoTerminal:
    """A pseudo-terminal like the terminal of standard input, which is in raw mode until the block is left."""

    def __init__(self) -> None:
        self._leader, self.follower = os.openpty()
        self._mode = termios.tcgetattr(0)
        self._typed = b""
        self._types = True

    def __enter__(self) -> PseudoTerminal:
        os.set_blocking(self._leader, False)
        termios.tcsetattr(self.follower, termios.TCSANOW, self._mode)
        self._resize()
        self._former = signal.signal(signal.SIGWINCH, self._resize)
        tty.setraw(0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(termios.error):  # it has been closed
            termios.tcsetattr(0, termios.TCSADRAIN, self._mode)
        signal.signal(signal.SIGWINCH, self._former)
        os.close(self._leader)
        self._close_follower()

    def relay(self, ended: int) -> None:
        """Pass on what is typed and what is written until `ended` is readable, and then the rest of what has been written."""
        while True:
            asked = [self._leader, ended, *([0] if self._types and not self._typed else [])]
            found, free, _ = select.select(asked, [self._leader] if self._typed else [], [])
            if 0 in found:
                self._typed = os.read(0, _CHUNK)
                self._types = bool(self._typed)
            if free:
                with suppress(BlockingIOError):
                    self._typed = self._typed[os.write(self._leader, self._typed) :]
            if self._leader in found:
                self._show()
            if ended in found:
                break
        # the kernel passes on the last output later; the leader has an end when nobody has the follower any more
        self._close_follower()
        rest = _REST
        while rest > 0 and self._leader in select.select([self._leader], [], [], _QUIET)[0]:
            try:
                rest -= self._show()
            except OSError:  # EIO: that was all
                break

    def _show(self) -> int:
        """Show what has been written; returns the number of bytes."""
        left = written = os.read(self._leader, _CHUNK)
        while left:
            left = left[os.write(1, left) :]
        return len(written)

    def _close_follower(self) -> None:
        if self.follower >= 0:
            os.close(self.follower)
            self.follower = -1

    def _resize(self, _: int = 0, __: FrameType | None = None) -> None:
        """Give it the size of the user's terminal; the kernel tells the program."""
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
