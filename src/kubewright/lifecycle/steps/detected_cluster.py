"""Facts about a machine's cluster from the machine's files: its certificate directory, whether it has its own etcd.

Only reads.

kubeadm reads them from the cluster, which may be gone. Here the machine's own files are read: its manifests, whatever
wrote them, and our record.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kubewright.apis.machine import Layout, url
from kubewright.base import untyped, yaml
from kubewright.base.errors import DocumentError
from kubewright.base.records import dataclass
from kubewright.host.failures import expected
from kubewright.host.readers import FileReader
from kubewright.host.seam import Host
from kubewright.lifecycle.steps import component_versions
from kubewright.manifests.pods import NAMESPACE

ETCD: Final = "etcd"
LEARNER: Final = "etcd-learner"
API_SERVER: Final = "kube-apiserver"
_CLIENTS: Final = 2379
_PEERS: Final = 2380
_LOOPBACK: Final = ("127.", "[::1]", "localhost")
Tree = Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class StaticPod:
    """A readable manifest. `body` is its content."""

    body: Mapping[str, object]

    def argument(self, name: str) -> str:
        """Return the last value of an argument `--NAME=VALUE` of its first container, '' without it."""
        container = component_versions.first_container(self.body)
        words = [word for key in ("command", "args") for word in untyped.texts(container.get(key))]
        found = [word.partition("=")[2] for word in words if word.startswith(f"--{name}=")]
        return found[-1] if found else ""

    def host_path(self, volume: str) -> PurePosixPath | None:
        """Return the host directory of a volume; None if it has none, or a relative one."""
        for one in map(untyped.mapping, untyped.items(self._spec.get("volumes"))):
            path = untyped.mapping(one.get("hostPath")).get("path")
            if one.get("name") == volume and isinstance(path, str) and path.startswith("/"):
                return PurePosixPath(path)
        return None

    def leader_lease(self, component: str) -> tuple[str, str] | None:
        """Return the name and namespace of the Lease with which it elects a leader as this component; None if it elects none."""
        if self.argument("leader-elect") == "false":
            return None
        name, namespace = (self.argument(f"leader-elect-resource-{one}") for one in ("name", "namespace"))
        return name or component, namespace or NAMESPACE

    @property
    def image_tag(self) -> str:
        """The image tag of its first container, '' without one; a following digest is ignored."""
        return component_versions.image_tag(self.body)

    @property
    def user(self) -> int | None:
        """The ID of the user that it runs as, None if it is not set."""
        found = untyped.mapping(self._spec.get("securityContext")).get("runAsUser")
        return found if isinstance(found, int) else None

    @property
    def _spec(self) -> Mapping[str, object]:
        return untyped.mapping(self.body.get("spec"))


def read_static_pod(files: FileReader, path: PurePosixPath) -> StaticPod | None:
    """Read a manifest; None if there is none. Raises DocumentError, naming the file, for one that is not a Pod."""
    content = files.read(path)
    if content is None:
        return None
    value = yaml.load(content, source=str(path))
    if not isinstance(value, dict) or value.get("kind") != "Pod":
        raise DocumentError(f"{path} is not the manifest of a Pod", remedy="restore it, or remove it")
    return StaticPod(body=value)


@dataclass(frozen=True, kw_only=True)
class Member:
    """The etcd member of this machine. `endpoints` are its and its peers' URLs, none if only the cluster knows them."""

    peer_url: str
    endpoints: tuple[str, ...] = ()


class DetectedCluster:
    """The cluster of a machine, each fact looked up once. `warnings` are about what could not be read."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._layout = host.layout
        self.warnings: list[str] = []

    @functools.cached_property
    def etcd(self) -> StaticPod | None:
        """The static pod of etcd, or the temporary one of a member during a join."""
        return self._pod(ETCD) or self._pod(LEARNER)

    @functools.cached_property
    def api_server(self) -> StaticPod | None:
        """The static pod of kube-apiserver."""
        return self._pod(API_SERVER)

    @functools.cached_property
    def record(self) -> Mapping[str, Tree]:
        """The documents, by kind, with which we created this machine; none if we did not."""
        if self._host.state(self._layout.machine_record) is None:
            return {}
        from kubewright.lifecycle import machine_record

        try:
            found = machine_record.load(self._host)
            documents = [] if found is None else yaml.load_all(found.configuration, source=str(self._layout.machine_record))
        except Exception as error:  # whatever is wrong with it, the machine is reset without it
            self.warnings.append(str(expected(error)))
            return {}
        values = [document.value for document in documents]
        return {str(value.get("kind")): value for value in values if isinstance(value, dict)}

    @property
    def layout(self) -> Layout:
        """The layout with the paths that the cluster's configuration has changed."""
        cluster = self.record.get("ClusterConfiguration", {})
        volume = self.api_server.host_path("k8s-certs") if self.api_server else None
        pki = _text(cluster, "certificatesDir") or str(volume or self._layout.pki)
        data = self.etcd.host_path("etcd-data") if self.etcd else None
        return self._layout.at(pki=pki, etcd_data=str(data) if data else _text(cluster, "etcd", "local", "dataDir") or None)

    @property
    def member(self) -> Member | None:
        """The etcd member of this machine; None if etcd is external, or not known to be ours."""
        if self.etcd is not None:
            peer_url = self.etcd.argument("initial-advertise-peer-urls").partition(",")[0] or self._peer_url
            return Member(peer_url=peer_url, endpoints=_endpoints(self.etcd, own=peer_url)) if peer_url else None
        if not self._says_local_etcd:
            return None
        return Member(peer_url=self._peer_url) if self._peer_url else None

    @property
    def has_broken_etcd(self) -> bool:
        """Whether the manifest of etcd cannot be read, so that its data directory is unknown."""
        return self.etcd is None and self._host.state(self._layout.manifest(ETCD)) is not None

    @property
    def rootless(self) -> bool:
        """Whether components run as their own users (feature gate RootlessControlPlane)."""
        gates = self.record.get("ClusterConfiguration", {}).get("featureGates")
        enabled = isinstance(gates, dict) and gates.get("RootlessControlPlane") is True
        return enabled or bool(self.api_server and self.api_server.user)

    @property
    def _says_local_etcd(self) -> bool:
        """Whether this machine has, or was to have, a member without a manifest: after an interrupted join or reset.

        A control plane with etcd on this machine has its certificates; one with an external etcd does not.
        """
        if self.has_broken_etcd or self._host.state(self.layout.certificate("etcd/server")) is None:
            return False
        cluster = self.record.get("ClusterConfiguration", {}).get("etcd")
        if isinstance(cluster, dict) and cluster:
            return "external" not in cluster
        if self.api_server is None:
            return "controlPlane" in self.record.get("JoinConfiguration", {})
        servers = [_parts(one).netloc for one in self.api_server.argument("etcd-servers").split(",")]
        return all(server.startswith(_LOOPBACK) for server in servers)

    @property
    def _peer_url(self) -> str:
        join = _text(self.record.get("JoinConfiguration", {}), "controlPlane", "localAPIEndpoint", "advertiseAddress")
        init = _text(self.record.get("InitConfiguration", {}), "localAPIEndpoint", "advertiseAddress")
        address = join or init or (self.api_server.argument("advertise-address") if self.api_server else "")
        return url(address, _PEERS) if address else ""

    def _pod(self, name: str) -> StaticPod | None:
        try:
            return read_static_pod(self._host, self._layout.manifest(name))
        except Exception as error:  # whatever is wrong with it, the machine is reset without it
            self.warnings.append(str(expected(error)))
            return None


def _endpoints(etcd: StaticPod, *, own: str) -> tuple[str, ...]:
    """Return the member's client URLs, its loopback address first, and those of its peers, with kubeadm's port."""
    mine = [one for one in etcd.argument("listen-client-urls").split(",") if one]
    peers = [member.partition("=")[2] for member in etcd.argument("initial-cluster").split(",")]
    others = [url(host, _CLIENTS) for peer in peers if peer and peer != own and (host := _parts(peer).hostname)]
    return tuple(dict.fromkeys([*mine, *others]))


def _parts(text: str) -> SplitResult:
    """Return the parts of a URL, empty ones for an invalid one."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def _text(tree: object, *names: str) -> str:
    """Return the text at a path of names, '' if there is none."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, str) else ""
