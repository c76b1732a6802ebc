"""A relay in front of an API server, for tests of what happens when the way there is cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """A way to the API server: connections go through it, until `cut` ends them and lets no more in, or `swallow` lets nothing through."""

    def __init__(self, server: str) -> None:
        place = urlsplit(server)
        self._target = (place.hostname, place.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.host = place.hostname or ""
        self._open: set[socket.socket] = set()
        self._shut = self._swallows = False
        self.let_in = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, shut: bool = False) -> None:
        """End all connections; with `shut` new ones end at once as well."""
        self._shut = shut
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def swallow(self) -> None:
        """Keep all connections, and let in new ones, but let nothing through: nobody is told that anything ended."""
        self._swallows = True

    def open(self) -> None:
        """Let everything through again; what has lost bytes ends."""
        if self._swallows:
            self.cut()
        self._shut = self._swallows = False

    def close(self) -> None:
        self.cut(shut=True)
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                ours, _ = self._listener.accept()
            except OSError:
                return
            if self._shut:
                ours.close()
                continue
            try:
                theirs = socket.create_connection(self._target)
            except OSError:
                ours.close()
                continue
            self.let_in += 1
            self._open |= {ours, theirs}
            for source, sink in ((ours, theirs), (theirs, ours)):
                threading.Thread(target=self._copy, args=(source, sink), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._swallows:
                    sink.sendall(data)
        for one in (source, sink):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()
