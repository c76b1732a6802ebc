"""Certificate signing requests (PKCS#10) as a kubelet creates them.

`request_details` parses them (kubelet v1.36: pkg/kubelet/certificate).
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import CertificateError
from kubewright.base.messages import quoted
from kubewright.pki import issuing
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import NO_NAMES, Names

if TYPE_CHECKING:
    from cryptography.hazmat.primitives import hashes

NODES: Final = "system:nodes"
CLIENT_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
SERVING_SIGNER: Final = "kubernetes.io/kubelet-serving"


def node_user(node_name: str) -> str:
    """Return the user name of a node, which is also the common name of its certificates."""
    return f"system:node:{node_name}"


def node_client_request(node_name: str, key: PrivateKey) -> bytes:
    """Create the request for a node's client certificate, as PEM."""
    return request(key, common_name=node_user(node_name), organizations=(NODES,))


def node_serving_request(node_name: str, key: PrivateKey, *, names: Names) -> bytes:
    """Create the request for a kubelet's serving certificate, as PEM.

    Names and addresses are sorted as text, as in the kubelet. Raises CertificateError without at least one address: no
    signer accepts it (Kubernetes 1.31).
    """
    if not names.ips:
        raise CertificateError(f"node {node_name} has no address for a serving certificate", remedy="wait until its Node has one")
    sorted_names = Names(dns=tuple(sorted(set(names.dns))), ips=tuple(sorted(set(names.ips))))
    return request(key, common_name=node_user(node_name), organizations=(NODES,), names=sorted_names)


def request(
    key: PrivateKey, *, common_name: str, organizations: tuple[str, ...] = (), names: Names = NO_NAMES, plain_digest: bool = False
) -> bytes:
    """Create a request with only a subject and alternative names, as PEM.

    Raises CertificateError for names that it cannot contain. `plain_digest`: SHA-256 for RSA keys of any size, as in
    kubeadm's requests; the kubelet's use larger digests for larger keys.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    try:
        builder = x509.CertificateSigningRequestBuilder(issuing.subject_of(common_name, organizations))
        if names:
            builder = builder.add_extension(issuing.san_extension(names), critical=False)
        digest = key.signature_hash() if plain_digest else _digest(key)
        return builder.sign(key.native, digest).public_bytes(Encoding.PEM)  # type: ignore[arg-type]
    except (ValueError, TypeError) as error:
        raise CertificateError(
            f"cannot create a certificate request for {quoted(common_name)}", detail=str(error), remedy="correct the names"
        ) from error


def _digest(key: PrivateKey) -> hashes.HashAlgorithm:
    """Return the digest: requests by large RSA keys use larger ones (client-go: util/certificate/csr, util/cert)."""
    from cryptography.hazmat.primitives import hashes

    large = {3072: hashes.SHA384(), 4096: hashes.SHA512()}
    return large.get(key.native.key_size, key.signature_hash())


def node_client_usages(key: PrivateKey) -> list[str]:
    """Return `spec.usages` of a client request; RSA keys add `key encipherment` in the middle."""
    return _usages(key, "client auth")


def node_serving_usages(key: PrivateKey) -> list[str]:
    """Return `spec.usages` of a serving request."""
    return _usages(key, "server auth")


def _usages(key: PrivateKey, purpose: str) -> list[str]:
    middle = ["key encipherment"] if key.kind.startswith("RSA") else []
    return ["digital signature", *middle, purpose]


def digest_name(public_key: bytes, *, common_name: str, organizations: Sequence[str], usages: Sequence[str]) -> str:
    """Return the object name that a waiting kubelet gives its request: the same key and content give the same name.

    `public_key` is DER SubjectPublicKeyInfo (kubelet: pkg/kubelet/certificate/bootstrap).
    """
    from cryptography.hazmat.primitives import hashes

    digest = hashes.Hash(hashes.SHA512_256())
    for part in (public_key, common_name.encode(), *(one.encode() for one in organizations), *(one.encode() for one in usages)):
        digest.update(_unpadded(part) + b"|")
    return f"node-csr-{_unpadded(digest.finalize()).decode()}"


def _unpadded(value: bytes) -> bytes:
    return base64.urlsafe_b64encode(value).rstrip(b"=")
