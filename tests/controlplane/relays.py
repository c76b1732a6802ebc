"""A relay in front of an API server, for tests in which the connection to it is cut."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Relay:
    """A relay to the API server: connections pass through it until `cut` closes them and refuses new ones, or `swallow` passes nothing on."""

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
        """Close all connections; with `shut`, new ones are closed at once as well."""
        self._shut = shut
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def swallow(self) -> None:
        """Keep all connections and accept new ones, but pass nothing on: neither side notices that anything ended."""
        self._swallows = True

    def open(self) -> None:
        """Pass everything on again; connections that have lost bytes are closed."""
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
