"""Progress of the long steps by which the parts of machines are made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.events import Progress, Reporter


@contextmanager
def step(reporter: Reporter, what: str, *, takes: str) -> Iterator[None]:
    """Report that a step begins and about how long it takes."""
    reporter.emit(Progress(task=what, done=0, text=f"this takes {takes}"))
    yield
    reporter.emit(Progress(task=what, done=1, text="done"))
