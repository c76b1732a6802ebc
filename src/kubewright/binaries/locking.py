"""One run at a time fetches or builds: a lock on the cache that the operating system releases when its holder dies."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import Locked
from kubewright.base.events import Reporter
from kubewright.base.waiting import PollingWaiter
from kubewright.binaries import files

NAME: Final = "lock"
PATIENCE: Final = 7200.0
"""Seconds to wait for another run: more than any build takes."""
_NOTE_LENGTH: Final = 1000


@contextmanager
def locked(root: Path, *, task: str, wait: bool, clock: Clock, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of the cache at `root`; `task` is shown to who waits for it ("building kube-apiserver v1.36.3").

    With `wait`, waits for another holder and reports whom; else raises Locked, naming it. Raises HostError where there can be no lock.
    """
    files.make_directory(root)
    path = root / NAME
    with files.writing(path):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not _try(descriptor):
            if not wait:
                raise Locked(f"another kubewright is at work in {root}", detail=_holder(descriptor), remedy="try again when it is done")
            waiter = PollingWaiter(clock=clock, reporter=reporter)
            waiter.until(
                lambda: None if _try(descriptor) else _holder(descriptor),
                within=PATIENCE,
                saying="another kubewright to be done with the binaries",
                remedy=f"if it hangs, end it; the lock is {path}",
            )
        _write_note(descriptor, task)
        yield
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_note(descriptor: int, task: str) -> None:
    note = json.dumps({"pid": os.getpid(), "task": task}).encode()[:_NOTE_LENGTH]
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, note, 0)


def _holder(descriptor: int) -> str:
    """Say who holds the lock, as far as its note tells."""
    try:
        note = json.loads(os.pread(descriptor, _NOTE_LENGTH, 0))
        pid, task = int(note["pid"]), str(note["task"])
    except (OSError, ValueError, KeyError, TypeError):
        return "another kubewright is at work"
    return f"another kubewright (process {pid}) is {task}"
