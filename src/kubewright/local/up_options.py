"""The options of `up` and its result, for both kinds of clusters."""

from __future__ import annotations

from kubewright.base.change import Change
from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.local import record
from kubewright.local.mounts import Mount
from kubewright.local.paths import ClusterPaths
from kubewright.local.published import PublishedPort

WITHIN = 300.0
"""Seconds for a cluster to be ready: an idle machine needs a few, one with other clusters many more."""

MOST_NODES = 30_000
MOST_WORKERS = 150
"""The largest number of nodes of a cluster of machines, in addition to its control planes."""
MOST_CONTROL_PLANES = 7
"""The largest number of members that etcd's documentation recommends."""


def most_nodes(*, machines: bool) -> int:
    """Return the largest number of nodes in addition to the control planes' own, for one kind of clusters."""
    return MOST_WORKERS if machines else MOST_NODES


@dataclass(frozen=True, kw_only=True)
class UpOptions:
    """The user's options. None keeps the existing value, or means the default for a new cluster."""

    nodes: int | None = None
    control_planes: int | None = None
    kubernetes_version: str | None = None
    config: str | None = None
    """The text of a kubeadm configuration."""
    controllers: str | None = None
    """The controllers that approve and sign certificate requests."""
    serving_certificates: str | None = None
    """Who signs the certificates of kubelets: `self-signed` or `strict`."""
    client_certificates: str | None = None
    """Who approves client certificates of nodes: `stock` or `strict`."""
    registry_config: str | None = None
    """The directory of containerd's hosts files for a cluster of machines, '' for none."""
    cni: str | None = None
    """The network of pods in a cluster of machines: `default`, or `none` for a network plugin of the user."""
    within: float = WITHIN
    """Seconds for the cluster to be ready, from the start of its first process."""
    owner: str = ""
    """The identity of the process that the cluster must not outlive, '' if there is none."""
    machines: bool = False
    """Whether a new cluster consists of whole machines."""
    publish: tuple[PublishedPort, ...] = ()
    """Ports of the host that a cluster of machines publishes, in addition to those of its record."""
    mounts: tuple[Mount, ...] | None = None
    """The directories and files of the host that machines see."""
    kubectl: bool = False
    """Whether to fetch kubectl too, for interactive use."""


@dataclass(frozen=True, kw_only=True)
class UpResult:
    """The result of `up`."""

    changes: tuple[Change, ...]
    created: bool
    total: float
    """Seconds from the start to the end."""


def machines_are_wanted(paths: ClusterPaths, options: UpOptions) -> bool:
    """Return whether a cluster consists of whole machines, or is to be made of them.

    Raises UsageError if it consists of processes, or is to, and the options are for machines.
    """
    try:
        found = record.load(paths.record)
    except HostError:  # loading the record for its contents reports it
        found = None
    if found is not None and options.machines and not found.is_whole:
        raise UsageError(
            f"cluster {quoted(paths.name)} consists of processes, not of machines", remedy="leave --machines out, or choose another --name"
        )
    wanted = options.machines or (found is not None and found.is_whole)
    if not wanted and (options.publish or options.mounts or options.registry_config or options.cni is not None):
        raise UsageError(
            "only clusters of machines have --publish, --mount, --cni and --registry-config", remedy="add --machines, or leave them out"
        )
    return wanted
