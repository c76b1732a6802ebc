"""The approver of kubelets' serving certificates on a control plane: its policy and permissions in the cluster, and its static pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Detected
from kubewright.apis.node_approval import FileRow
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import DocumentError, NotFound, UsageError
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.objects import DesiredObject, Write, ensure_derived, ensure_object
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.steps import cluster_objects
from kubewright.lifecycle.steps.static_pods import MANIFEST_MODE, same_pod
from kubewright.manifests import controllers, node_policy, pods
from kubewright.manifests.rbac import Purpose
from kubewright.pki import kubeconfigs
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.store import CertificateStore
from kubewright.tokens import strings

PURPOSES: Final = (Purpose.SERVING_APPROVER,)


def policy(
    configuration: Configuration, rows: Sequence[FileRow], *, api: KubeAPI, image: str = "", strict_clients: bool = False
) -> Iterable[Change]:
    """Add these nodes to the policy. The rest of an existing policy stays unchanged, except for `clients: strict`.

    `image` is that of the approver's static pods; '' if it runs without one.
    """

    def wanted(found: Object | None) -> DesiredObject:
        text = (
            node_policy.of_cluster(configuration, rows, strict_clients=strict_clients)
            if found is None
            else node_policy.with_rows(_text(found), rows, strict_clients=strict_clients)
        )
        return DesiredObject(node_policy.config_map(text, image=image), write=Write.MUTATE_DATA_KEYS)

    yield ensure_derived(api, CONFIG_MAP, node_policy.NAME, pods.NAMESPACE, wanted=wanted)


def admit(api: KubeAPI, row: FileRow, *, tokens: Collection[str]) -> Change:
    """Write the row of a node, for which a token is about to be created, into the policy. `tokens` are the ids of all tokens.

    Raises UsageError in a cluster without a policy, and what `node_policy.with_node` raises.
    """

    def wanted(found: Object | None) -> DesiredObject:
        if found is None:
            raise UsageError(
                f"the cluster has no ConfigMap {pods.NAMESPACE}/{node_policy.NAME} with a policy of nodes",
                remedy="leave --node out, or create it: docs/guide/approve-serving-certificates.md",
            )
        return DesiredObject(node_policy.config_map(node_policy.with_node(_text(found), row, tokens=tokens)), write=Write.MUTATE_DATA_KEYS)

    return ensure_derived(api, CONFIG_MAP, node_policy.NAME, pods.NAMESPACE, wanted=wanted)


def has_strict_clients(api: KubeAPI) -> bool:
    """Whether the cluster's policy takes the client certificates of nodes away from the stock approver."""
    found = stored(api)
    return found is not None and node_policy.is_strict(_text(found))


def stored(api: KubeAPI) -> Object | None:
    """Return the ConfigMap of the policy, None if the cluster has none."""
    try:
        return api.get(CONFIG_MAP, node_policy.NAME, pods.NAMESPACE)
    except NotFound:
        return None


def rights(api: KubeAPI) -> Iterable[Change]:
    """Create the permissions of the approver, and the object in which it stores used tokens."""
    yield from cluster_objects.apply(api, controllers.rights(purposes=PURPOSES))
    yield used_tokens(api)


def used_tokens(api: KubeAPI) -> Change:
    """Create the object in which the approver stores used tokens; an existing one stays as it is."""
    return ensure_object(api, DesiredObject(node_policy.used_tokens(), write=Write.CREATE_ONLY))


def own_row(configuration: Configuration, detected: Detected, *, token: str = "") -> FileRow:
    """Return the row of this machine: its addresses, and the id of the token with which it joins."""
    registration, endpoint = configuration.init.node_registration, configuration.init.local_api_endpoint
    addresses = node_policy.addresses_of(registration, detected, endpoint.advertise_address)
    tokens = (strings.parse(token).id,) if token else ()
    return FileRow(node=registration.name, addresses=tuple(addresses), tokens=tokens)


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
