"""Signals that end a command, as exceptions: to what was begun each of them is what Ctrl-C is."""

from __future__ import annotations

from kubewright.base.errors import Interrupted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

SIGHUP: Final = 1
SIGINT: Final = 2
SIGTERM: Final = 15
"""Numbers, not `signal.Signals`: cheap commands have no time to load `enum`."""

_NAMES: Final = {SIGHUP: "SIGHUP", SIGTERM: "SIGTERM"}


class Stopped(KeyboardInterrupt):
    """This process got the signal `number`, which asks it to end."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


def interruption(stop: KeyboardInterrupt, *, remedy: str, phase: str | None = None) -> Interrupted:
    """Return the error of a command that was stopped in a phase, or outside of any."""
    number = stop.number if isinstance(stop, Stopped) else SIGINT
    by = f" by {_NAMES[number]}" if number in _NAMES else ""
    where = f" in phase {phase}" if phase else ""
    return Interrupted(f"interrupted{by}{where}", remedy=remedy, number=number)
