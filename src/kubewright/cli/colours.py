"""Colours, where a person looks at a terminal and has not said no to them (https://no-color.org)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Final, Protocol

Paint = Callable[[str, str], str]
"""Decorates a text for a place: the key of a column, or a name of `_STYLES`. What it adds takes no room on the screen."""

GREEN: Final = "32"
YELLOW: Final = "33"
RED: Final = "31"
FAINT: Final = "2"
BOLD: Final = "1"

_STATES: Final[Mapping[str, str]] = {
    "Ready": GREEN,
    "Running": YELLOW,
    "Starting": YELLOW,
    "Waiting": FAINT,
    "Stopped": FAINT,
    "NotReady": RED,
    "CrashLoop": RED,
    "Unhealthy": RED,
    "Refused": RED,
}
_STYLES: Final[Mapping[str, str]] = {"heading": BOLD, "faint": FAINT}
_STATE_COLUMNS: Final = frozenset({"state", "phase"})


class Stream(Protocol):
    """What is written to."""

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        ...


def painter(stream: Stream, environment: Mapping[str, str] = os.environ) -> Paint:
    """Return what decorates a stream's text: nothing unless it is a terminal that takes colours."""
    return _paint if takes_colours(stream, environment) else _plain


def takes_colours(stream: Stream, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a stream is a terminal whose user wants colours: NO_COLOR is not set, and TERM is not `dumb`."""
    return stream.isatty() and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


def _plain(_: str, text: str) -> str:
    return text


def _paint(place: str, text: str) -> str:
    code = _STATES.get(text) if place in _STATE_COLUMNS else _STYLES.get(place)
    return f"\x1b[{code}m{text}\x1b[0m" if code else text
