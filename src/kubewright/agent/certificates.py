"""When a certificate has to be replaced, whether it is the right one, and what a request for one has come to. Pure.

The rules are those of client-go's certificate manager and certificate request helper (v1.36).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final

from kubewright.base.errors import CertificateError
from kubewright.base.randomness import Random
from kubewright.pki import csr

EARLIEST: Final = 0.7
SPREAD: Final = 0.2

_REFUSALS: Final = ("Denied", "Failed")


def rotation_point(*, not_before: datetime, not_after: datetime, random: Random) -> datetime:
    """Return when to rotate: after 70 to 90 % of the certificate's whole span, drawn anew each time."""
    return not_before + (not_after - not_before) * (EARLIEST + SPREAD * random.uniform())


def satisfies(*, common_name: str, organizations: Collection[str], node_name: str) -> bool:
    """Whether a certificate's subject is what we would ask for: the node's user, and at least the nodes' group."""
    return common_name == csr.node_user(node_name) and csr.NODES in organizations


def client_request(request: bytes, usages: list[str]) -> dict[str, Any]:
    """Return the CertificateSigningRequest for a node's client certificate; the server makes its name."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {"request": base64.b64encode(request).decode(), "signerName": csr.CLIENT_SIGNER, "usages": usages},
    }


def issued(found: Mapping[str, Any], *, uid: str) -> bytes | None:
    """Return the certificate of a request, as PEM; None while it has to be waited for.

    Approved alone is not enough. Raises CertificateError if the request was denied, has failed, or is another one of the same name.
    """
    name = found["metadata"]["name"]
    if found["metadata"].get("uid") != uid:
        raise lost(name)
    conditions = {row["type"]: row for row in found.get("status", {}).get("conditions") or ()}
    for kind in _REFUSALS:
        if kind in conditions:
            raise _refused(name, kind, conditions[kind])
    content = found.get("status", {}).get("certificate")
    if "Approved" not in conditions or not content:
        return None
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CertificateError(f"the certificate of request {name} is not base64", remedy="see which signer wrote it") from error


def lost(name: str) -> CertificateError:
    """Return the error for a request that somebody deleted, or replaced by one of the same name."""
    return CertificateError(f"certificate request {name} was deleted before it was signed", remedy="a new one is made by itself")


def _refused(name: str, kind: str, condition: Mapping[str, Any]) -> CertificateError:
    words = ": ".join(part for part in (condition.get("reason"), condition.get("message")) if part)
    return CertificateError(
        f"certificate request {name} was {kind.lower()}" if kind == "Denied" else f"certificate request {name} has failed",
        detail=words,
        remedy=f"see `kubectl describe csr {name}`, and who approves and signs requests in this cluster",
    )
