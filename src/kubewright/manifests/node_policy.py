"""The NodeApprovalPolicy of a cluster in its ConfigMap: which addresses its control planes have, and which names no node may have. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats, node_approval
from kubewright.apis.kubeadm.types import Configuration, NodeRegistration
from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.base.errors import DocumentError
from kubewright.manifests import pods

NAME: Final = "kubewright-node-policy"
KEY: Final = "policy.yaml"
LOCATION: Final = f"configmap:{pods.NAMESPACE}/{NAME}"
"""The value of `--node-policy` for it."""
IMAGE: Final = "controllers.kubewright/image"
"""The annotation with the image of the approver."""
_NODE_IP: Final = "node-ip"

Nodes = Mapping[str, Sequence[str]]
"""Addresses by the name of their node."""


def of_cluster(configuration: Configuration, nodes: Nodes) -> str:
    """Return the policy of a new cluster, which lists these nodes."""
    policy = {
        "apiVersion": node_approval.API_VERSION,
        "kind": node_approval.KIND,
        "sources": [{"file": {"nodes": _rows(nodes)}}],
        "reserved": reserved(configuration),
        "clusterDomain": configuration.cluster.networking.dns_domain,
    }
    return yaml.dump({key: value for key, value in policy.items() if value})


def with_nodes(text: str, nodes: Nodes) -> str:
    """Return a policy that lists these nodes as well; the text itself if it lists them all, or some other rows with these names.

    Their names and addresses are no longer reserved. Raises DocumentError for a text that is not a policy.
    """
    policy = yaml.load(text, source=NAME)
    if not isinstance(policy, dict) or policy.get("kind") != node_approval.KIND:
        raise DocumentError(
            f"the ConfigMap {pods.NAMESPACE}/{NAME} does not contain a {node_approval.KIND}", remedy=f"correct its key {KEY}"
        )
    sources = list(policy.get("sources") or ())
    file = next((one for one in sources if isinstance(one, dict) and isinstance(one.get("file"), dict)), None)
    known = {row.get("node") for row in (file or {"file": {}})["file"].get("nodes") or () if isinstance(row, dict)}
    missing = {name: addresses for name, addresses in nodes.items() if name not in known}
    if not missing:
        return text
    if file is None:
        file = {"file": {}}
        sources.insert(0, file)
    file["file"]["nodes"] = [*_rows(missing), *(file["file"].get("nodes") or ())]  # the first row that matches counts
    own = {*missing, *(address for addresses in missing.values() for address in addresses)}
    kept = [one for one in policy.get("reserved") or () if one not in own]
    return yaml.dump({key: value for key, value in {**policy, "sources": sources, "reserved": kept}.items() if value})


def config_map(text: str, *, image: str = "") -> dict[str, Any]:
    """Return the ConfigMap with a policy. `image` is that of the approver, which further control planes run too."""
    metadata: dict[str, Any] = {"name": NAME, "namespace": pods.NAMESPACE}
    if image:
        metadata["annotations"] = {IMAGE: image}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: text}}


def reserved(configuration: Configuration) -> list[str]:
    """Return the names and addresses of the API servers and etcd, without those of this node itself."""
    cluster, init = configuration.cluster, configuration.init
    endpoint = cluster.control_plane_endpoint
    found = [*([formats.host_port(endpoint)[0]] if endpoint else []), *cluster.api_server.cert_sans]
    if cluster.etcd.external is not None:
        found += [urlsplit(endpoint).hostname or "" for endpoint in cluster.etcd.external.endpoints]
    own = {"", init.node_registration.name, init.local_api_endpoint.advertise_address}
    return sorted({name for name in found if name not in own and not name.startswith("*")})


def addresses_of(registration: NodeRegistration, detected: Detected, advertised: str) -> list[str]:
    """Return the addresses that the kubelet of a control plane reports.

    They are those of `--node-ip`, else the address of the default route; and the one of its API server.
    """
    given = [one.value for one in registration.kubelet_extra_args if one.name == _NODE_IP]
    reported = given[-1].split(",") if given else [detected.default_ipv4 or "", detected.default_ipv6 or ""]
    return list(dict.fromkeys(one for one in (advertised, *reported) if formats.address(one) is not None))


def _rows(nodes: Nodes) -> list[dict[str, Any]]:
    return [{"node": name, "addresses": list(addresses)} for name, addresses in nodes.items()]
