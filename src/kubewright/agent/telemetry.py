"""The health and metrics that `agent run` serves at its health port.

Metrics that the kubelet has too carry the kubelet's names (client-go v0.36: util/certificate). Like the kubelet's
health port, this one does not authenticate clients: by default it listens on loopback, and nothing on it is secret.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final

from kubewright.agent.certificates.manager import REASONS, CertificateView
from kubewright.agent.status.setters import SETTERS
from kubewright.agent.view import NodePhase, NodeView
from kubewright.base.clock import Clock
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry

_NONE: Final = CertificateView()
_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}


def routes(unhealthy: Callable[[], str], registry: Registry) -> list[Route]:
    """Return the routes. `unhealthy` returns why `/healthz` is not ok; '' if it is."""

    async def health(_: Request) -> Response:
        reason = unhealthy()
        return Response(status=500 if reason else 200, headers=_TEXT, body=(reason or "ok").encode())

    async def metrics(request: Request) -> Response:
        return registry.read(request.headers.get("accept", ""))

    return [Route(method="GET", pattern="/healthz", handler=health), Route(method="GET", pattern="/metrics", handler=metrics)]


def follow(registry: Registry, view: Callable[[], NodeView | None], *, clock: Clock, tasks: Callable[[], float] = lambda: 0.0) -> None:
    """Register metrics that read the state of an agent when they are scraped.

    The agent is None before it exists. `tasks` counts the tasks of its process.
    """

    def seen(value: Callable[[NodeView], float]) -> Callable[[], float]:
        def look() -> float:
            found = view()
            return 0.0 if found is None else value(found)

        return look

    for name, text, value in _numbers(clock):
        registry.gauge(name, text).follow(seen(value))
    waits = registry.gauge("kubewright_agent_certificate_waits", "1 for why there is no new certificate.", labels=("certificate", "reason"))
    for reason in REASONS:
        waits.follow(seen(partial(_waits, reason, lambda node: node.certificate)), "client", reason)
        waits.follow(seen(partial(_waits, reason, _serving)), "server", reason)
    registry.gauge("kubewright_agent_tasks", "Tasks in the process.").follow(tasks)
    phases = registry.gauge("kubewright_agent_phase", "1 for the phase that the agent is in.", labels=("phase",))
    for phase in NodePhase:
        phases.follow(seen(partial(_is_in, phase)), phase.value)
    failed = registry.gauge("kubewright_agent_setter_failed", "Whether a part of the status could not be determined.", labels=("setter",))
    for setter in SETTERS:
        failed.follow(seen(partial(_has_failed, setter)), setter)


def _numbers(clock: Clock) -> Sequence[tuple[str, str, Callable[[NodeView], float]]]:
    """Return name, text and value of each metric without labels."""

    def left(moment: datetime | None) -> float:
        seconds = -1.0 if moment is None else (moment - clock.now()).total_seconds()
        return math.inf if seconds < 0 else math.trunc(seconds)

    def since(moment: datetime | None) -> float:
        return math.inf if moment is None else (clock.now() - moment).total_seconds()

    return (
        (
            "kubelet_certificate_manager_client_ttl_seconds",
            "Seconds until the client certificate expires; +Inf without a valid one.",
            lambda node: left(node.certificate.expires),
        ),
        (
            "kubelet_certificate_manager_client_expiration_renew_errors",
            "Attempts at a client certificate that failed.",
            lambda node: float(node.certificate.errors),
        ),
        (
            "kubelet_certificate_manager_server_ttl_seconds",
            "Seconds until the serving certificate expires; +Inf without a valid one that the cluster has signed.",
            lambda node: left(_serving(node).expires),
        ),
        (
            "kubelet_server_expiration_renew_errors",
            "Attempts at a serving certificate that failed.",
            lambda node: float(_serving(node).errors),
        ),
        ("kubewright_agent_ready", "Whether the Node is Ready, and because of this agent.", lambda node: float(node.ready)),
        (
            "kubewright_agent_waiting_for_certificate",
            "Whether a certificate request is open.",
            lambda node: float(node.certificate.waiting is not None or _serving(node).waiting is not None),
        ),
        ("kubewright_agent_status_age_seconds", "Seconds since the API accepted a status.", lambda node: since(node.reported_at)),
        (
            "kubewright_agent_lease_age_seconds",
            "Seconds since the API accepted a renewal of the lease.",
            lambda node: since(node.renewed_at),
        ),
    )


def _serving(view: NodeView) -> CertificateView:
    return view.serving or _NONE


def _waits(reason: str, certificate: Callable[[NodeView], CertificateView], view: NodeView) -> float:
    return float(certificate(view).reason.partition(":")[0] == reason)


def _is_in(phase: NodePhase, view: NodeView) -> float:
    return float(view.phase is phase)


def _has_failed(setter: str, view: NodeView) -> float:
    return float(setter in view.failures)
