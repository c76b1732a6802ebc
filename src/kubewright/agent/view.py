"""How one node is, as its agent sees it: what status files, metrics and `local status` are made of."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from datetime import datetime

from kubewright.agent.certificates.manager import CertificateView
from kubewright.base.records import dataclass, field


class NodePhase(enum.Enum):
    """How far a node is. The words are those of `local status`."""

    NEW = "New"
    """It waits for its turn, or has not been started."""
    JOINING = "Joining"
    """It finds its cluster and waits for a certificate."""
    REGISTERING = "Registering"
    """It has a certificate; the API has no Node of it yet."""
    CONNECTING = "WaitingForPodRange"
    """Its Node exists and has no pod range yet."""
    READY = "Ready"
    NOT_READY = "NotReady"
    """It was ready before, and its Node says that it is not now."""
    STOPPED = "Stopped"


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """One node as its agent sees it. `reached` maps each phase that it reached first to seconds since its start."""

    name: str
    phase: NodePhase
    ready: bool
    certificate: CertificateView
    """The client certificate."""
    pods: int
    reached: Mapping[str, float]
    trouble: str = ""
    """Why the last attempt at something failed; '' if none did since."""
    serving: CertificateView | None = None
    """The certificate of its kubelet API, where the cluster signs one."""
    reported_at: datetime | None = None
    """When the API accepted a status last."""
    renewed_at: datetime | None = None
    """When the API accepted a renewal of the lease last."""
    failures: Mapping[str, str] = field(default_factory=dict)
    """The setters that failed when the status was computed last, and why."""
    not_ready: str = ""
    """What its Node says against being ready."""
    clock: str = ""
    """How far the machine's clock is from the API server's, '' where that is of no matter."""
