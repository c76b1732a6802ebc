"""A CertificateSigningRequest as a value, and the meaning of its conditions (kube-controller-manager v1.36: pkg/controller/certificates)."""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.encoding import decode_base64
from kubewright.base.records import dataclass, field
from kubewright.kube.core import Object
from kubewright.pki.requests import request_details, request_signing
from kubewright.pki.requests.request_details import RequestDetails
from kubewright.tokens.secrets import parse_moment

APPROVED: Final = "Approved"
DENIED: Final = "Denied"
FAILED: Final = "Failed"

CLIENT_KUBELET: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
CLIENT: Final = "kubernetes.io/kube-apiserver-client"
LEGACY_UNKNOWN: Final = "kubernetes.io/legacy-unknown"


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """There is nothing to do."""

    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Retry:
    """The request cannot be processed now: retry with growing pauses.

    `expected` marks cases that are no fault.
    """

    reason: str
    expected: bool = False


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition. `updated` is None if it was never set."""

    type: str
    status: str = "True"
    reason: str = ""
    message: str = ""
    updated: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SigningRequest:
    """A CertificateSigningRequest. `certificate` is empty until it is signed.

    `request` is the PEM text that was sent; if it is too large, only the part that proves this.
    """

    name: str
    signer: str
    request: bytes = field(repr=False)
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)
    usages: tuple[str, ...] = ()
    expiration_seconds: int | None = None
    conditions: tuple[Condition, ...] = ()
    certificate: bytes = field(repr=False, default=b"")
    created: datetime | None = None

    @property
    def approved(self) -> bool:
        """Whether it is approved and not denied."""
        return self.has(APPROVED) and not self.has(DENIED)

    @property
    def decided(self) -> bool:
        """Whether it has been approved or denied."""
        return self.has(APPROVED) or self.has(DENIED)

    @property
    def failed(self) -> bool:
        """Whether its signer has failed it: only a condition with status True, or without a status, counts."""
        return any(one.type == FAILED and one.status in {"", "True"} for one in self.conditions)

    @property
    def state(self) -> str:
        """The state as kubectl shows it: `Pending`, `Approved,Issued`."""
        decided = [kind for kind in (APPROVED, DENIED, FAILED) if self.has(kind)] or ["Pending"]
        return ",".join(decided + (["Issued"] if self.certificate else []))

    def has(self, kind: str) -> bool:
        """Whether it has a condition of a type, whatever the status."""
        return any(one.type == kind for one in self.conditions)

    def details(self) -> RequestDetails:
        """Parse the certificate request. Raises CertificateError."""
        return _READ.details(self.request)


class ReadRequests:
    """Caches parsed requests up to so many bytes of text: approver and signers look at the same one in quick succession."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = 0
        self._known: OrderedDict[bytes, tuple[int, RequestDetails]] = OrderedDict()

    def details(self, text: bytes) -> RequestDetails:
        """Return a parsed request from the cache, or parse it.

        Raises CertificateError; failures are not cached.
        """
        if len(text) > request_details.LARGEST:
            return request_details.read(text)
        digest = hashlib.sha256(text).digest()
        if digest in self._known:
            self._known.move_to_end(digest)
            return self._known[digest][1]
        found = request_details.read(text)
        self._known[digest] = len(text), found
        self._size += len(text)
        while self._size > self._most:
            self._size -= self._known.popitem(last=False)[1][0]
        return found


_READ: Final = ReadRequests(most=1 << 20)
"""Holds about a thousand requests of nodes."""
_MOST_SECONDS: Final = (1 << 31) - 1
"""`expirationSeconds` is an int32."""
_CHARACTERS: Final = 4 * (request_details.LARGEST // 3 + 2)
"""More characters of base64 than this exceed the size limit of a request."""


_SIGNED: Final[OrderedDict[bytes, bool]] = OrderedDict()
_MOST_SIGNED: Final = 10_000
"""Verified signatures that are remembered, by the digest of the request: 1.5 MB. An approval checks each several times."""


def is_signed(csr: SigningRequest) -> bool:
    """Whether a request is signed with the key that it is for. Raises CertificateError for one that cannot be read."""
    digest = hashlib.sha256(csr.request).digest()
    found = _SIGNED.get(digest)
    if found is None:
        found = _SIGNED[digest] = request_signing.signature_valid(csr.details())
        if len(_SIGNED) > _MOST_SIGNED:
            _SIGNED.popitem(last=False)
    return found


def read(csr: Mapping[str, Any]) -> SigningRequest:
    """Read an object of the API, or of a file. A malformed field counts as missing."""
    metadata, spec, status = (untyped.mapping(csr.get(part)) for part in ("metadata", "spec", "status"))
    seconds = spec.get("expirationSeconds")
    return SigningRequest(
        name=str(metadata.get("name") or ""),
        signer=str(spec.get("signerName") or ""),
        request=_bytes(spec.get("request"), most=_CHARACTERS),
        username=str(spec.get("username") or ""),
        uid=str(spec.get("uid") or ""),
        groups=untyped.texts(spec.get("groups")),
        extra={str(name): untyped.texts(values) for name, values in untyped.mapping(spec.get("extra")).items()},
        usages=untyped.texts(spec.get("usages")),
        expiration_seconds=seconds if isinstance(seconds, int) and abs(seconds) <= _MOST_SECONDS else None,
        conditions=tuple(_condition(one) for one in untyped.mappings(status.get("conditions"))),
        certificate=_bytes(status.get("certificate")),
        created=moment(metadata.get("creationTimestamp")),
    )


def with_condition(csr: Object, condition: Mapping[str, str]) -> Object:
    """Return the object with one more condition."""
    status = csr.get("status") or {}
    return {**csr, "status": {**status, "conditions": [*(status.get("conditions") or ()), condition]}}


def with_certificate(csr: Object, certificate: bytes) -> Object:
    """Return the object with its certificate."""
    return {**csr, "status": {**(csr.get("status") or {}), "certificate": base64.b64encode(certificate).decode()}}


def moment(text: object) -> datetime | None:
    """Parse a time of the API; None for none."""
    return parse_moment(text) if isinstance(text, str) else None


def _condition(found: Mapping[str, Any]) -> Condition:
    return Condition(
        type=str(found.get("type") or ""),
        status=str(found.get("status") or ""),
        reason=str(found.get("reason") or ""),
        message=str(found.get("message") or ""),
        updated=moment(found.get("lastUpdateTime")),
    )


def _bytes(value: object, *, most: int | None = None) -> bytes:
    try:
        return decode_base64(value[:most]) if isinstance(value, str) else b""
    except ValueError:
        return b""
