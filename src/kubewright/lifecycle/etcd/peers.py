"""Finding the other members of etcd from a machine whose own member may not be running."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kubewright.apis.machine import url
from kubewright.base.errors import KubewrightError, Unreachable
from kubewright.etcd.client import EtcdClient
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle import stacked_etcd

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.etcd.this_member import ThisMember


def connect(host: Host, member: ThisMember, *, given: Sequence[str], kube: Callable[..., KubeAPI], clock: Clock) -> EtcdClient:
    """Return a client of the other members that etcd lists. The caller closes it.

    They are looked for at the URLs that were `given`; if there are none, in the list of this machine's own member, in
    its manifest, and among the pods of the cluster. Raises Unreachable with the reasons if none answers.
    """
    said: list[str] = []
    places: list[Callable[[], Sequence[str]]] = [
        lambda: _listed(host, member, clock),
        lambda: _named(member),
        lambda: _pods(host, kube),
    ]
    if given:
        places = [lambda: given]
    for urls_of in places:
        try:
            urls = [one for one in urls_of() if one not in member.client_urls]
            if urls:
                return _following(host, member, urls, clock)
        except KubewrightError as error:
            said.append(str(error))
    raise Unreachable(
        "no other member of etcd answers",
        detail="\n".join(said),
        remedy="start the other members, or pass the URL of one that answers, for example --endpoints https://10.0.0.1:2379; if all are lost:"
        " `kubewright etcd restore --from-this-member` on a machine with data",
    )


def _following(host: Host, member: ThisMember, urls: Sequence[str], clock: Clock) -> EtcdClient:
    client = stacked_etcd.client(list(urls), pki=member.layout.pki, files=host, clock=clock)
    try:
        client.follow([one for one in client.members(agreed=False) if member.peer_url not in one.peer_urls])
    except BaseException:
        client.close()
        raise
    return client


def _listed(host: Host, member: ThisMember, clock: Clock) -> Sequence[str]:
    """Return the client URLs of the others from the list of this machine's own member."""
    client = stacked_etcd.client(list(member.client_urls[:1]), pki=member.layout.pki, files=host, clock=clock)
    try:
        found = client.members(agreed=False)
    finally:
        client.close()
    return [one for other in found if member.peer_url not in other.peer_urls for one in other.client_urls]


def _named(member: ThisMember) -> Sequence[str]:
    """Return client URLs made from the peer URLs in the manifest and this member's port."""
    port = urlsplit(member.client_urls[0]).port or 0
    return [url(name, port) for peer in member.peers.values() if (name := urlsplit(peer).hostname)]


def _pods(host: Host, kube: Callable[..., KubeAPI]) -> Sequence[str]:
    """Return the client URLs from the pods of etcd, as the administrator. Raises APIError, CertificateError."""
    return stacked_etcd.endpoints(kube(load_access(host.layout.kubeconfig("admin"), read=host.read)))
