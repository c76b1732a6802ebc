"""A cluster as its administrator sees it from outside, with which both sides of a comparison are measured.

Uses the standard library's HTTP client on one kept-alive connection, so that observing costs the cluster as little as
possible: new connections would need a TLS handshake for each request. From `kubewright` it only uses the kubeconfig
reader.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

from tests.bench.running import BenchmarkFailed

from kubewright.host.filesystem.files import Files
from kubewright.kube.kubeconfigs import load_access

EVERY: Final = 0.02
"""Seconds between two checks."""
PATIENCE: Final = 120.0
"""Seconds after which a round fails."""

_TROUBLE: Final = (OSError, http.client.HTTPException)


class Admin:
    """The administrator of one cluster, or the user that `headers` impersonate. Not for several threads at a time."""

    def __init__(self, kubeconfig: Path, *, headers: Sequence[tuple[str, str]] = ()) -> None:
        self._headers = headers
        access = load_access(PurePosixPath(kubeconfig), read=Files().read)
        self._context = access.context()
        place = urlsplit(access.server)
        self.host, self.port = place.hostname or "", place.port or 443
        self._connection = self._connect()

    def status(self, path: str) -> int:
        """Return the status code of a GET; 0 if there is no answer."""
        try:
            return self._send("GET", path)[0]
        except _TROUBLE:
            self._drop()
            return 0

    def get(self, path: str) -> dict[str, Any]:
        """Return an object. Raises BenchmarkFailed for any answer other than 200."""
        return self._require("GET", path, None)

    def post(self, path: str, body: Mapping[str, Any], *, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        """Create an object, with further headers of impersonation. Raises BenchmarkFailed if the server refuses it."""
        return self._require("POST", path, body, headers)

    def patch(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change an object with a merge patch. Raises BenchmarkFailed if the server refuses it."""
        return self._require("PATCH", path, body)

    def delete(self, path: str) -> dict[str, Any]:
        """Delete an object, or a whole collection. Raises BenchmarkFailed if the server refuses."""
        return self._require("DELETE", path, None)

    def watch(self, path: str) -> Watch:
        """Open a watch, on its own connection."""
        return Watch(self._connect(), path)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _require(self, method: str, path: str, body: Mapping[str, Any] | None, headers: Sequence[tuple[str, str]] = ()) -> dict[str, Any]:
        status, content = self._send(method, path, None if body is None else json.dumps(body).encode(), headers)
        if status not in {200, 201}:
            raise BenchmarkFailed(f"{method} {path}: {status} {content[:300]!r}")
        found: dict[str, Any] = json.loads(content)
        return found

    def _send(self, method: str, path: str, body: bytes | None = None, headers: Sequence[tuple[str, str]] = ()) -> tuple[int, bytes]:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        of_body = [("Content-Type", kind), ("Content-Length", str(len(body)))] if body else []
        self._connection.putrequest(method, path)
        for name, value in (*self._headers, *headers, *of_body):
            self._connection.putheader(name, value)
        self._connection.endheaders(body)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self.host, self.port, context=self._context, timeout=PATIENCE)

    def _drop(self) -> None:
        self._connection.close()
        self._connection = self._connect()


class Watch:
    """The events of a watch as they are sent, one line each, until the server ends it or `close` is called, from any thread."""

    def __init__(self, connection: http.client.HTTPSConnection, path: str) -> None:
        self._connection = connection
        self._closed = False
        connection.request("GET", path)
        self._answer = connection.getresponse()
        if self._answer.status != 200:
            raise BenchmarkFailed(f"GET {path}: {self._answer.status} {self._answer.read(300)!r}")

    def __iter__(self) -> Iterator[bytes]:
        with contextlib.closing(self._connection):
            try:
                while line := self._answer.readline():
                    yield line
            except _TROUBLE:
                if not self._closed:
                    raise

    def close(self) -> None:
        """End the watch: readers get no further events."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)


def wait_for(what: str, look: Callable[[], bool], *, hopeless: Callable[[], str] = lambda: "") -> float:
    """Check every 20 ms and return the monotonic time at which the condition held.

    Raises BenchmarkFailed after two minutes, or when `hopeless` returns a reason.
    """
    end = time.monotonic() + PATIENCE
    while not look():
        if reason := hopeless():
            raise BenchmarkFailed(f"{what}: {reason}")
        if time.monotonic() > end:
            raise BenchmarkFailed(f"{what}: not within {PATIENCE:.0f} s")
        time.sleep(EVERY)
    return time.monotonic()


def api_ready(kubeconfig: Path, *, hopeless: Callable[[], str] = lambda: "") -> tuple[Admin, float]:
    """Wait for the kubeconfig, then for the first 200 of /readyz; return the administrator and the time of that answer."""
    wait_for("the kubeconfig", kubeconfig.exists, hopeless=hopeless)
    admin = Admin(kubeconfig)
    return admin, wait_for("the API server", lambda: admin.status("/readyz") == 200, hopeless=hopeless)


def service_account_ready(admin: Admin) -> float:
    """Wait for the default service account; return the time at which it existed."""
    return wait_for("the default service account", lambda: admin.status("/api/v1/namespaces/default/serviceaccounts/default") == 200)


def nodes_ready(admin: Admin, count: int) -> tuple[float, dict[str, tuple[float, float]]]:
    """Watch until this many nodes are Ready. Returns the time, and for each node when it was first seen, and first seen Ready."""
    seen: dict[str, float] = {}
    ready: dict[str, tuple[float, float]] = {}
    for line in admin.watch("/api/v1/nodes?watch=1"):
        event = json.loads(line)
        node, now = event["object"], time.monotonic()
        if event["type"] not in {"ADDED", "MODIFIED"}:
            raise BenchmarkFailed(f"the watch of nodes ended with {event['type']}")
        name = node["metadata"]["name"]
        seen.setdefault(name, now)
        if name not in ready and is_ready(node):
            ready[name] = (seen[name], now)
        if len(ready) == count:
            return now, ready
    raise BenchmarkFailed(f"the watch of nodes ended with {len(ready)} of {count} ready")


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether a Node reports that it is ready."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
