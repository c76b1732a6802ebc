"""A TCP load balancer with readyz checks in front of control planes, and a client that counts its failed requests."""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType

PORT = 6443
EVERY = 0.3
"""Seconds between two checks of a server, and between two requests of a client."""
RETRIES = 2
"""One server stops at a time, but connections of others may give the stopping one the next turn, too."""
ENDED = (ConnectionError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
"""How a connection ends without a response: reset, or closed without or with an alert (an API server that stops closes idle connections)."""


class Balancer:
    """Passes connections to the servers that are ready, in turn. If one does not accept a connection, the next one gets it.

    If no server passes its check, all of them are tried, as load balancers of clouds do: on a busy machine, answers may be late.
    """

    def __init__(self, address: str, servers: Sequence[str]) -> None:
        self.address = address
        self._ready = dict.fromkeys(servers, False)
        self._turn = 0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._listener = socket.create_server((address, PORT), backlog=128)
        threads = [threading.Thread(target=self._check, args=(server,), daemon=True) for server in servers]
        for thread in (*threads, threading.Thread(target=self._accept, daemon=True)):
            thread.start()

    def close(self) -> None:
        """Stop. Connections that are open are passed on until they end."""
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _check(self, server: str) -> None:
        context = ssl._create_unverified_context()
        while not self._ended.wait(EVERY):
            asked = http.client.HTTPSConnection(server, PORT, timeout=2, context=context)
            try:
                asked.request("GET", "/readyz")
                self._ready[server] = asked.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                self._ready[server] = False
            finally:
                asked.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            for _ in self._ready:
                server = self._next()
                try:
                    upstream = socket.create_connection((server, PORT), timeout=2)
                except OSError:
                    self._ready[server] = False  # until its next check
                    continue
                with upstream:
                    upstream.settimeout(None)
                    _pass_on(client, upstream)
                return

    def _next(self) -> str:
        with self._lock:
            ready = [server for server, is_ready in self._ready.items() if is_ready] or list(self._ready)
            self._turn += 1
            return ready[self._turn % len(ready)]


def _pass_on(*ends: socket.socket) -> None:
    """Copy data in both directions until one end closes."""
    other = dict(zip(ends, reversed(ends), strict=True))
    with suppress(OSError):
        while True:
            for end in select.select(ends, (), ())[0]:
                data = end.recv(65536)
                if not data:
                    return
                other[end].sendall(data)


class Client:
    """Asks for an object again and again, each time with a new connection, until the end of the block.

    A request whose connection ends without a response is sent again, as client-go does (up to ten times: rest/request.go). So is one that an
    API server has accepted and refuses because it is shutting down (apiserver: pkg/server/filters/waitgroup.go).
    """

    def __init__(self, address: str, path: str, context: ssl.SSLContext) -> None:
        self._address, self._path, self._context = address, path, context
        self.asked = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Client:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            began = time.monotonic()
            try:
                status = self._asked()
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(f"{type(error).__name__}: {error}, after {time.monotonic() - began:.1f} s")
            else:
                if status != 200:
                    self.failures.append(f"status {status}")
            self.asked += 1

    def _asked(self) -> int:
        for _ in range(RETRIES):
            with suppress(*ENDED):
                return self._once()
        return self._once()

    def _once(self) -> int:
        connection = http.client.HTTPSConnection(self._address, PORT, timeout=60, context=self._context)
        try:
            connection.request("GET", self._path)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status == HTTPStatus.SERVICE_UNAVAILABLE and answer.getheader("Retry-After"):
                raise ConnectionRefusedError(said.decode(errors="replace"))
            return answer.status
        finally:
            connection.close()
