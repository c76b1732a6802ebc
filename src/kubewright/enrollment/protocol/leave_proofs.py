"""A node's proof that it leaves.

It is an annotation of its Node, signed with the key of the client certificate that the hub issued. Pure.

A label would prove nothing, because others than the node may write to Nodes. A proof is `CERTIFICATE SIGNATURE`, both
base64: the hub stores the fingerprint of each certificate that it has issued, not the certificate. The signed text
contains the Node's name, its uid and the certificate, so a proof is valid for one Node object and one join: a node that
leaves and joins again has another certificate.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from typing import Final

from kubewright.apis.join_records import IssuedCertificate
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.pki import certificates
from kubewright.pki.certificates import Pair

_PURPOSE: Final = "kubewright: this node leaves, 1"
_LONGEST: Final = 8192
"""Characters of a proof; one with RSA-2048 has about 1,800."""
_CLIENT: Final = "client"


@dataclass(frozen=True, kw_only=True)
class LeaveProof:
    """A certificate, DER, and the signature by its key."""

    certificate: bytes
    signature: bytes

    @property
    def text(self) -> str:
        """Its form in the annotation."""
        return " ".join(base64.b64encode(part).decode() for part in (self.certificate, self.signature))


def prove(node: str, uid: str, given: Pair) -> LeaveProof:
    """Create the proof that a node leaves.

    `uid` is that of its Node, `given` the client certificate from the hub, with its key.
    """
    der = given.leaf.der
    return LeaveProof(certificate=der, signature=given.key.sign(_statement(node, uid, der)))


def read(text: str) -> LeaveProof | None:
    """Parse an annotation, None for one without a proof."""
    words = text.split(" ") if len(text) <= _LONGEST else []
    try:
        certificate, signature = (base64.b64decode(word, validate=True) for word in words)
    except (ValueError, binascii.Error):
        return None
    return LeaveProof(certificate=certificate, signature=signature)


def is_proven(found: LeaveProof, node: str, uid: str, *, issued: Iterable[IssuedCertificate]) -> bool:
    """Whether the holder of a client certificate issued to this node has signed that the Node with this uid leaves."""
    fingerprint = hashlib.sha256(found.certificate).hexdigest()
    if fingerprint not in {one.fingerprint for one in issued if one.purpose == _CLIENT}:
        return False
    try:
        certificate = certificates.read(found.certificate, source="the proof")
    except CertificateError:
        return False
    return certificate.has_signed(_statement(node, uid, found.certificate), found.signature)


def _statement(node: str, uid: str, certificate: bytes) -> bytes:
    return "\n".join((_PURPOSE, node, uid, hashlib.sha256(certificate).hexdigest())).encode()
