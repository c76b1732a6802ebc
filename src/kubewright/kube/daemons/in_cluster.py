"""The credentials of the pod in which this process runs.

They are the service account that the kubelet mounts (client-go v0.36: rest.InClusterConfig). The kubelet writes a new
token long before the old one expires. As in client-go, the file is read again each minute; if it is unreadable or
empty, the old token stays in use.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.masking import remember_token
from kubewright.kube.credentials import Access, BearerToken, Identity

_log = logging.getLogger(__name__)

ReadFile = Callable[[PurePosixPath], bytes | None]
DIRECTORY: Final = PurePosixPath("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN: Final = DIRECTORY / "token"
AUTHORITY: Final = DIRECTORY / "ca.crt"
REREAD: Final = 60.0
"""Seconds between two reads of the token."""


class Client(Protocol):
    """A client whose identity can be replaced: `AsyncKubeClient`."""

    async def set_identity(self, identity: Identity) -> None:
        """Use another identity from now on."""
        ...


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
            remedy="name a kubeconfig with --kubeconfig",
        )
    token = _token(read)
    if token is None:
        raise CertificateError(f"{TOKEN} is missing or empty", remedy="the pod needs automountServiceAccountToken: true")
    authority = read(AUTHORITY)
    if not authority:
        raise CertificateError(f"{AUTHORITY} is missing or empty", remedy="the pod needs automountServiceAccountToken: true")
    return Access(server=f"https://{_joined(host, port)}", ca_pem=authority, identity=token)


async def keep_token(clients: Sequence[Client], known: Identity, *, read: ReadFile) -> None:
    """Pass each new token in the file to the clients, until cancelled. `known` is the token that they have."""
    while True:
        await asyncio.sleep(REREAD)
        found = _token(read)
        if found is None:
            _log.warning("%s cannot be read: the old token is kept", TOKEN)
        elif found != known:
            for client in clients:
                await client.set_identity(found)
            known = found
            _log.info("%s was read again", TOKEN)


def _token(read: ReadFile) -> BearerToken | None:
    content = (read(TOKEN) or b"").decode("utf-8", "replace").strip()
    return BearerToken(remember_token(content)) if content and content.isascii() and content.isprintable() and " " not in content else None


def _joined(host: str, port: str) -> str:
    """Return host and port as Go's net.JoinHostPort writes them."""
    try:
        bare = ipaddress.ip_address(host).version == 4
    except ValueError:
        bare = True
    return f"{host}:{port}" if bare else f"[{host}]:{port}"
