"""Certificate requests like those of joining kubelets."""

from __future__ import annotations

import base64
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from tests.bench.asking import Asking

SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
APPROVED: Final = "approved"
ISSUED: Final = "issued"

ASKING: Final = Asking(
    path="/apis/certificates.k8s.io/v1/certificatesigningrequests",
    headers=(
        ("Impersonate-User", "system:bootstrap:abcdef"),
        ("Impersonate-Group", "system:bootstrappers"),
        ("Impersonate-Group", "system:bootstrappers:kubeadm:default-node-token"),
        ("Impersonate-Group", "system:authenticated"),
    ),
    stages={APPROVED: lambda status: bool(status.get("conditions")), ISSUED: lambda status: bool(status.get("certificate"))},
)
"""The requester: kubeadm's own binding gives it permission, which the approver has to find out."""


def bodies(prefix: str, count: int) -> list[dict[str, Any]]:
    """Return requests of nodes `PREFIX-0` and so on, each with a new key, so that no request is a duplicate."""
    return [_body(f"{prefix}-{number}") for number in range(count)]


def _body(name: str) -> dict[str, Any]:
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, f"system:node:{name}"),
        ]
    )
    request = x509.CertificateSigningRequestBuilder(subject).sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    text = base64.b64encode(request.public_bytes(Encoding.PEM)).decode()
    spec = {"request": text, "signerName": SIGNER, "usages": ["digital signature", "client auth"]}
    return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}
