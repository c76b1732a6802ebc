"""The API of a cluster of machines, as its administrator reaches it from the host.

The kubeconfig on the host names the address of a running control plane, because the host does not know the machines' names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeconfig.documents import EmbeddedCertificate, kubeconfig_document
from kubewright.apis.machine import url
from kubewright.base import yaml
from kubewright.base.clock import Clock
from kubewright.base.errors import CertificateError
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_embedded_access
from kubewright.kube.retrying import RetryingKube
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members, owner
from kubewright.local.whole.documents import PORT
from kubewright.pki import kubeconfigs

_ADMIN: Final = "admin.conf"
_SETTLED: Final = 60.0
"""Seconds for the API server to accept a request while members of etcd are added and removed."""


def access(paths: ClusterPaths, cluster: ClusterRecord) -> Access:
    """Return the cluster's location and the administrator's identity.

    The file belongs to the cluster's owner, who must not gain access to files that only root may read.
    """
    with owner.acting_as(owner.of_cluster(paths)):
        return load_embedded_access(PurePosixPath(paths.admin_kubeconfig(cluster.control_plane.name)), read=Files().read)


@contextmanager
def client(paths: ClusterPaths, cluster: ClusterRecord, *, clock: Clock) -> Iterator[KubeAPI]:
    """Provide a client that retries for a minute, because the API may not answer until etcd has a leader again."""
    inner = KubeClient(access(paths, cluster))
    with closing(inner):
        yield RetryingKube(inner, clock=clock, within=_SETTLED)


def follow(paths: ClusterPaths, cluster: ClusterRecord) -> None:
    """Make the kubeconfig refer to a running control plane, after machines have been stopped or started. Needs root."""
    kubeconfig = paths.admin_kubeconfig(cluster.control_plane.name)
    with owner.acting_as(owner.of_cluster(paths)):
        text = kubeconfig.read_text(encoding="utf-8") if kubeconfig.exists() else ""
    if text:
        write(paths, cluster, text)


def write(paths: ClusterPaths, cluster: ClusterRecord, text: str) -> None:
    """Write a kubeconfig of the administrator for the host, as the owner of the cluster."""
    first = cluster.control_plane
    address = next((one.address for one in cluster.machines if members.machine_of(paths, cluster, one.name).runs), first.address)
    content = pointed(text, address)
    with owner.acting_as(owner.of_cluster(paths)):
        path = PurePosixPath(paths.admin_kubeconfig(first.name))
        Files().write(File(path=path, content=content.encode(), mode=0o600, directory_mode=0o700))


def pointed(text: str, address: str) -> str:
    """Return a kubeconfig for the host, made from the administrator's kubeconfig of a machine.

    Only its names, CA and client certificate are taken over: the machine does not decide which programs or servers its
    user's kubectl calls. Raises CertificateError for a kubeconfig without embedded certificates.
    """
    found = kubeconfigs.load(text.encode(), source=_ADMIN)
    chosen, context = kubeconfigs.resolve(found, _ADMIN), found.contexts[found.current_context]
    credentials = EmbeddedCertificate(certificate_pem=chosen.user.client_certificate_data, key_pem=chosen.user.client_key_data)
    if not (chosen.cluster.certificate_authority_data and credentials.certificate_pem and credentials.key_pem):
        raise CertificateError(
            f"{_ADMIN} of the machine has no embedded certificates", remedy="`sudo kubewright up --name CLUSTER` creates it again"
        )
    document = kubeconfig_document(
        server=url(address, PORT),
        cluster_name=context.cluster,
        user=context.user,
        credentials=credentials,
        ca_pem=chosen.cluster.certificate_authority_data,
    )
    return yaml.dump(document)
