"""The start of the first control plane: objects that its components need before they start, and the phases that wait for them.

The API server waits a fixed second before it begins to create its roles and bindings; until then it authorizes only
system:masters, and a kube-controller-manager that is refused its first lease retries two to four seconds later. If the
components' permissions are created in that second, they can start as soon as it answers. The API server creates all
other objects itself: creating all of its 133 objects early saved no time.

kube-controller-manager has a service account for each of its controllers, and with the flags that kubeadm gives it (20
requests a second) it needs five seconds to look them up, look up their namespace, and create them: during that time, no
pod is created and no certificate signed. Existing ones cost it one request each. The objects are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.base import versions
from kubewright.base.errors import AlreadyExists, APIError, NotFound
from kubewright.base.events import Waited
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import named
from kubewright.lifecycle.deferred_manifests import StartCondition
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import health, kubelet
from kubewright.manifests import rbac
from kubewright.workflow.phases import Step

_SYSTEM: Final = "kube-system"
NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", _SYSTEM)
"""The namespaces that an API server creates."""
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
"""Flags of kube-controller-manager that determine which of these objects it creates, and their contents."""
_GOVERNING: Final = frozenset({"authorization-mode", "authorization-config", "emulated-version", "feature-gates", "runtime-config"})
"""Flags of kube-apiserver that change the roles, or whether there are any."""
_FIRST_ROLE: Final = "system:kube-controller-manager"
"""One of the first ClusterRoles that an API server creates, a second after it starts to serve.

The bindings of the components follow in less than half a second, which is less than a container and its program need to
start.
"""


def component_rights(cluster: ClusterConfiguration) -> list[dict[str, Any]]:
    """Return the permissions of the components, none if they may differ because of another release or the user's flags."""
    governed = any(one.name in _GOVERNING for one in cluster.api_server.extra_args)
    return [] if governed or cluster.kubernetes_version != rbac.BOOTSTRAP_VERSION else rbac.bootstrap_policy()


def controller_objects(cluster: ClusterConfiguration, *, authority: bytes) -> list[dict[str, Any]]:
    """Return the controllers' objects, none if they may differ because of another version or the user's flags.

    `authority` is the cluster's CA in PEM.
    """
    ours = versions.Version.parse(cluster.kubernetes_version).line == versions.OWN.line
    if not ours or any(one.name in _DECIDING for one in cluster.controller_manager.extra_args):
        return []
    return [*_accounts(), *_authorities(authority.decode())]


def _accounts() -> Iterator[dict[str, Any]]:
    wanted = [(_SYSTEM, name) for name in CONTROLLERS] + [(namespace, "default") for namespace in NAMESPACES]
    for namespace, name in wanted:
        yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": name}}


def _authorities(authority: str) -> Iterator[dict[str, Any]]:
    for namespace in NAMESPACES:
        metadata = {"namespace": namespace, "name": ROOT_CA, "annotations": {"kubernetes.io/description": _DESCRIPTION}}
        yield {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ca.crt": authority}}


class StartupObjects:
    """Creates objects in order; they may already exist.

    `make` may be called again after an error and continues where it was.
    """

    def __init__(self, wanted: Iterable[Mapping[str, Any]]) -> None:
        self._left = list(wanted)

    def make(self, api: KubeAPI) -> None:
        """Create the remaining objects. Raises APIError while the API server is not ready for them."""
        while self._left:
            with suppress(AlreadyExists):
                api.create(self._left[0])
            self._left.pop(0)


def start_conditions(cluster: ClusterConfiguration, host: Host, *, connect: Callable[[], KubeAPI]) -> Mapping[str, StartCondition]:
    """Return the start conditions: the API server starts with etcd, the others when their objects have been created.

    `connect` returns a client that is authorized before there are any permissions; it may raise while its kubeconfig is
    missing.
    """
    needs = _Prerequisites(cluster, host, connect)
    conditions: dict[str, StartCondition] = {"kube-scheduler": needs.of_scheduler, "kube-controller-manager": needs.of_controller_manager}
    return conditions if cluster.etcd.external is not None else {"kube-apiserver": lambda: _etcd_starts(host), **conditions}


def _etcd_starts(host: Host) -> bool:
    """Return whether the kubelet has started a pod, for which it creates a directory (the first is etcd's), or etcd is running.

    The kubelet prepares the volumes of each pod for 0.3 s before it starts it, and etcd listens before an API server
    that starts at the same time connects to it.
    """
    return bool(host.entries(host.layout.kubelet / "pods")) or host.state(host.layout.etcd_data / "member") is not None


class _Prerequisites:
    """The objects that the components need, in this order: the permissions of both, then those that kube-controller-manager would create itself."""

    def __init__(self, cluster: ClusterConfiguration, host: Host, connect: Callable[[], KubeAPI]) -> None:
        self._cluster, self._host, self._connect = cluster, host, connect

    @functools.cached_property
    def _api(self) -> KubeAPI:
        return self._connect()

    @functools.cached_property
    def _rights(self) -> StartupObjects | None:
        wanted = component_rights(self._cluster)
        return StartupObjects(wanted) if wanted else None

    @functools.cached_property
    def _accounts(self) -> StartupObjects:
        authority = self._host.read(self._host.layout.certificate("ca")) or b""
        return StartupObjects(controller_objects(self._cluster, authority=authority))

    def of_scheduler(self) -> bool:
        if self._rights is None:
            self._api.get(named("ClusterRole"), _FIRST_ROLE)
        else:
            self._rights.make(self._api)
        return True

    def of_controller_manager(self) -> bool:
        self._accounts.make(self._api)
        return self.of_scheduler()


def control_plane(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the kubelet is healthy, then until the API server accepts the writes of the next phases.

    Each has its own time limit (kubeadm v1.36: cmd/phases/init/waitcontrolplane.go). An API server that accepts them
    shows that the kubelet works.
    """
    ctx.say("wait-control-plane", f'Waiting for the control plane to start as static pods from "{ctx.layout.manifests}"')

    def accepts() -> str | None:
        ctx.bound.manifests.check()
        try:
            ctx.probe.get(named("Namespace"), "kube-system")
        except NotFound:
            return "its namespaces do not exist yet"
        except APIError as error:
            return str(error)
        return None

    server = kubelet.health_server(ctx.host)
    if server:
        healthy = ctx.bound.connections.keep(health.HealthEndpoint(server, "/healthz"))
        yield ctx.health_lines.kubelet(
            server,
            lambda: ctx.components.until(
                lambda: accepts() and healthy(),
                saying="the kubelet to be healthy",
                blame=(),
                within=ctx.timeouts.kubelet_health_check.seconds,
                every=kubelet.LOOK,
                remedy=kubelet.FIX,
            ),
            within=ctx.timeouts.kubelet_health_check,
        )
    yield ctx.health_lines.component(
        "kube-apiserver",
        lambda: ctx.components.until(accepts, saying="the API server to accept requests", blame=("etcd", "kube-apiserver")),
        reports_success=False,  # that is reported when all components are checked
    )


def components(ctx: InitContext) -> Iterable[Step]:
    """Wait until the API server is ready and the other components report healthy."""
    yield from health.healthy(
        ctx.components,
        probe=ctx.probe,
        server=ctx.addresses.api_server,
        manifests=ctx.bound.manifests,
        others=ctx.health_checks,
        lines=ctx.health_lines,
    )
