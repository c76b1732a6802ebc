"""Request a certificate from a cluster and wait for it (client-go v0.36: util/certificate/csr)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final

from kubewright.base.encoding import decode_base64
from kubewright.base.errors import AlreadyExists, APIError, CertificateError, Unauthorized, WaitTimeout
from kubewright.base.records import dataclass, field
from kubewright.discovery import node_requests
from kubewright.kube.answers import EventType, worth_retrying
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki import certificates
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import Names
from kubewright.pki.requests import csr, request_details

WITHIN: Final = 900.0
"""Seconds for one request; the kubelet's certificate manager waits 15 minutes."""

Seen = Callable[[Object], None]
"""Called with each state of a request during the wait."""


class RequestRefused(CertificateError):
    """A request was denied, or its signer failed it.

    `verdict` is Denied or Failed, `reason` the reason of that condition.
    """

    def __init__(self, what: str, *, verdict: str, reason: str, detail: str = "", remedy: str = "") -> None:
        super().__init__(what, detail=detail, remedy=remedy)
        self.verdict = verdict
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class RequestedCertificate:
    """A certificate to request.

    Without a `name` the server generates one from `csr-`; `expiration_seconds` is only a wish, which the signer may
    ignore.
    """

    request_pem: bytes
    key_pem: bytes = field(repr=False)
    signer: str
    usages: Sequence[str]
    name: str = ""
    expiration_seconds: int | None = None

    def body(self) -> Object:
        """Return the CertificateSigningRequest."""
        spec: Object = {
            "request": base64.b64encode(self.request_pem).decode(),
            "signerName": self.signer,
            "usages": list(self.usages),
        }
        if self.expiration_seconds is not None:
            spec["expirationSeconds"] = self.expiration_seconds
        metadata = {"name": self.name} if self.name else {"generateName": "csr-"}
        return {
            "apiVersion": CERTIFICATE_SIGNING_REQUEST.api_version,
            "kind": "CertificateSigningRequest",
            "metadata": metadata,
            "spec": spec,
        }


def node_client(node_name: str, key: PrivateKey, *, named: bool = False, lifetime: int | None = None) -> RequestedCertificate:
    """The request of a node with its bootstrap token, and later when it rotates its client certificate.

    `named`: the request gets the name that a kubelet derives from its key and content, so that it is found again with
    the same key. `lifetime` is the requested lifetime in seconds.
    """
    return RequestedCertificate(
        request_pem=csr.node_client_request(node_name, key),
        key_pem=key.pem(),
        signer=csr.CLIENT_SIGNER,
        usages=csr.node_client_usages(key),
        name=_name(node_name, key, csr.node_client_usages(key)) if named else "",
        expiration_seconds=lifetime,
    )


def node_serving(
    node_name: str, key: PrivateKey, *, names: Names, named: bool = False, lifetime: int | None = None
) -> RequestedCertificate:
    """The request of a node for the certificate of its API, with the names and addresses of its Node.

    `named` and `lifetime` are as for `node_client`.
    """
    return RequestedCertificate(
        request_pem=csr.node_serving_request(node_name, key, names=names),
        key_pem=key.pem(),
        signer=csr.SERVING_SIGNER,
        usages=csr.node_serving_usages(key),
        name=_name(node_name, key, csr.node_serving_usages(key)) if named else "",
        expiration_seconds=lifetime,
    )


def _name(node_name: str, key: PrivateKey, usages: Sequence[str]) -> str:
    return csr.digest_name(key.public_der(), common_name=csr.node_user(node_name), organizations=(csr.NODES,), usages=usages)


def verdict(found: Mapping[str, Any], *, uid: str) -> bytes | None:
    """Return the issued certificate of a request as PEM; None if it has not been issued yet, even if the request is approved.

    Raises RequestRefused if the request was denied or has failed, CertificateError if another request has its name.
    """
    metadata, status = found.get("metadata") or {}, found.get("status") or {}
    name = metadata.get("name", "")
    if metadata.get("uid") != uid:
        raise _deleted_error(name)
    if (refused := node_requests.refusal(found)) is not None:
        raise RequestRefused(refused.what, verdict=refused.verdict, reason=refused.reason, detail=refused.words, remedy=refused.remedy)
    content = status.get("certificate")
    if not is_approved(found) or not content:
        return None
    try:
        return decode_base64(content)
    except ValueError as error:
        raise CertificateError(f"the certificate of request {name} is not base64", remedy="see which signer wrote it") from error


def is_approved(found: Mapping[str, Any]) -> bool:
    """Whether a request is approved; it then waits for its signer."""
    return any(row.get("type") == "Approved" for row in (found.get("status") or {}).get("conditions") or ())


async def ask(api: AsyncKubeAPI, wanted: RequestedCertificate) -> Object:
    """Make a request, or find the one of this name that we made before.

    Returns the CertificateSigningRequest. Raises CertificateError if the name belongs to another's request, and the
    API's error if the request cannot be created.
    """
    try:
        return await api.create(wanted.body())
    except AlreadyExists:
        if not wanted.name:
            raise
    found = await api.get(CERTIFICATE_SIGNING_REQUEST, wanted.name)
    if not _is_ours(found, wanted):
        raise CertificateError(
            f"certificate request {wanted.name} was not made by this node",
            detail="its key, subject, signer or names differ from ours",
            remedy="a new one is made, with a new key",
        )
    return found


def _is_ours(found: Mapping[str, Any], wanted: RequestedCertificate) -> bool:
    """Whether a stored request is the one that we would make (kubelet: pkg/kubelet/certificate/bootstrap ensureCompatible)."""
    from kubewright.pki.requests import request_signing  # imports the X.509 library, which only a repeated request needs

    spec = found.get("spec") or {}
    try:
        theirs = request_details.read(decode_base64(str(spec.get("request", ""))), source="the stored request")
    except (ValueError, CertificateError):
        return False
    ours = request_details.read(wanted.request_pem)
    same = (theirs.public_key, theirs.subject, theirs.names) == (ours.public_key, ours.subject, ours.names)
    return same and spec.get("signerName") == wanted.signer and request_signing.signature_valid(theirs)


async def obtain(api: AsyncKubeAPI, wanted: RequestedCertificate, *, within: float = WITHIN, seen: Seen = lambda _: None) -> bytes:
    """Request a certificate, wait until it is issued, and return it as PEM. `seen` is called with each state.

    Raises CertificateError if the request is refused or the certificate is for another key, WaitTimeout if it is not
    decided, and the API's error if the request cannot be created.
    """
    created = await ask(api, wanted)
    name, uid = created["metadata"]["name"], created["metadata"]["uid"]
    try:
        async with asyncio.timeout(within):
            content = await _issued(api, created, wanted, name=name, uid=uid, seen=seen)
    except TimeoutError as error:
        raise _undecided(name, within) from error
    return _ours(content, wanted, name)


async def _issued(api: AsyncKubeAPI, created: Object, wanted: RequestedCertificate, *, name: str, uid: str, seen: Seen) -> bytes:
    """Watch from the moment of creation; after a gap, the informer reports the differences."""

    def failed(error: APIError) -> None:
        if ends_wait(error, wanted):
            raise error

    informer = Informer(
        api,
        CERTIFICATE_SIGNING_REQUEST,
        field_selector=f"metadata.name={name}",
        known=(created,),
        version=created["metadata"]["resourceVersion"],
        failed=failed,
    )
    seen(created)
    content = verdict(created, uid=uid)
    async with aclosing(informer.events()) as events:
        while content is None:
            event = await anext(events)
            if event.type is EventType.DELETED:
                raise _deleted_error(name)
            if event.type is not EventType.SYNCED:
                seen(event.object)
                content = verdict(event.object, uid=uid)
    return content


def _ours(content: bytes, wanted: RequestedCertificate, name: str) -> bytes:
    """Require that a certificate belongs to the key of the request."""
    return certificates.pair_of(content, wanted.key_pem, source=f"certificate request {name}").certificate_pem()


def ends_wait(error: APIError, wanted: RequestedCertificate) -> bool:
    """Whether to stop waiting for a request.

    Either waiting cannot fix the error, or the requester is unknown and cannot find the request again. A token may
    have been deleted and replaced by another, with which a named request is found again.
    """
    return not worth_retrying(error) or (isinstance(error, Unauthorized) and bool(wanted.name))


def _deleted_error(name: str) -> CertificateError:
    return CertificateError(f"certificate request {name} was deleted before it was signed", remedy="try again: a new one is made")


def _undecided(name: str, within: float) -> WaitTimeout:
    return WaitTimeout(f"certificate request {name} was not signed within {within:g} s", remedy=_who(name))


def _who(name: str) -> str:
    return f"see `kubectl describe csr {name}`: kube-controller-manager approves and signs the requests of nodes"
