"""The versions that a cluster can be upgraded to, as a pure function (kubeadm v1.36: phases/upgrade/compute.go)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass
from kubewright.base.versions import OWN, Version, release_for
from kubewright.lifecycle.upgrade.planning.versions import API_SERVER, CONTROL_PLANE, ETCD, TOOL, ByVersion, ClusterVersions, announced

COMPONENT_CONFIGS: Final = (("kubeproxy.config.k8s.io", "v1alpha1"), ("kubelet.config.k8s.io", "v1beta1"))
"""The groups of component configurations, and the version of each that kubewright reads and writes."""
_DNS: Final = "CoreDNS"
_EXPERIMENTAL: Final = "experimental version"


@dataclass(frozen=True, kw_only=True)
class ComponentUpgradePlan:
    """The present and the new version of a component. `node` is '' for components that a cluster has once."""

    name: str
    current: str
    new: str
    node: str = ""

    def as_map(self) -> dict[str, Any]:
        """Return kubeadm's ComponentUpgradePlan."""
        found = {"name": self.name, "currentVersion": self.current, "newVersion": self.new}
        return {**found, "nodeName": self.node} if self.node else found


@dataclass(frozen=True, kw_only=True)
class AvailableUpgrade:
    """One version that the cluster can be upgraded to."""

    description: str
    components: Sequence[ComponentUpgradePlan]

    @property
    def version(self) -> str:
        """The version."""
        return next(row.new for row in self.components if row.name == API_SERVER)

    @property
    def tool(self) -> tuple[str, str]:
        """The version of kubewright, and the one that is needed."""
        return next((row.current, row.new) for row in self.components if row.name == TOOL)

    def rows(self, *, kubelets: bool) -> list[ComponentUpgradePlan]:
        """Return the rows of the kubelets, or those of the components that `upgrade apply` upgrades."""
        return [row for row in self.components if row.name != TOOL and (row.name == "kubelet") == kubelets]


@dataclass(frozen=True, kw_only=True)
class UpgradePlan:
    """The result of `upgrade plan`. `groups` are the component configurations that the cluster stores."""

    upgrades: Sequence[AvailableUpgrade]
    groups: Collection[str]
    lines: Sequence[str] = ()
    warnings: Sequence[str] = ()

    def states(self) -> list[dict[str, Any]]:
        """Return kubeadm's ComponentConfigVersionStates. There is one version of each, so nothing is migrated by hand."""
        return [
            {
                "group": group,
                "currentVersion": version if group in self.groups else "",
                "preferredVersion": version,
                "manualUpgradeRequired": False,
            }
            for group, version in COMPONENT_CONFIGS
        ]

    def as_map(self) -> dict[str, Any]:
        """Return kubeadm's UpgradePlan."""
        upgrades = [{"description": one.description, "components": [row.as_map() for row in one.components]} for one in self.upgrades]
        head = {"kind": "UpgradePlan", "apiVersion": "output.kubeadm.k8s.io/v1alpha3"}
        return {**head, "availableUpgrades": upgrades, "configVersions": self.states()}


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of a plan.

    `version` is used for every label, as in kubeadm; without it, kubewright's own version counts as the newest, because
    nothing is looked up on the network. `experimental` and `candidates`: pre-releases are allowed, which needs a
    version. `etcd`: local etcd is upgraded as well.
    """

    version: str = ""
    experimental: bool = False
    candidates: bool = False
    etcd: bool = True


def plan(observed: ClusterVersions, wish: PlanOptions, *, groups: Collection[str] = (), tool: Version = OWN) -> UpgradePlan:
    """Return the versions that the cluster can be upgraded to.

    Raises UsageError for an invalid version, and for pre-releases that would have to be looked up, and APIError if the
    cluster's version is unknown.
    """
    if (wish.experimental or wish.candidates) and not wish.version:
        raise UsageError(
            "pre-releases are not looked up",
            detail="this program asks no server for versions",
            remedy="specify the version: `kubewright upgrade plan VERSION`",
        )
    cluster = observed.cluster
    newest = _version(wish.version) if wish.version else tool
    text = wish.version or str(newest)
    lines = [*announced(cluster, tool=tool), *_asked_lines(wish, cluster, newest)]
    upgrades = [
        AvailableUpgrade(description=description, components=tuple(_components(observed, text, needed, tool, etcd=wish.etcd)))
        for description, needed in (_offers(wish, cluster, newest, tool) if cluster < newest else ())
    ]
    warnings = (*(() if wish.version else (_not_looked_up(tool),)), *_kubelets_too_new(observed))
    return UpgradePlan(upgrades=upgrades, groups=groups, lines=lines, warnings=warnings)


def _kubelets_too_new(observed: ClusterVersions) -> Iterator[str]:
    """Yield a warning for kubelets of a newer minor release than an API server, which Kubernetes does not support (version skew policy)."""
    oldest = min(map(Version.parse, observed.components[API_SERVER]))
    for text, nodes in sorted(observed.kubelets.items()):
        with suppress(ValueError):  # the policy reports kubelets whose version cannot be read
            if (kubelet := Version.parse(text)).minor > oldest.minor:
                where = ", ".join(sorted(nodes))
                yield f"the kubelets on {where} have {kubelet}, and an API server has {oldest}: upgrade the control planes before any kubelet"


def _asked_lines(wish: PlanOptions, cluster: Version, newest: Version) -> Iterator[str]:
    """Yield the version of each label."""
    if wish.version:
        yield f"Target version: {wish.version}"
        if newest >= cluster:
            yield f"Latest {_series(cluster)}: {wish.version}"
    if wish.experimental or wish.candidates:
        yield f"Latest {_EXPERIMENTAL}: {wish.version}"
        yield f"Latest previous version: {wish.version}"


def _offers(wish: PlanOptions, cluster: Version, newest: Version, tool: Version) -> Iterator[tuple[str, str]]:
    """Yield the description of each offered version, and the version of kubewright that it needs."""
    if not wish.version:
        yield "stable version", str(tool)
        return
    yield _series(cluster), str(tool) if tool >= newest else wish.version
    if wish.candidates and newest.pre.startswith("rc"):
        yield "release candidate version", wish.version
    if wish.experimental:
        yield _EXPERIMENTAL, wish.version


def _series(cluster: Version) -> str:
    return f"version in the v{cluster.line} series"


def _not_looked_up(tool: Version) -> str:
    return f"versions are not looked up: {tool}, that of this program, is used as the newest; `kubewright upgrade plan VERSION` plans for another"


def _components(observed: ClusterVersions, new: str, needed: str, tool: Version, *, etcd: bool) -> Iterator[ComponentUpgradePlan]:
    if len(observed.kubelets) > 1 or (observed.kubelets and new not in observed.kubelets):
        yield from _rows("kubelet", observed.kubelets, new)
    for name in CONTROL_PLANE:
        yield from _rows(name, observed.components.get(name, {}), new)
    yield ComponentUpgradePlan(name="kube-proxy", current=str(observed.cluster).removeprefix("v"), new=new)
    release = release_for(Version.parse(new))
    yield ComponentUpgradePlan(name=_DNS, current=observed.dns, new=release.coredns_tag)
    yield ComponentUpgradePlan(name=TOOL, current=str(tool), new=needed)
    if etcd:
        yield from _rows(ETCD, observed.components.get(ETCD, {}), release.etcd_tag)


def _rows(name: str, versions: ByVersion, new: str) -> Iterator[ComponentUpgradePlan]:
    for version in sorted(versions):
        yield from (ComponentUpgradePlan(name=name, current=version, new=new, node=node) for node in versions[version])


def _version(text: str) -> Version:
    try:
        return Version.parse(text)
    except ValueError as error:
        raise UsageError(str(error), remedy="use a version like v1.36.3") from error
