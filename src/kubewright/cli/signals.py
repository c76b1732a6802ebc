"""SIGHUP, SIGINT and SIGTERM end a command by an exception in the main thread, so that what was begun is cleaned up."""

from __future__ import annotations

# `signal` and `weakref` load `enum` and more, a tenth of the time that a cheap command takes.
import _signal  # type: ignore[import-not-found]
from _weakref import ref

from kubewright.base.interrupts import SIGHUP, SIGINT, SIGTERM, Stopped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final

_STOPPING: Final = (SIGHUP, SIGINT, SIGTERM)


class Stops:
    """The first signal is raised; while its exception is on its way, others change nothing.

    They come in twos and threes: a terminal that is closed, systemd, a user who presses Ctrl-C again. Whoever cannot wait for the clean-up has
    SIGQUIT and SIGKILL. An exception that got lost, because it came where none can be raised (`__del__`), counts no more: the next
    signal is raised again.
    """

    def __init__(self) -> None:
        self._raised: ref[Stopped] | None = None

    def install(self) -> None:
        """Heed the signals from now on, but for those that this process was started to ignore (nohup, the background of a script)."""
        for number in _STOPPING:
            if _signal.getsignal(number) != _signal.SIG_IGN:
                _signal.signal(number, self._stop)

    def _stop(self, number: int, _: FrameType | None) -> None:
        if number == SIGHUP:
            _let_go()
        if self._raised is None or self._raised() is None:
            raise self._noted(Stopped(number))  # no name for it here: a frame that knew it would keep it alive

    def _noted(self, stop: Stopped) -> Stopped:
        self._raised = ref(stop)
        return stop


def _let_go() -> None:
    """Point outputs that nobody reads any more to /dev/null: an error of theirs would end the clean-up."""
    import os
    import select

    poll = select.poll()
    for descriptor in (1, 2):
        poll.register(descriptor, select.POLLOUT)
    for descriptor, seen in poll.poll(0):
        if seen & (select.POLLERR | select.POLLHUP):
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, descriptor)
            os.close(nowhere)
