"""Which reporter a command gets: JSON lines, the live display on a terminal, or plain lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.clock import SystemClock
from kubewright.base.events import Reporter
from kubewright.cli.report import JsonLines, PlainLines


@contextmanager
def progress(title: str, *, form: str) -> Iterator[Reporter]:
    """Give the reporter for a command that takes its time. All of them write to stderr; stdout is for the result."""
    if form != "text":
        yield JsonLines()
    elif sys.stderr.isatty():
        from kubewright.cli.live import LiveDisplay

        with LiveDisplay(title, clock=SystemClock()) as display:
            yield display
    else:
        yield PlainLines()
