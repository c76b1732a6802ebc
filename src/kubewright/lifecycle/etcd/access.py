"""Access to etcd from the files of a machine: the endpoints of its members, and a client certificate.

Needs no API server.

A control plane with a member of its own has the certificate that kubeadm makes for maintaining etcd. One with an
external etcd has the certificate of its API server, whose manifest contains the paths and the endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CertificateError, HostError, UsageError
from kubewright.base.messages import shown_url
from kubewright.base.records import dataclass
from kubewright.etcd.api import Credentials
from kubewright.etcd.client import EtcdClient
from kubewright.host.seam import Host
from kubewright.http import proxies
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster

_CLIENT: Final = "etcd/healthcheck-client"


@dataclass(frozen=True, kw_only=True)
class EtcdFlags:
    """The user's flags: endpoints, and the directory of the certificates. Empty values are looked up on the machine."""

    endpoints: tuple[str, ...] = ()
    cert_dir: str = ""


@dataclass(frozen=True, kw_only=True)
class ClientFiles:
    """The files of a client certificate and of the CA of the servers."""

    ca: PurePosixPath
    certificate: PurePosixPath
    key: PurePosixPath


@dataclass(frozen=True, kw_only=True)
class EtcdAccess:
    """The endpoints, this machine's own first, and the client certificate; `files` is None for an etcd without TLS."""

    endpoints: tuple[str, ...]
    files: ClientFiles | None
    pki: PurePosixPath
    member: bool = False
    """Whether this machine has a member."""


def find(host: Host, given: EtcdFlags) -> EtcdAccess:
    """Find etcd through the files of a machine. Raises HostError if they do not contain its endpoints, UsageError for given ones that are no URLs."""
    require_urls(given.endpoints)
    detected = DetectedCluster(host)
    pki = PurePosixPath(given.cert_dir) if given.cert_dir else detected.layout.pki
    own = detected.member
    endpoints = given.endpoints or (own.endpoints if own else ()) or _servers(detected)
    if not endpoints:
        raise HostError(
            "the endpoints of etcd are not known on this machine",
            detail="; ".join(detected.warnings) or f"there is no manifest of etcd or kube-apiserver in {host.layout.manifests}",
            remedy="run this on a control plane, or pass etcd's client URLs with --endpoints",
        )
    plain = all(one.startswith("http:") for one in endpoints)
    return EtcdAccess(endpoints=tuple(endpoints), files=None if plain else _files(host, detected, pki), pki=pki, member=own is not None)


def require_urls(endpoints: Iterable[str]) -> None:
    """Raise UsageError for an endpoint in a flag that is not a URL, such as an address without a scheme."""
    for one in endpoints:
        try:
            proxies.origin(one)
        except UsageError as error:
            raise UsageError(
                f"--endpoints: {shown_url(one)} is not a client URL of etcd", remedy="write it like https://10.0.0.1:2379"
            ) from error


def _servers(detected: DetectedCluster) -> tuple[str, ...]:
    return tuple(one for one in detected.api_server.argument("etcd-servers").split(",") if one) if detected.api_server else ()


def _files(host: Host, detected: DetectedCluster, pki: PurePosixPath) -> ClientFiles:
    own = ClientFiles(ca=pki / "etcd/ca.crt", certificate=pki / f"{_CLIENT}.crt", key=pki / f"{_CLIENT}.key")
    if host.state(own.certificate) is not None or detected.api_server is None:
        return own
    named = [detected.api_server.argument(f"etcd-{name}") for name in ("cafile", "certfile", "keyfile")]
    ca, certificate, key = map(PurePosixPath, named)
    return ClientFiles(ca=ca, certificate=certificate, key=key) if all(named) else own


def connect(host: Host, access: EtcdAccess, *, clock: Clock) -> EtcdClient:
    """Return a client of all members that etcd lists; if none answers, of the known endpoints. The caller closes it.

    Raises CertificateError if a file of the client certificate is missing.
    """
    credentials = None if access.files is None else _credentials(host, access.files)
    client = EtcdClient(access.endpoints, credentials=credentials, clock=clock)
    try:
        client.follow(client.members(agreed=False))
    except APIError:
        return client  # every endpoint is queried again, so that the error of each is reported
    except BaseException:
        client.close()
        raise
    return client


def _credentials(host: Host, files: ClientFiles) -> Credentials:
    paths = (files.ca, files.certificate, files.key)
    contents = [(path, host.read(path)) for path in paths]
    missing = [str(path) for path, content in contents if content is None]
    if missing:
        raise CertificateError(
            "etcd requires a client certificate, and a file of it is missing",
            detail=f"missing: {', '.join(missing)}",
            remedy="run this on a control plane, or pass the directory of its certificates with --cert-dir",
        )
    ca, certificate, key = (content or b"" for _, content in contents)
    return Credentials(ca=ca, certificate=certificate, key=key)
