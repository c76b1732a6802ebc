"""The versions in a cluster, and kubeadm's version policy for `upgrade apply` as a pure function.

kubeadm v1.36: phases/upgrade/versiongetter.go, phases/upgrade/policy.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.errors import APIError, UsageError
from kubewright.base.records import dataclass, field
from kubewright.base.versions import OLDEST_CONTROL_PLANE, OWN, Version
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import DEPLOYMENT, NODE, POD
from kubewright.lifecycle.steps import component_versions

NAMESPACE: Final = "kube-system"
API_SERVER: Final = "kube-apiserver"
ETCD: Final = "etcd"
TOOL: Final = "kubeadm"
"""The name of this program in kubeadm's tables and lines."""
CONTROL_PLANE: Final = (API_SERVER, "kube-controller-manager", "kube-scheduler")
KUBELET_SKEW: Final = 3
"""The number of minor releases by which a kubelet may be older than its API server."""
ByVersion = Mapping[str, Sequence[str]]
"""The names of the Nodes with each version."""


@dataclass(frozen=True, kw_only=True)
class ClusterVersions:
    """The versions in a cluster. `components` are those of static pods, `dns` is '' without CoreDNS."""

    components: Mapping[str, ByVersion] = field(default_factory=dict)
    kubelets: ByVersion = field(default_factory=dict)
    dns: str = ""

    @property
    def cluster(self) -> Version:
        """The highest version of the API servers. Raises APIError if there are none, or if one cannot be parsed."""
        texts = list(self.components.get(API_SERVER, ()))
        try:
            return max(Version.parse(text) for text in texts)
        except ValueError as error:
            found = f"their versions are {', '.join(texts)}" if texts else "there are none"
            raise APIError(
                "the version of the cluster cannot be determined from its API servers",
                detail=f"{found} (pods of {NAMESPACE} with the label component={API_SERVER})",
                remedy="look at the pods of the control plane",
            ) from error


def announced(cluster: Version, *, tool: Version = OWN) -> list[str]:
    """Return the first lines about versions of `upgrade plan` and `upgrade apply`."""
    return [f"Cluster version: {str(cluster).removeprefix('v')}", f"{TOOL} version: {tool}"]


def observe(api: KubeAPI) -> ClusterVersions:
    """Read the versions of static pods, kubelets and CoreDNS. Raises APIError."""
    kubelets: dict[str, list[str]] = {}
    for node in api.list(NODE):
        version = kubelet_version(node)
        kubelets.setdefault(version, []).append(node["metadata"]["name"])
    return ClusterVersions(
        components={name: static_pods(api, name) for name in (*CONTROL_PLANE, ETCD)}, kubelets=kubelets, dns=dns_version(api)
    )


def kubelet_version(node: Mapping[str, Any]) -> str:
    """Return the version of the kubelet in the status of a Node, '' if it has none."""
    return untyped.text(untyped.mapping(untyped.mapping(node.get("status")).get("nodeInfo")).get("kubeletVersion"))


def node_of(pod: Mapping[str, Any]) -> str:
    """Return the name of the Node of a pod, '' if it has none."""
    return untyped.text(untyped.mapping(pod.get("spec")).get("nodeName"))


def static_pods(api: KubeAPI, name: str) -> ByVersion:
    """Return the nodes that have each version of a control plane's component. Raises APIError."""
    found: dict[str, list[str]] = {}
    for pod in api.list(POD, NAMESPACE, label_selector=f"component={name},tier=control-plane"):
        found.setdefault(version_of(pod), []).append(node_of(pod))
    return found


def dns_version(api: KubeAPI) -> str:
    """Return the tag of CoreDNS's image, '' without CoreDNS. Raises APIError for several Deployments of DNS."""
    found = api.list(DEPLOYMENT, NAMESPACE, label_selector="k8s-app=kube-dns")
    if len(found) > 1:
        names = ", ".join(one["metadata"]["name"] for one in found)
        raise APIError(f"there are several Deployments of DNS in {NAMESPACE}", detail=names, remedy="keep the one that is in use")
    template = untyped.mapping(untyped.mapping(found[0].get("spec")).get("template")) if found else {}
    return component_versions.image_tag(template)


def version_of(pod: Mapping[str, Any]) -> str:
    """Return the version in the tag of a pod's first container: tags must not contain `+`, so build metadata follows an underscore."""
    return component_versions.image_tag(pod).replace("_", "+", 1)


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The reasons against a version: `mandatory` ones always count, `skippable` ones unless `--force` is given."""

    mandatory: Sequence[str] = ()
    skippable: Sequence[str] = ()

    def require(self, target: str, *, force: bool) -> Sequence[str]:
        """Return the reasons that `force` overrides. Raises UsageError with all reasons that count."""
        counting = [*self.mandatory, *(() if force else self.skippable)]
        if counting:
            remedy = "choose another version" if self.mandatory else "choose another version, or override this with --force"
            raise UsageError(f"this cluster cannot be upgraded to {target}", detail="\n".join(counting), remedy=remedy)
        return self.skippable


def judge_target(target: Version, *, tool: Version = OWN, experimental: bool = False, candidates: bool = False) -> Verdict:
    """Compare a version with that of kubewright. `experimental` and `candidates`: pre-releases are allowed."""
    mandatory: list[str] = []
    skippable: list[str] = []
    early = skippable if target.pre else mandatory
    if target < OLDEST_CONTROL_PLANE:
        mandatory.append(f"{target} is older than {OLDEST_CONTROL_PLANE}, the oldest version that can be deployed")
    if (target.major, target.minor) > (tool.major, tool.minor):
        early.append(f"{target} is of a newer minor release than this program ({tool})")
    elif target.line == tool.line and target > tool:
        skippable.append(f"{target} is newer than this program ({tool}): upgrade the program first")
    elif (target.major, target.minor) < (tool.major, tool.minor):
        skippable.append(f"{target} is of an older minor release than this program ({tool})")
    if target.pre and not experimental and not (candidates and target.pre.startswith("rc")):
        flag = "--allow-release-candidate-upgrades" if target.pre.startswith("rc") else "--allow-experimental-upgrades"
        skippable.append(f"{target} is a pre-release; {flag} allows it")
    return Verdict(mandatory=tuple(mandatory), skippable=tuple(skippable))


def judge(target: Version, observed: ClusterVersions) -> Verdict:
    """Compare a version with those of the cluster. Raises APIError as `ClusterVersions.cluster` does."""
    present = observed.cluster
    reasons: list[str] = []
    skippable: list[str] = []
    if target.major != present.major or target.minor > present.minor + 1:
        reasons.append(f"{target} is more than one minor release newer than the cluster ({present})")
    if target.major == present.major and target.minor < present.minor - 1:
        reasons.append(f"{target} is more than one minor release older than the cluster ({present})")
    for text, nodes in sorted(observed.kubelets.items()):
        try:
            kubelet = Version.parse(text)
        except ValueError:
            skippable.append(f"the version {text or '(none)'} of the kubelets on {', '.join(sorted(nodes))} cannot be read")
            continue
        if kubelet.minor < target.minor - KUBELET_SKEW:
            skippable.append(f"the kubelets on {', '.join(sorted(nodes))} have {kubelet}, which {target} does not support any more")
    return Verdict(mandatory=() if target.pre else tuple(reasons), skippable=(*(reasons if target.pre else ()), *skippable))
