"""Making kubeconfig documents in kubeadm's shape: one cluster, one user, one context, keys in the order of their names."""

from __future__ import annotations

import base64

from kubewright.base.records import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EmbeddedCertificate:
    """A client certificate with its key inside the file."""

    certificate_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class CertificateFiles:
    """A client certificate and its key in files; both may be the same one."""

    certificate: str
    key: str


@dataclass(frozen=True, kw_only=True)
class BearerToken:
    """A token inside the file."""

    token: str = field(repr=False)


Credentials = EmbeddedCertificate | CertificateFiles | BearerToken


def kubeconfig_document(
    *,
    server: str,
    cluster_name: str,
    user: str,
    credentials: Credentials | None,
    ca_pem: bytes | None = None,
    ca_file: str = "",
    context: str = "",
    namespace: str = "",
) -> dict[str, object]:
    """Make a kubeconfig whose current context is its only one, `USER@CLUSTER` unless named otherwise.

    All of `ca_pem` is embedded, a bundle during a change of CA included; kubeadm keeps only its first certificate (spec 14.2).
    Without credentials the user is there and empty: anonymous.
    """
    name = context or f"{user}@{cluster_name}"
    chosen = {"cluster": cluster_name, **({"namespace": namespace} if namespace else {}), "user": user}
    return {
        "apiVersion": "v1",
        "clusters": [{"cluster": cluster_body(server, ca_pem=ca_pem, ca_file=ca_file), "name": cluster_name}],
        "contexts": [{"context": chosen, "name": name}],
        "current-context": name,
        "kind": "Config",
        "users": [{"name": user, "user": _user_body(credentials)}],
    }


def cluster_body(server: str, *, ca_pem: bytes | None = None, ca_file: str = "") -> dict[str, object]:
    """Make the entry of one cluster. Content counts more than a file, as for every client."""
    if ca_pem is not None:
        return {"certificate-authority-data": _encode(ca_pem), "server": server}
    return {**({"certificate-authority": ca_file} if ca_file else {}), "server": server}


def _user_body(credentials: Credentials | None) -> dict[str, object]:
    if isinstance(credentials, EmbeddedCertificate):
        return {"client-certificate-data": _encode(credentials.certificate_pem), "client-key-data": _encode(credentials.key_pem)}
    if isinstance(credentials, CertificateFiles):
        return {"client-certificate": credentials.certificate, "client-key": credentials.key}
    return {} if credentials is None else {"token": credentials.token}


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
