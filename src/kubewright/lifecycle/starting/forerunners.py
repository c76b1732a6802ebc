"""What the API server and kube-controller-manager would make of their own accord in their first seconds, made before they come to it.

The API server waits a fixed second before it begins to make its roles and bindings; until then nobody but system:masters is obeyed, and a
kube-controller-manager that is refused its first lease comes back two to four seconds later. With the rights of the components made in that
second, they can start as soon as it answers. What else it makes it makes itself: all of its 133 objects made ahead gained nothing.

kube-controller-manager has a service account for each of its controllers, and with the flags that kubeadm gives it (20 requests a second) it
needs five seconds to look for them, look for their namespace, and make them: for so long no pod is made and no certificate signed. Those that
are there already cost it one request each. The objects are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.base import versions
from kubewright.base.errors import AlreadyExists
from kubewright.kube.api import KubeAPI
from kubewright.manifests import rbac

SYSTEM: Final = "kube-system"
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", SYSTEM)
"""The namespaces that an API server makes."""

CONTROLLERS: Final = (
    "attachdetach-controller",
    "bootstrap-signer",
    "certificate-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemon-set-controller",
    "deployment-controller",
    "device-taint-eviction-controller",
    "disruption-controller",
    "endpoint-controller",
    "endpointslice-controller",
    "endpointslicemirroring-controller",
    "ephemeral-volume-controller",
    "expand-controller",
    "generic-garbage-collector",
    "horizontal-pod-autoscaler",
    "job-controller",
    "legacy-service-account-token-cleaner",
    "namespace-controller",
    "node-controller",
    "persistent-volume-binder",
    "pod-garbage-collector",
    "pv-protection-controller",
    "pvc-protection-controller",
    "replicaset-controller",
    "replication-controller",
    "resource-claim-controller",
    "resourcequota-controller",
    "root-ca-cert-publisher",
    "service-account-controller",
    "service-cidrs-controller",
    "statefulset-controller",
    "token-cleaner",
    "ttl-after-finished-controller",
    "ttl-controller",
    "validatingadmissionpolicy-status-controller",
    "volumeattributesclass-protection-controller",
)
"""The service accounts of kube-controller-manager v1.36 as kubeadm starts it, from a cluster of kubeadm's."""

ROOT_CA: Final = "kube-root-ca.crt"
_DESCRIPTION: Final = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal service IP or "
    "kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters."
)
_DECIDING: Final = frozenset({"controllers", "feature-gates", "root-ca-file", "use-service-account-credentials"})
"""Flags of kube-controller-manager that change which of these objects it makes, and with what in them."""

_GOVERNING: Final = frozenset({"authorization-mode", "authorization-config", "emulated-version", "feature-gates", "runtime-config"})
"""Flags of kube-apiserver that change the roles, or whether there are any."""


def of_components(cluster: ClusterConfiguration) -> list[dict[str, Any]]:
    """Return the rights of the components, none where another release or the user's flags may have others."""
    governed = any(one.name in _GOVERNING for one in cluster.api_server.extra_args)
    return [] if governed or cluster.kubernetes_version != rbac.BOOTSTRAP_VERSION else rbac.bootstrap_policy()


def of_controllers(cluster: ClusterConfiguration, *, authority: bytes) -> list[dict[str, Any]]:
    """Return the controllers' objects, none where another version or the user's flags may make others. `authority` is the cluster's CA in PEM."""
    ours = versions.Version.parse(cluster.kubernetes_version).line == versions.OWN.line
    if not ours or any(one.name in _DECIDING for one in cluster.controller_manager.extra_args):
        return []
    return [*_accounts(), *_authorities(authority.decode())]


def _accounts() -> Iterator[dict[str, Any]]:
    wanted = [(SYSTEM, name) for name in CONTROLLERS] + [(namespace, "default") for namespace in NAMESPACES]
    for namespace, name in wanted:
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}


def _authorities(authority: str) -> Iterator[dict[str, Any]]:
    for namespace in NAMESPACES:
        metadata = {"namespace": namespace, "name": ROOT_CA, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": authority}}


class Forerunners:
    """Makes objects in their order; who is first does not matter. `make` may be called again after an error and goes on where it was."""

    def __init__(self, wanted: Iterable[Mapping[str, Any]]) -> None:
        self._left = list(wanted)

    def make(self, api: KubeAPI) -> None:
        """Make all that are left. Raises APIError while the API server is not ready for them."""
        while self._left:
            with suppress(AlreadyExists):
                api.create(self._left[0])
            self._left.pop(0)
