"""The state of one node as its agent sees it: the source of status files, metrics and `local status`."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime

from kubewright.agent.certificates.manager import CertificateView
from kubewright.base.records import dataclass, field


class NodePhase(enum.Enum):
    """The phase of a node, with the words of `local status`."""

    NEW = "New"
    """It waits for its turn, or has not been started."""
    JOINING = "Joining"
    """It finds its cluster and waits for a certificate."""
    REGISTERING = "Registering"
    """It has a certificate, but no Node yet."""
    CONNECTING = "WaitingForPodRange"
    """Its Node exists, but has no pod range yet."""
    READY = "Ready"
    NOT_READY = "NotReady"
    """It was ready before, but its Node is not ready now."""
    STOPPED = "Stopped"


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """The state of one node.

    `reached` maps each phase to the seconds from the start until the node first reached it.
    """

    name: str
    phase: NodePhase
    ready: bool
    certificate: CertificateView
    """The client certificate."""
    pods: int
    reached: Mapping[str, float]
    trouble: str = ""
    """Why the last attempt at something failed; '' if nothing has failed since."""
    serving: CertificateView | None = None
    """The certificate of its kubelet API, if the cluster signs it."""
    reported_at: datetime | None = None
    """When the API last accepted a status."""
    renewed_at: datetime | None = None
    """When the API last accepted a renewal of the lease."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """The setters that failed in the last computation of the status, and why."""
    not_ready: str = ""
    """Why its Node is not ready."""
    clock: str = ""
    """The difference between the machine's clock and the API server's; '' if it does not matter."""
