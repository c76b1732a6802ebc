"""One run at a time fetches or builds: a lock on the cache, which ends with its holder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import DiskFull, HostError
from kubewright.base.events import Reporter
from kubewright.base.waiting import PollingWaiter
from kubewright.binaries import files
from kubewright.binaries.settings import CACHE_VARIABLE
from kubewright.host.locks import Lock

NAME: Final = "lock"
PATIENCE: Final = 7200.0
"""Seconds to wait for another run: more than any build takes."""


@contextmanager
def locked(root: Path, *, task: str, wait: bool, clock: Clock, reporter: Reporter) -> Iterator[None]:
    """Hold the lock of the cache at `root`; `task` is shown to who waits for it ("fetching kube-apiserver").

    With `wait`, waits for another holder and reports whom; else raises Locked, naming it. Raises HostError where there can be no lock.
    """
    files.make_directory(root)
    files.require_own(root)
    lock = Lock(PurePosixPath(root / NAME), doing=task, clock=clock)
    try:
        _take(lock, wait=wait, clock=clock, reporter=reporter)
    except DiskFull:
        raise
    except HostError as error:
        raise HostError(error.what, detail=error.detail, remedy=f"set {CACHE_VARIABLE} to a directory that you may write") from error
    try:
        yield
    finally:
        lock.release()


def _take(lock: Lock, *, wait: bool, clock: Clock, reporter: Reporter) -> None:
    if not wait:
        lock.acquire()
    elif lock.try_acquire() is not None:
        waiter = PollingWaiter(clock=clock, reporter=reporter)
        waiter.until(
            lock.try_acquire, within=PATIENCE, saying="another kubewright to be done with the binaries", remedy="end it if it hangs"
        )
