"""The common parts of the daemons of clusters: their process, and detecting that their directory was removed."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path, PurePosixPath
from typing import Any

from kubewright.base import logs
from kubewright.base.errors import KubewrightError, Locked
from kubewright.host.locks import Lock
from kubewright.http import loop
from kubewright.local import daemon_process
from kubewright.local.paths import ClusterPaths


def run(own: ClusterPaths, serve: Callable[[], Coroutine[Any, Any, None]], *, cluster: str) -> int:
    """Serve until stopped, as the only daemon of a cluster; `own` has the daemon's files. Returns the exit code.

    75 if another daemon serves this cluster, 1 on an error of ours, which is in the log.
    """
    logs.configure()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # we hold keys: write no core dumps
    os.umask(0o077)
    lock = Lock(PurePosixPath(own.root / "daemon.lock"), doing=f"daemon of cluster {cluster}")
    try:
        lock.acquire()
        daemon_process.write_identity(own)
        loop.run(serve)
    except Locked as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    except KubewrightError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


async def watch_directory(root: Path, gone: asyncio.Event, *, every: float) -> None:
    """Set `gone` when a directory is removed, or replaced by another one: then no other program can find and stop the daemon."""
    mine = _inode(root)
    while _inode(root) == mine:
        await asyncio.sleep(every)
    gone.set()


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
