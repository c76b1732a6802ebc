"""The lock of the files of accounts, and what replaces one of them."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import PurePosixPath

from kubewright.base.errors import TryAgain
from kubewright.host.desired import File
from kubewright.host.failures import explaining
from kubewright.host.found import FileState

_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def locked(*paths: PurePosixPath) -> Iterator[None]:
    """Hold the lock of each file as kubeadm does (F_SETLK). Raises TryAgain if somebody else holds one, HostError if there is none."""
    with ExitStack() as stack:
        for path in paths:
            with explaining("lock", path):
                opened = os.open(path, _OPEN)
                stack.callback(os.close, opened)
                try:
                    fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except (BlockingIOError, PermissionError) as error:
                    raise TryAgain(f"{path} is locked: somebody else changes users", remedy="run the same command again") from error
        yield


def replacement(path: PurePosixPath, text: str, found: FileState | None) -> File:
    """Return a file of accounts with other content; mode and owner stay."""
    content = text.encode("utf-8", errors="surrogateescape")
    if found is None:
        return File(path=path, content=content, mode=0o644)
    return File(path=path, content=content, mode=found.mode, owner=found.owner, group=found.group)
