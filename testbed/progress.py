"""What the testbed is doing while somebody waits: a line when a long step begins, another one with its duration when it is done.

On stderr.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from kubewright.base.durations import format_seconds
from kubewright.cli.printers.reporters import PlainLines


def fetching() -> PlainLines:
    """Return the reporter of programs that are downloaded or built."""
    return PlainLines()


@contextmanager
def step(what: str, *, takes: str) -> Iterator[None]:
    """Report that a step has begun and about how long it takes, then how long it took."""
    sys.stderr.write(f"{what} ({takes}) ...\n")
    sys.stderr.flush()
    began = time.monotonic()
    yield
    sys.stderr.write(f"{what}: done in {format_seconds(time.monotonic() - began)}\n")
    sys.stderr.flush()
