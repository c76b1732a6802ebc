"""The subject of the checks of a machine, and the names of checks about a path."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.apis.kubeadm.types import ClusterConfiguration, NodeRegistration
from kubewright.apis.machine import Addresses
from kubewright.base import checks
from kubewright.base.records import dataclass
from kubewright.host.seam import Host


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of checks: the machine, and its intended role.

    `cluster` is None if it is not known before the machine is checked, as on join.
    """

    host: Host
    node: NodeRegistration
    addresses: Addresses
    cluster: ClusterConfiguration | None = None
    user: int = 0
    """The effective user id of the command."""


Check = checks.Check[Subject]


def path_name(kind: str, path: PurePosixPath) -> str:
    """Return kubeadm's name of a check about a path: `FileAvailable--etc-kubernetes-kubelet.conf`."""
    return f"{kind}-{str(path).replace('/', '-')}"
