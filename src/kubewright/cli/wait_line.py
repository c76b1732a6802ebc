"""What a run waits for, beside kubeadm's lines: on a terminal one line that is drawn again, in a log a line once in a while."""

from __future__ import annotations

import os
from typing import Final, TextIO

from kubewright.base import events
from kubewright.base.durations import format_seconds
from kubewright.base.masking import mask

AFTER: Final = 5.0
"""Seconds of waiting before a log is told: most waits are over by then."""
EVERY: Final = 10.0
"""Seconds between two lines of a log about the same wait."""
_UP_AND_CLEAR: Final = "\x1b[1A\x1b[2K"
_WIDTH: Final = 80


class WaitLine:
    """Shows waits on a stream. Whoever writes something else to the terminal calls `clear` before."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._terminal = err.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False
        self._told: dict[str, float] = {}

    def show(self, waiting: events.Waiting) -> None:
        """Show what is waited for and why it is not there yet."""
        text = f"waiting for {waiting.what} ({format_seconds(waiting.elapsed)}): {' '.join(waiting.reason.split())}"
        if self._terminal:
            self.clear()
            self._err.write(f"{_cut(mask(text), self._width())}\n")
            self._drawn = True
        elif self._due(waiting):
            self._err.write(f"{mask(text)}\n")
        self._err.flush()

    def clear(self) -> None:
        """Remove the line from the terminal. One that nobody removes stays: it is the last thing that was known."""
        if self._drawn:
            self._err.write(_UP_AND_CLEAR)
            self._err.flush()
            self._drawn = False

    def _due(self, waiting: events.Waiting) -> bool:
        last = self._told.get(waiting.what)
        if waiting.elapsed < AFTER or (last is not None and 0 <= waiting.elapsed - last < EVERY):
            return False
        self._told[waiting.what] = waiting.elapsed
        return True

    def _width(self) -> int:
        try:
            return os.get_terminal_size(self._err.fileno()).columns
        except (OSError, ValueError):  # not really a terminal
            return _WIDTH


def _cut(text: str, width: int) -> str:
    return text if len(text) < width else f"{text[: max(1, width - 2)]}…"
