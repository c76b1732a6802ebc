"""Which reporter a command gets: JSON lines, the live display on a terminal, or plain lines."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.clock import SystemClock
from kubewright.base.events import Reporter
from kubewright.cli.report import JsonLines, PlainLines
from kubewright.cli.run_log import has_log, logged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.cli.watching import Look


@contextmanager
def progress(title: str, *, form: str, look: Look | None = None) -> Iterator[Reporter]:
    """Give the reporter for a command that takes its time. All of them write to stderr; stdout is for the result.

    `look` is for the live display alone: what it returns is shown beside the events.
    """
    if form != "text":
        yield logged(JsonLines())
    elif not has_log() and sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        from kubewright.cli.live import LiveDisplay

        clock = SystemClock()
        with LiveDisplay(title, clock=clock) as display:
            if look is None:
                yield display
                return
            from kubewright.cli.watching import Watch

            with Watch(look, reporter=display, clock=clock):
                yield display
    else:
        yield logged(PlainLines())
