"""How a machine reaches its cluster's etcd: where members answer clients, and a certificate that they accept. Asks no API server.

A control plane with a member of its own has the certificate that kubeadm makes for looking after etcd; one with an external etcd has that of its
API server, whose manifest says where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CertificateError, HostError
from kubewright.base.records import dataclass
from kubewright.etcd.client import EtcdClient
from kubewright.host.seam import Host
from kubewright.http import tls
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster

_CLIENT: Final = "etcd/healthcheck-client"


@dataclass(frozen=True, kw_only=True)
class EtcdFlags:
    """What the user says about etcd: endpoints, and the directory of the certificates. What is empty is found on the machine."""

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
    """Where etcd answers, this machine's own member first, and what opens it; `files` is None for an etcd without TLS."""

    endpoints: tuple[str, ...]
    files: ClientFiles | None
    pki: PurePosixPath
    member: bool = False
    """Whether this machine has a member."""


def find(host: Host, given: EtcdFlags) -> EtcdAccess:
    """Find etcd through the files of a machine. Raises HostError where nothing on it says where etcd is."""
    detected = DetectedCluster(host)
    pki = PurePosixPath(given.cert_dir) if given.cert_dir else detected.layout.pki
    own = detected.member
    endpoints = given.endpoints or (own.endpoints if own else ()) or _servers(detected)
    if not endpoints:
        raise HostError(
            "nothing on this machine says where etcd is",
            detail="; ".join(detected.warnings) or f"there is no manifest of etcd or kube-apiserver in {host.layout.manifests}",
            remedy="run this on a control plane, or name where etcd answers clients with --endpoints",
        )
    plain = all(one.startswith("http:") for one in endpoints)
    return EtcdAccess(endpoints=tuple(endpoints), files=None if plain else _files(host, detected, pki), pki=pki, member=own is not None)


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
    """Return a client for all members: those that etcd lists, or what is known of them where none answers. The caller closes it.

    Raises CertificateError where a file of the client certificate is missing.
    """
    context = None if access.files is None else tls.client_context(*_contents(host, access.files))
    client = EtcdClient(access.endpoints, context=context, clock=clock)
    try:
        client.follow(client.members(agreed=False))
    except APIError:
        return client  # every endpoint is asked again, and says what is wrong with it
    except BaseException:
        client.close()
        raise
    return client


def _contents(host: Host, files: ClientFiles) -> Sequence[bytes]:
    paths = (files.ca, files.certificate, files.key)
    contents = [(path, host.read(path)) for path in paths]
    missing = [str(path) for path, content in contents if content is None]
    if missing:
        raise CertificateError(
            "etcd requires a client certificate, and a file of it is missing",
            detail=f"missing: {', '.join(missing)}",
            remedy="run this on a control plane, or name the directory of its certificates with --cert-dir",
        )
    return [content for _, content in contents if content is not None]
