"""The credentials of the pod in which this process runs.

They are the service account that the kubelet mounts (client-go v0.36: rest.InClusterConfig). The kubelet writes a new
token long before the old one expires.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.masking import remember_token
from kubewright.kube.credentials import Access, BearerToken
from kubewright.kube.daemons import identities
from kubewright.kube.daemons.identities import Client

ReadFile = Callable[[PurePosixPath], bytes | None]
DIRECTORY: Final = PurePosixPath("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN: Final = DIRECTORY / "token"
AUTHORITY: Final = DIRECTORY / "ca.crt"


def is_in_cluster(environment: Mapping[str, str]) -> bool:
    """Whether this process runs in a pod, according to the environment."""
    return bool(environment.get("KUBERNETES_SERVICE_HOST") and environment.get("KUBERNETES_SERVICE_PORT"))


def in_cluster_access(environment: Mapping[str, str], *, read: ReadFile) -> Access:
    """Return the access of this pod's service account.

    Raises UsageError outside a pod, and CertificateError if the token or the CA certificate is missing. Without a CA
    certificate, client-go would trust the machine's CAs; here a cluster is trusted only with its own CA.
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not host or not port:
        raise UsageError(
            "this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set",
            remedy="pass a kubeconfig with --kubeconfig",
        )
    token = _token(read)
    authority = read(AUTHORITY)
    if not authority:
        raise CertificateError(f"{AUTHORITY} is missing or empty", remedy="the pod needs automountServiceAccountToken: true")
    return Access(server=f"https://{_joined(host, port)}", ca_pem=authority, identity=token)


async def keep_token(clients: Sequence[Client], known: Access, *, read: ReadFile) -> None:
    """Pass each new token in the file to the clients, until cancelled. `known` is the access that they have."""
    await identities.keep(clients, known, source=TOKEN, read=lambda: _token(read))


def _token(read: ReadFile) -> BearerToken:
    content = (read(TOKEN) or b"").decode("utf-8", "replace").strip()
    if not content or not content.isascii() or not content.isprintable() or " " in content:
        raise CertificateError(f"{TOKEN} is missing or empty", remedy="the pod needs automountServiceAccountToken: true")
    return BearerToken(remember_token(content))


def _joined(host: str, port: str) -> str:
    """Return host and port as Go's net.JoinHostPort writes them."""
    try:
        bare = ipaddress.ip_address(host).version == 4
    except ValueError:
        bare = True
    return f"{host}:{port}" if bare else f"[{host}]:{port}"
