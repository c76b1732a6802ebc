"""The client: JSON over HTTPS to any of several endpoints, and gRPC for snapshots; thread-safe. Opens nothing before the first call."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.deadlines import carried
from kubewright.base.errors import APIError, Unreachable
from kubewright.etcd.api import (
    Alarm,
    Credentials,
    Hash,
    Member,
    NoQuorum,
    Status,
    StillLearning,
    nobody,
    read_hash,
    read_member,
    read_status,
    refusal,
)
from kubewright.http import tls
from kubewright.http.failures import NoAnswer, Reason
from kubewright.http.messages import Limits, Transport

T = TypeVar("T")

TIMEOUT: Final = 2.0
"""Seconds to wait for an answer of one endpoint, as in kubeadm's client (kubeadm v1.36: constants/constants.go)."""
HASHING: Final = 60.0
"""Seconds for a hash: the member reads all of its data."""
MOVING: Final = 10.0
"""Seconds for a change of leader; etcd itself gives up after its election timeout."""
_JSON: Final = {"content-type": "application/json"}
_LIMITS: Final = Limits(body=1 << 20, connections=2, connect=TIMEOUT)


class EtcdClient:
    """A client of one etcd cluster. Implements `api.Etcd`.

    `endpoints` are URLs, of which one that answers is sufficient; the one that answered last is tried first.
    `credentials` are None for an etcd without TLS. Raises CertificateError for credentials that cannot be used.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        credentials: Credentials | None,
        clock: Clock | None = None,
        timeout: float = TIMEOUT,
        transport: Callable[[str], Transport] | None = None,
    ) -> None:
        self._credentials = credentials
        self._context = None if credentials is None else tls.client_context(credentials.ca, credentials.certificate, credentials.key)
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._make = transport or self._default_transport
        self._lock = threading.Lock()
        self._endpoints = list(dict.fromkeys(endpoints))
        self._transports: dict[str, Transport] = {}

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints in the order in which they are tried."""
        with self._lock:
            return tuple(self._endpoints)

    def members(self, *, agreed: bool = True) -> list[Member]:
        return self._any("list its members", "/v3/cluster/member/list", {"linearizable": agreed}, _members)

    def statuses(self) -> list[Status]:
        endpoints = self.endpoints
        with ThreadPoolExecutor(max_workers=max(1, len(endpoints))) as threads:
            return list(threads.map(carried(self.status), endpoints))

    def status(self, endpoint: str, /) -> Status:
        try:
            return self._ask(
                endpoint, "report its status", "/v3/maintenance/status", {}, lambda value: read_status(value, endpoint=endpoint)
            )
        except APIError as error:
            return Status(endpoint=endpoint, problem=str(error))

    def reach(self, peer_url: str, /) -> str:
        try:  # any answer is fine; members trust the same CA on both of their ports
            self._transport(peer_url).request("GET", "/version", timeout=self._timeout)
        except NoAnswer as error:
            hung_up = error.reason is Reason.RESET  # as for a client whose certificate has a name of another host (etcd: checkCertSAN)
            return "" if hung_up else str(error)
        except APIError as error:
            return str(error)
        return ""

    def alarms(self) -> list[Alarm]:
        return self._any("report its alarms", "/v3/maintenance/alarm", {"action": "GET"}, _alarms)

    def hash(self, endpoint: str, /, *, revision: int = 0) -> Hash:
        return self._ask(endpoint, "hash its keys", "/v3/maintenance/hashkv", {"revision": str(revision)}, read_hash, timeout=HASHING)

    def keys(self, endpoint: str, prefix: str, /) -> list[str]:
        begin = prefix.encode()
        end = begin[:-1] + bytes([begin[-1] + 1])  # the first key behind all that begin with the prefix
        body = {"key": _base64(begin), "range_end": _base64(end), "keys_only": True, "serializable": True}
        return self._ask(endpoint, f"list the keys below {prefix}", "/v3/kv/range", body, _keys)

    def snapshot(self, endpoint: str, /) -> Generator[bytes, None, None]:
        try:
            from kubewright.etcd import streaming  # gRPC: loaded only for snapshots
        except ImportError as error:
            raise APIError(
                "cannot read snapshots of etcd: gRPC is not installed",
                detail=str(error),
                remedy="install the extra `cri` of kubewright: pip install grpcio protobuf",
            ) from error
        yield from streaming.pieces(endpoint, credentials=self._credentials)

    def move_leader(self, endpoint: str, target: int, /) -> None:
        path = "/v3/maintenance/transfer-leadership"
        self._ask(endpoint, f"make member {target:x} the leader", path, {"targetID": str(target)}, dict, timeout=MOVING)

    def add_learner(self, peer_url: str, /) -> list[Member]:
        body = {"peerURLs": [peer_url], "isLearner": True}
        return self._any(f"add a member at {peer_url}", "/v3/cluster/member/add", body, _members)

    def promote(self, member_id: int, /) -> list[Member]:
        return self._any(f"promote member {member_id:x}", "/v3/cluster/member/promote", {"ID": str(member_id)}, _members)

    def remove(self, member_id: int, /) -> list[Member]:
        return self._any(f"remove member {member_id:x}", "/v3/cluster/member/remove", {"ID": str(member_id)}, _members)

    def follow(self, members: Sequence[Member]) -> None:
        """From now on use the members that have started, learners last; without any, keep the current endpoints."""
        ordered = sorted(members, key=lambda member: member.learner)
        found = list(dict.fromkeys(url for member in ordered for url in member.client_urls))
        with self._lock:
            self._endpoints = found or self._endpoints

    def close(self) -> None:
        with self._lock:
            old, self._transports = list(self._transports.values()), {}
        for transport in old:
            transport.close()

    def _any(self, doing: str, path: str, body: Mapping[str, object], read: Callable[[Any], T]) -> T:
        """Try one endpoint after the other until one answers or refuses. Raises their errors if all fail."""
        failed: list[APIError] = []
        for endpoint in self.endpoints:
            try:
                found = self._ask(endpoint, doing, path, body, read)
            except (Unreachable, NoQuorum, StillLearning) as error:
                failed.append(error)
                continue
            self._prefer(endpoint)
            return found
        if len(failed) == 1:
            raise failed[0]
        raise (
            nobody(failed, doing=doing)
            if failed
            else Unreachable(f"there is no member that can be asked to {doing}", remedy="make sure that the pods of etcd run")
        )

    def _ask(
        self, endpoint: str, doing: str, path: str, body: Mapping[str, object], read: Callable[[Any], T], *, timeout: float | None = None
    ) -> T:
        content, within = json.dumps(body).encode(), timeout or self._timeout
        answer = self._transport(endpoint).request("POST", path, headers=_JSON, body=content, timeout=within)
        try:
            value = json.loads(answer.body)
            if answer.status == 200:
                return read(value)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unreachable(
                f"{endpoint} did not answer as etcd does when asked to {doing}",
                detail=f"status {answer.status}, {type(error).__name__}",
                remedy="see what listens there",
            ) from error
        raise refusal(value, server=endpoint, doing=doing)

    def _prefer(self, endpoint: str) -> None:
        with self._lock:
            if endpoint in self._endpoints:
                self._endpoints.sort(key=lambda other: other != endpoint)

    def _transport(self, endpoint: str) -> Transport:
        with self._lock:
            if endpoint not in self._transports:
                self._transports[endpoint] = self._make(endpoint)
            return self._transports[endpoint]

    def _default_transport(self, endpoint: str) -> Transport:
        from kubewright.http.sync import Transport as SyncTransport  # urllib3: loaded only for real calls

        return SyncTransport(endpoint, context=self._context, limits=_LIMITS, clock=self._clock)


def _members(value: Mapping[str, Any]) -> list[Member]:
    return [read_member(member) for member in value.get("members", ())]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _keys(value: Mapping[str, Any]) -> list[str]:
    return [base64.b64decode(row["key"]).decode() for row in value.get("kvs", ())]


def _alarms(value: Mapping[str, Any]) -> list[Alarm]:
    return [Alarm(member_id=int(row.get("memberID", 0)), kind=str(row.get("alarm", ""))) for row in value.get("alarms", ())]
