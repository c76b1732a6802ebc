"""Facts about earlier requests: who used which keys, and how many open requests each node has."""

from __future__ import annotations

import hashlib
import itertools
import sys
from collections import OrderedDict, deque
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, TypeVar

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.controllers import requests
from kubewright.controllers.requests import SigningRequest
from kubewright.controllers.serving.deciding import REASON
from kubewright.controllers.serving.evidence import node_of
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.core import identity_of
from kubewright.pki import certificates
from kubewright.pki.encoding import pem

MOST_KEYS: Final = 50_000
"""Keys that are remembered, the latest ones: some 10 MB. A node of a large cluster has two, and new ones some times a year."""
MOST_USES: Final = 16
"""Signers and users that are remembered of each key: a second one is already refused, and anyone may invent signers."""
MOST_CREDENTIALS: Final = 4
"""Client certificates that are remembered of each node: a kubelet uses the newest one, or the one before it for a while."""
MOST_NODES: Final = 50_000
"""Nodes whose certificates are remembered, those with the latest ones: new nodes may have ever new names."""
MOST_COUNTED: Final = 100
"""Requests of a node that are counted."""
V = TypeVar("V")
_HOUR: Final = timedelta(hours=1)
_COUNTED: Final = frozenset({requests.KUBELET_SERVING, requests.CLIENT_KUBELET})
_Source = tuple[str, str]
"""A signer, and a node that sends requests to it."""


@dataclass(frozen=True, kw_only=True)
class _Request:
    """The relevant facts about one request. `number` is the order in which it was first seen: times of the API are whole seconds."""

    name: str
    created: datetime
    number: int

    @property
    def age(self) -> tuple[datetime, int]:
        """The order of creation. After a start, requests of the same second are in the order of their names, as they are listed."""
        return self.created, self.number


class RequestHistory:
    """Follows the requests of nodes for serving and client certificates. Keys are remembered after a request is deleted."""

    def __init__(self, *, most_nodes: int = MOST_NODES) -> None:
        self._most_nodes = most_nodes
        self._keys: OrderedDict[bytes, frozenset[tuple[str, str]]] = OrderedDict()
        self._requests: dict[_Source, dict[str, _Request]] = {}
        self._open: dict[_Source, dict[str, _Request]] = {}
        self._sources: dict[str, _Source] = {}
        self._numbers = itertools.count()
        self._certificates: OrderedDict[str, bytes] = OrderedDict()
        self._credentials: OrderedDict[str, deque[str]] = OrderedDict()

    def changed(self, event: WatchEvent) -> None:
        """Note the new state of a request."""
        name, _ = identity_of(event.object)
        before = self._forget(name)
        if event.type is EventType.DELETED:
            return
        csr = requests.read(event.object)
        key = key_of(csr)
        if key is None:
            return
        self._remember(key, csr)
        if csr.certificate:
            self._issued(csr)
        if csr.signer in _COUNTED and csr.created is not None and node_of(csr.username):
            is_open = not csr.decided and not csr.certificate
            number = before.number if before is not None and before.created == csr.created else next(self._numbers)
            found, source = _Request(name=name, created=csr.created, number=number), _source(csr)
            self._sources[name] = source
            for rows in (self._requests, self._open) if is_open else (self._requests,):
                rows.setdefault(source, {})[name] = found

    def _forget(self, name: str) -> _Request | None:
        source = self._sources.pop(name, None)
        if source is None:
            return None
        known = self._requests[source][name]
        for rows in (self._requests, self._open):
            rows.get(source, {}).pop(name, None)
            if not rows.get(source):
                rows.pop(source, None)
        return known

    def open_requests(self, node: str) -> tuple[str, ...]:
        """Return the names of a node's open requests for serving certificates."""
        return tuple(self._open.get((requests.KUBELET_SERVING, node), ()))

    def newer(self, csr: SigningRequest) -> str:
        """Return a newer open request of the same node for the same signer; '' if there is none."""
        if csr.created is None:
            return ""
        source = _source(csr)
        known = self._requests.get(source, {}).get(csr.name)
        age = known.age if known is not None else (csr.created, sys.maxsize)  # the watch has not reported it yet
        rows = reversed(self._open.get(source, {}).values())  # the newest ones, so that a flood costs little
        return next((one.name for one in rows if one.age > age), "")

    def recent(self, csr: SigningRequest, *, now: datetime) -> int:
        """Return how many requests its node has sent to its signer within the last hour, at most `MOST_COUNTED`."""
        rows = reversed(self._requests.get(_source(csr), {}).values())
        return sum(1 for _ in itertools.islice((one for one in rows if now - one.created < _HOUR), MOST_COUNTED))

    def certified(self, node: str, *, now: datetime) -> frozenset[str]:
        """Return the names in the newest serving certificate that was issued to a node on our approval; none once it has expired."""
        try:
            found = certificates.first(self._certificates.get(node, b""), source="the certificate")
        except CertificateError:
            return frozenset()
        if not found.not_before <= now < found.not_after or node_of(found.common_name) != node:
            return frozenset()
        return frozenset((*found.names.dns, *map(str, found.names.ips)))

    def credentials(self, node: str) -> frozenset[str]:
        """Return the fingerprints (SHA-256, hexadecimal) of the client certificates that were issued to a node while we watched."""
        return frozenset(self._credentials.get(node, ()))

    def holders(self, csr: SigningRequest) -> frozenset[tuple[str, str]]:
        """Return the signers and users for which the key of a request was used, including its own."""
        key = key_of(csr)
        return self._keys.get(key, frozenset()) if key is not None else frozenset()

    def key_holder(self, csr: SigningRequest) -> str:
        """Return another user, or another use, of the key of a request; '' if there is none."""
        key = key_of(csr)
        others = self._keys.get(key, frozenset()) - {(csr.signer, csr.username)} if key is not None else frozenset()
        return next((f"{user} for {signer}" for signer, user in sorted(others)), "")

    def _issued(self, csr: SigningRequest) -> None:
        if csr.signer == requests.KUBELET_SERVING and any(one.type == requests.APPROVED and one.reason == REASON for one in csr.conditions):
            self._put(self._certificates, node_of(csr.username), csr.certificate)
        elif csr.signer == requests.CLIENT_KUBELET and (node := node_of(csr.details().common_name)):
            with suppress(CertificateError):
                der = pem.certificates(csr.certificate, source="the certificate")[0]
                known = self._credentials.get(node, deque(maxlen=MOST_CREDENTIALS))
                self._put(self._credentials, node, known)
                if (fingerprint := hashlib.sha256(der).hexdigest()) not in known:
                    known.append(fingerprint)

    def _put(self, known: OrderedDict[str, V], node: str, value: V) -> None:
        """Note the latest value of a node; if there are too many nodes, drop the one whose latest value is the oldest."""
        known[node] = value
        known.move_to_end(node)
        while len(known) > self._most_nodes:
            known.popitem(last=False)

    def _remember(self, key: bytes, csr: SigningRequest) -> None:
        known = self._keys.get(key, frozenset())
        self._keys[key] = known if len(known) >= MOST_USES else known | {(csr.signer, csr.username)}
        self._keys.move_to_end(key)
        while len(self._keys) > MOST_KEYS:
            self._keys.popitem(last=False)


def _source(csr: SigningRequest) -> _Source:
    return csr.signer, node_of(csr.username)


def key_of(csr: SigningRequest) -> bytes | None:
    """Return the digest of a request's key; None unless the requester has shown that it has the key."""
    try:
        return hashlib.sha256(csr.details().public_key).digest() if requests.is_signed(csr) else None
    except CertificateError:
        return None
