"""The etcd of a cluster whose members are static pods of its control planes: its endpoints, and an authorized client.

Source: kubeadm v1.36: util/etcd/etcd.go.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.machine import Addresses, url
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CertificateError, ServerError, TooManyRequests, Unreachable
from kubewright.base.wait import Condition, Failed, retry
from kubewright.etcd.api import PASSING, Credentials
from kubewright.etcd.client import EtcdClient
from kubewright.host.readers import FileReader
from kubewright.kube.answers import persist
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import POD
from kubewright.manifests.static_pods import CLIENT_URLS

NAMESPACE: Final = "kube-system"
SELECTOR: Final = "component=etcd,tier=control-plane"
QUORUM_REMEDY: Final = "make sure that most of the other control planes run, and that this machine reaches their ports 2379 and 2380; then run the same command again"
"""The remedy if etcd keeps a joining machine waiting: it agrees to nothing without most of its members."""

_CLIENT: Final = "healthcheck-client"


def patient(condition: Condition) -> Condition:
    """Return a condition that continues to wait if etcd does not answer a request: kubeadm repeats each one (v1.36: util/etcd/etcd.go)."""

    def look() -> str | None:
        try:
            return condition()
        except (*PASSING, Unreachable) as error:
            return str(error)

    return look


def peer_url(addresses: Addresses) -> str:
    """Return the peer URL of a machine's member, which identifies the member."""
    return url(addresses.advertise, addresses.ports.etcd_peer)


def client_url(addresses: Addresses) -> str:
    """Return the client URL of a machine's member."""
    return url(addresses.advertise, addresses.ports.etcd_client)


def endpoints(api: KubeAPI) -> list[str]:
    """Return the client URLs of the members, from their pods.

    Raises APIError if there are no pods, or one has no URL.
    """
    found = []
    for pod in _pods(api):
        if not (urls := advertised(pod)):
            raise APIError(
                f"the pod {NAMESPACE}/{pod['metadata'].get('name', '')} has no address of its etcd",
                detail=f"it has no annotation {CLIENT_URLS}",
                remedy="write its manifest again: init phase etcd local, on its machine",
            )
        found += urls
    if found:
        return list(dict.fromkeys(found))
    raise APIError(
        "no pod of etcd is known to the cluster",
        detail=f"looked for pods of {NAMESPACE} with the labels {SELECTOR}",
        remedy="make sure that the kubelets of the control planes run: they report their static pods to the cluster",
    )


def by_node(api: KubeAPI) -> dict[str, str]:
    """Return a client URL of each member, by the Node of its pod; without those whose pods have none."""
    return {str(pod["spec"].get("nodeName", "")): urls[0] for pod in _pods(api) if (urls := advertised(pod))}


def advertised(pod: Mapping[str, Any]) -> list[str]:
    """Return the client URLs of the member in a pod."""
    urls = (pod["metadata"].get("annotations") or {}).get(CLIENT_URLS, "")
    return [one for one in str(urls).split(",") if one]


def _pods(api: KubeAPI) -> list[Object]:
    return list(api.list(POD, NAMESPACE, label_selector=SELECTOR))


def client(urls: list[str], *, pki: PurePosixPath, files: FileReader, clock: Clock) -> EtcdClient:
    """Return a client with the certificate for maintaining etcd. Raises CertificateError if a file is missing."""
    names = ("ca.crt", f"{_CLIENT}.crt", f"{_CLIENT}.key")
    paths = [pki / "etcd" / name for name in names]
    contents = [files.read(path) for path in paths]
    missing = [str(path) for path, content in zip(paths, contents, strict=True) if content is None]
    if missing:
        raise CertificateError(
            "etcd requires a client certificate, and this machine has none",
            detail=f"missing: {', '.join(missing)}",
            remedy="create it with the phase control-plane-prepare certs of join, or with init phase certs",
        )
    ca, certificate, key = (content or b"" for content in contents)
    return EtcdClient(urls, credentials=Credentials(ca=ca, certificate=certificate, key=key), clock=clock)


def connect(
    api: KubeAPI,
    *,
    pki: PurePosixPath,
    files: FileReader,
    clock: Clock,
    api_within: float,
    within: float,
    follow: bool = True,
    failed: Failed | None = None,
) -> EtcdClient:
    """Find the members through their pods, and return a client for all those in etcd's own list. The caller closes it.

    Both are retried: the cluster for `api_within` seconds, etcd for `within`. With `follow` off, the client uses the
    endpoints from the pods. `failed` is called after failed attempts. Raises APIError, CertificateError.
    """
    urls = _endpoints(api, clock=clock, within=api_within, failed=failed)
    made = client(urls, pki=pki, files=files, clock=clock)
    if follow:
        try:
            ask = functools.partial(made.members, agreed=False)
            made.follow(retry(ask, clock=clock, on=(*PASSING, Unreachable), within=within, failed=failed))
        except BaseException:
            made.close()
            raise
    return made


def _endpoints(api: KubeAPI, *, clock: Clock, within: float, failed: Failed | None) -> list[str]:
    """Return `endpoints`. Raises APIError that mentions etcd's quorum, because the API server's message does not."""
    try:
        return persist(lambda: endpoints(api), clock=clock, within=within, failed=failed)
    except (ServerError, TooManyRequests, Unreachable) as error:
        raise APIError(
            "the cluster does not contain the addresses of its etcd members",
            detail=str(error),
            remedy="make sure that most of the other control planes run: without them etcd does not answer; then run the same command again",
        ) from error
