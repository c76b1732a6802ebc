"""The bare loop: sends recorded requests with their original identities and connections, and does nothing else.

Threads with the standard library's HTTP client; 16 nodes at a time, as in the fleet. Per node: its request for
cluster-info on a connection that the nodes of a thread share; a connection with the token, which ends with its watch;
a connection with the node's certificate; and another one for the watch of its pods. The last two stay open to the
end. The loop waits for responses, but not for the work of controllers. TLS contexts are made before its clock starts.

Values that only the server can know are taken from its responses: the name of a certificate request, the uid of a
Node, resource versions.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from tests.bench.recording import Join, Request

AT_ONCE: Final = 16
_PATIENCE: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """The cluster that receives the requests, and the identities of the senders."""

    host: str
    port: int
    token: str
    anonymous: ssl.SSLContext
    identities: Mapping[str, ssl.SSLContext]


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """How long a replay took, and how many requests got which status code."""

    seconds: float
    answers: Mapping[int, int]
    refused: Sequence[str] = ()
    """What the server refused, apart from requests for objects that did not exist yet."""


@dataclass
class _Known:
    """What the server has answered to one node so far: the metadata of its last response, and of the last one of each kind."""

    last: Mapping[str, str] = field(default_factory=dict)
    of_kind: dict[str, Mapping[str, str]] = field(default_factory=dict)


class _Lane:
    """One connection with one identity."""

    def __init__(self, target: Target, context: ssl.SSLContext, *, token: str = "") -> None:
        self._connection = http.client.HTTPSConnection(target.host, target.port, context=context, timeout=_PATIENCE)
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    def send(self, request: Request, known: _Known) -> int:
        """Send a request and read its response (of a watch only the head); return the status."""
        headers = {**self._headers, **({"Content-Type": request.content_type} if request.body is not None else {})}
        self._connection.request(request.method, _target(request.target, known), _body(request.body, known), headers)
        answer = self._connection.getresponse()
        if not request.watch:
            _learn(answer.read(), known)
        return answer.status

    def close(self) -> None:
        self._connection.close()


@dataclass
class _Sender:
    """Sends requests for all nodes and counts responses. One object for all threads."""

    target: Target
    open: contextlib.ExitStack
    answers: Counter[int] = field(default_factory=Counter)
    refused: list[str] = field(default_factory=list)
    _local: threading.local = field(default_factory=threading.local)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, join: Join) -> None:
        """Send all requests of one node, in order."""
        known = _Known()
        for request in join.anonymous:
            self._count(request, self._shared().send(request, known))
        token = _Lane(self.target, self.target.anonymous, token=self.target.token)
        for request in join.token:
            self._count(request, token.send(request, known))
        token.close()
        identity = self.target.identities[join.node]
        own = self._kept(_Lane(self.target, identity))
        for request in join.own:
            lane = self._kept(_Lane(self.target, identity)) if request.watch else own
            self._count(request, lane.send(request, known))

    def _count(self, request: Request, status: int) -> None:
        with self._lock:
            self.answers[status] += 1
            if status >= 400 and status != 404:
                self.refused.append(f"{status} {request.method} {request.target}")

    def _shared(self) -> _Lane:
        if not hasattr(self._local, "lane"):
            self._local.lane = self._kept(_Lane(self.target, self.target.anonymous))
        lane: _Lane = self._local.lane
        return lane

    def _kept(self, lane: _Lane) -> _Lane:
        with self._lock:
            self.open.callback(lane.close)
        return lane


def replay(joins: Sequence[Join], target: Target, *, clock: Callable[[], float] = time.monotonic) -> Replayed:
    """Send everything, and return how long it took."""
    with contextlib.ExitStack() as stack:
        sender = _Sender(target=target, open=stack)
        began = clock()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(sender.send, joins))
        seconds = clock() - began
    return Replayed(seconds=seconds, answers=dict(sender.answers), refused=sender.refused)


def _target(target: str, known: _Known) -> str:
    fitted = re.sub(r"resourceVersion=\d+", f"resourceVersion={known.last.get('resourceVersion', '0')}", target)
    return re.sub(r"(fieldSelector=metadata\.name(?:=|%3D))csr-[a-z0-9]+", rf"\g<1>{known.last.get('name', '')}", fitted)


def _body(body: Mapping[str, Any] | None, known: _Known) -> bytes | None:
    if body is None:
        return None
    metadata = dict(body.get("metadata", {}))
    answered = known.of_kind.get(body.get("kind", ""), {})
    metadata |= {name: answered[name] for name in ("resourceVersion", "uid") if name in metadata and name in answered}
    if "ownerReferences" in metadata:
        node = known.of_kind.get("Node", {})  # missing if the server refused it, which the counts show
        metadata["ownerReferences"] = [{**owner, "uid": node.get("uid", "")} for owner in metadata["ownerReferences"]]
    return json.dumps({**body, "metadata": metadata} if metadata else body).encode()


def _learn(content: bytes, known: _Known) -> None:
    found = json.loads(content)
    known.last = found.get("metadata", {})
    if found["kind"] != "Status":
        known.of_kind[found["kind"]] = known.last
