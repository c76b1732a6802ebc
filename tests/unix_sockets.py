"""Unix sockets of tests. The kernel limits their paths to 107 bytes, and directories of pytest may be longer."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def short_path() -> Iterator[Path]:
    """Provide a directory of mode 0700 whose path is short, wherever temporary files are."""
    with tempfile.TemporaryDirectory(prefix="kw-", dir="/tmp") as place:
        yield Path(place)


def bind(sock: socket.socket, path: Path) -> None:
    """Bind a socket at a path of any length."""
    with contextlib.chdir(path.parent):
        sock.bind(path.name)
