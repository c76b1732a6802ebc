"""The approver of kubelets' serving certificates on a control plane: its policy and permissions in the cluster, and its static pod."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import DocumentError, NotFound
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.steps import cluster_objects
from kubewright.lifecycle.steps.static_pods import MANIFEST_MODE, same_pod
from kubewright.manifests import controllers, node_policy, pods
from kubewright.manifests.node_policy import Nodes
from kubewright.manifests.rbac import Purpose
from kubewright.pki import kubeconfigs
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.store import CertificateStore

PURPOSES: Final = (Purpose.SERVING_APPROVER,)


def policy(configuration: Configuration, nodes: Nodes, *, api: KubeAPI, image: str = "") -> Iterable[Change]:
    """Add these nodes to the policy. The rest of an existing policy stays unchanged.

    `image` is that of the approver's static pods; '' if it runs without one.
    """
    found = stored(api)
    text = node_policy.of_cluster(configuration, nodes) if found is None else node_policy.with_nodes(_text(found), nodes)
    yield ensure_object(api, DesiredObject(node_policy.config_map(text, image=image), write=Write.MUTATE_DATA_KEYS))


def stored(api: KubeAPI) -> Object | None:
    """Return the ConfigMap of the policy, None if the cluster has none."""
    try:
        return api.get(CONFIG_MAP, node_policy.NAME, pods.NAMESPACE)
    except NotFound:
        return None


def rights(api: KubeAPI) -> Iterable[Change]:
    """Create the permissions of the approver."""
    yield from cluster_objects.apply(api, controllers.rights(purposes=PURPOSES))


def own_nodes(configuration: Configuration, detected: Detected) -> Nodes:
    """Return this machine's node with its addresses."""
    registration, endpoint = configuration.init.node_registration, configuration.init.local_api_endpoint
    return {registration.name: node_policy.addresses_of(registration, detected, endpoint.advertise_address)}


def static_pod(
    inputs: pods.Inputs, *, image: str, host: Host, written: CertificateStore, certificates: CertificateStore, issuing: IssuingSources
) -> Iterable[Change]:
    """Write the kubeconfig and the manifest of the static pod. `written` is the store of kubeconfigs."""
    yield kubeconfigs.ensure_kubeconfig(written, certificates, controllers.kubeconfig(inputs), issuing)
    pod = controllers.machine_static_pod(inputs.layout, image=image, controllers=controllers.selection(PURPOSES), purposes=PURPOSES)
    path = inputs.layout.manifest(controllers.NAME)
    yield host.ensure(File(path=path, content=yaml.dump(pod).encode(), mode=MANIFEST_MODE, same=same_pod))


def _text(found: Object) -> str:
    text = (found.get("data") or {}).get(node_policy.KEY)
    if not isinstance(text, str):
        raise DocumentError(
            f"the ConfigMap {pods.NAMESPACE}/{node_policy.NAME} has no {node_policy.KEY}", remedy="delete it, and run the command again"
        )
    return text
