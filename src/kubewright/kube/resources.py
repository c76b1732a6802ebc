"""The kinds that kubewright uses, and their paths. One row is one kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from kubewright.apis import node_join_requests
from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass

_ORDINARY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._-]*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind of object, with its names in documents and in paths."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """The apiVersion in a document: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The kind's name in messages: `configmap`."""
        return self.kind.lower()

    def path(self, name: str = "", *, namespace: str | None = None, subresource: str = "") -> str:
        """Return the path of one object, or of the collection if no name is given; without a namespace, that of all namespaces.

        Raises UsageError for names that would change the structure of the path.
        """
        parts = [f"/apis/{self.group}" if self.group else "/api", self.version]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", segment(namespace)]
        parts.append(self.plural)
        if name:
            parts.append(segment(name))
        if subresource:
            parts.append(subresource)
        return "/".join(parts)


def segment(name: str) -> str:
    """Encode a name for a path.

    Raises UsageError for names that the API server refuses as path segments (apimachinery
    `path.IsValidPathSegmentName`).
    """
    if _ORDINARY.fullmatch(name):
        return name
    if name in {"", ".", ".."} or "/" in name or "%" in name or not name.isprintable():
        raise UsageError(
            f"{quoted(name)} cannot be the name of an object", remedy='a name must not contain "/" or "%", and must not be "." or ".."'
        )
    return quote(name, safe=":@!$&'()*+,;=~-._")


def _of_group(group: str, version: str, *rows: tuple[str, str, bool]) -> tuple[Resource, ...]:
    return tuple(Resource(group=group, version=version, kind=kind, plural=plural, namespaced=spaced) for kind, plural, spaced in rows)


RESOURCES: Final = (
    *_of_group(
        "",
        "v1",
        ("ConfigMap", "configmaps", True),
        ("Endpoints", "endpoints", True),
        ("Event", "events", True),
        ("Namespace", "namespaces", False),
        ("Node", "nodes", False),
        ("PersistentVolume", "persistentvolumes", False),
        ("PersistentVolumeClaim", "persistentvolumeclaims", True),
        ("Pod", "pods", True),
        ("Secret", "secrets", True),
        ("Service", "services", True),
        ("ServiceAccount", "serviceaccounts", True),
    ),
    *_of_group(
        "apps",
        "v1",
        ("ControllerRevision", "controllerrevisions", True),
        ("DaemonSet", "daemonsets", True),
        ("Deployment", "deployments", True),
        ("ReplicaSet", "replicasets", True),
        ("StatefulSet", "statefulsets", True),
    ),
    *_of_group("batch", "v1", ("CronJob", "cronjobs", True), ("Job", "jobs", True)),
    *_of_group(
        "rbac.authorization.k8s.io",
        "v1",
        ("ClusterRole", "clusterroles", False),
        ("ClusterRoleBinding", "clusterrolebindings", False),
        ("Role", "roles", True),
        ("RoleBinding", "rolebindings", True),
    ),
    *_of_group("certificates.k8s.io", "v1", ("CertificateSigningRequest", "certificatesigningrequests", False)),
    *_of_group("coordination.k8s.io", "v1", ("Lease", "leases", True)),
    *_of_group("storage.k8s.io", "v1", ("CSINode", "csinodes", False), ("StorageClass", "storageclasses", False)),
    *_of_group("node.k8s.io", "v1", ("RuntimeClass", "runtimeclasses", False)),
    *_of_group("scheduling.k8s.io", "v1", ("PriorityClass", "priorityclasses", False)),
    *_of_group("networking.k8s.io", "v1", ("ServiceCIDR", "servicecidrs", False)),
    *_of_group("discovery.k8s.io", "v1", ("EndpointSlice", "endpointslices", True)),
    *_of_group("authentication.k8s.io", "v1", ("TokenReview", "tokenreviews", False), ("SelfSubjectReview", "selfsubjectreviews", False)),
    *_of_group(
        "authorization.k8s.io",
        "v1",
        ("SubjectAccessReview", "subjectaccessreviews", False),
        ("SelfSubjectAccessReview", "selfsubjectaccessreviews", False),
    ),
    *_of_group(
        "admissionregistration.k8s.io",
        "v1",
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False),
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False),
    ),
    *_of_group("apiextensions.k8s.io", "v1", ("CustomResourceDefinition", "customresourcedefinitions", False)),
    *_of_group("cluster.x-k8s.io", "v1beta2", ("Machine", "machines", True)),
    *_of_group("cluster.x-k8s.io", "v1beta1", ("Machine", "machines", True)),
    *_of_group("machine.openshift.io", "v1beta1", ("Machine", "machines", True)),
    *_of_group(node_join_requests.GROUP, node_join_requests.VERSION, (node_join_requests.KIND, node_join_requests.PLURAL, False)),
)

_BY_KIND: Final = {(resource.api_version, resource.kind): resource for resource in RESOURCES}


def named(kind: str, *, api_version: str | None = None) -> Resource:
    """Return the row of a kind. Raises UsageError if the table has none."""
    for resource in RESOURCES:
        if resource.kind == kind and api_version in {None, resource.api_version}:
            return resource
    raise UsageError(f"kubewright has no row for the kind {quoted(kind)}", remedy="pass a Resource of your own")


def of(obj: Mapping[str, object]) -> Resource:
    """Return the row of an object by its apiVersion and kind. Raises DocumentError if the table has none."""
    found = _BY_KIND.get((str(obj.get("apiVersion")), str(obj.get("kind"))))
    if found is None:
        raise DocumentError(
            f"kubewright has no row for {obj.get('kind') or 'an object without a kind'} of {obj.get('apiVersion') or 'no apiVersion'}",
            remedy="pass a Resource of your own",
        )
    return found


CONFIG_MAP: Final = named("ConfigMap")
SECRET: Final = named("Secret")
NODE: Final = named("Node")
POD: Final = named("Pod")
SERVICE: Final = named("Service")
EVENT: Final = named("Event")
LEASE: Final = named("Lease")
ENDPOINTS: Final = named("Endpoints")
SERVICE_CIDR: Final = named("ServiceCIDR")
CSI_NODE: Final = named("CSINode")
DEPLOYMENT: Final = named("Deployment")
CERTIFICATE_SIGNING_REQUEST: Final = named("CertificateSigningRequest")
CLUSTER_ROLE_BINDING: Final = named("ClusterRoleBinding")
NODE_JOIN_REQUEST: Final = named(node_join_requests.KIND)
