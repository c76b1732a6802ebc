"""The cluster's view of a machine whose kubelet requests a certificate from it. Only reads, and never raises."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from kubewright.base.clock import Clock
from kubewright.base.errors import KubewrightError
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.discovery.node_requests import NodeRequests, RequestStatus
    from kubewright.host.states import ServiceState
    from kubewright.kube.api import KubeAPI

PATIENCE: Final = 5.0
"""Seconds that one request may take, while the wait that it explains continues."""
_ROUNDED: Final = timedelta(seconds=2)
"""The precision of the API server's times, which are whole seconds."""
SET_CLOCK: Final = "set the clock of this machine (`timedatectl set-ntp true`), then run the same command again"


@dataclass(frozen=True, kw_only=True)
class ClusterView:
    """The state of the kubelet's certificate request, None if unknown, and the clock's error, '' if it is right."""

    request: RequestStatus | None = None
    clock: str = ""


class BootstrapLook:
    """Requests with the kubelet's credentials. `connect` returns the client, and may raise while they are missing."""

    def __init__(self, node_name: str, *, connect: Callable[[], KubeAPI], clock: Clock) -> None:
        self._node_name = node_name
        self._connect = connect
        self._clock = clock
        self._api: KubeAPI | None = None
        self._requests: NodeRequests | None = None

    def look(self, kubelet: ServiceState | None, *, thoroughly: bool = False) -> ClusterView:
        """Read the state from the cluster.

        Requests of earlier runs of the kubelet are ignored. `thoroughly` includes expensive requests.
        """
        from kubewright.discovery.node_requests import NodeRequests  # most waits are over before this is needed
        from kubewright.kube import server_info

        try:
            if self._api is None or self._requests is None:
                self._api = self._connect()
                self._requests = NodeRequests(self._api, self._node_name, clock=self._clock)
            date = self._api.raw("GET", server_info.VERSION).headers.get("date", "")
        except KubewrightError:
            return ClusterView()
        ahead = server_info.difference(date, now=self._clock.now())
        since = datetime.fromtimestamp(kubelet.since, UTC) - ahead - _ROUNDED if kubelet is not None and kubelet.since else None
        return ClusterView(request=self._requests.look(since=since, thoroughly=thoroughly), clock=server_info.trouble(ahead))
