"""Verifies that components run from their manifests, by their health and by the version that each reports."""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError
from kubewright.base.events import Waited
from kubewright.base.records import replace
from kubewright.kube.resources import POD
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.steps import health, running
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD, read_static_pod
from kubewright.lifecycle.steps.running import Asked, StaticPodProof
from kubewright.lifecycle.upgrade.planning.versions import NAMESPACE

if TYPE_CHECKING:
    from kubewright.etcd.api import Status
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.steps.health import HealthEndpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_SERVING: Final = (ETCD, API_SERVER)
"""While these are replaced, there is no mirror pod that could be changed."""
_NUDGED: Final = "kubewright.upgrade/nudged"
_NUDGED_EVERY: Final = 1.0
_REMEDY = "fix what the component reports, then run the same command again"


def of(ctx: UpgradeContext, name: str) -> StaticPodProof:
    """Return the proof that a component runs from its manifest."""
    asked = _api_server(ctx) if name == API_SERVER else _etcd(ctx) if name == ETCD else _with_metrics(ctx, name)
    return StaticPodProof(name=name, asked=asked, host=ctx.host, now=lambda: ctx.clock.now().timestamp())


def wait(ctx: UpgradeContext, proof: StaticPodProof, version: str, *, back: bool = False, steady: float = 0.0) -> Waited:
    """Wait until a proof succeeds. Raises ComponentFailed or WaitTimeout with the last output of the component."""
    saying = f"{proof.name} to run{f' {version}' if version else ''}" if not steady else f"{proof.name} to stay up"
    nudge = _Nudge(ctx, proof.name)

    def fault() -> str | None:
        reason = proof.fault(version, back=back, steady=steady)
        if reason == running.NOT_STARTED and proof.name not in _SERVING:
            nudge()
        return reason

    return ctx.components.until(
        fault,
        saying=saying,
        blame=(proof.name,),
        within=ctx.timeouts.upgrade_manifests.seconds,
        at_most=0.2,
        remedy=_REMEDY,
    )


class _Nudge:
    """Makes the kubelet start a static pod as soon as the former one has ended, by changing its mirror pod.

    The kubelet does not start a static pod before the former one of its name has ended, and then tries again only after
    10 to 15 seconds, or when the mirror pod changes (kubelet v1.36: pkg/kubelet/pod_workers.go, allowPodStart;
    pkg/kubelet/kubelet.go, HandlePodUpdates). It replaces the mirror pod when the new pod starts.
    """

    def __init__(self, ctx: UpgradeContext, name: str) -> None:
        self._ctx = ctx
        self._pod = f"{name}-{ctx.node_name}"
        self._last = ctx.clock.monotonic()

    def __call__(self) -> None:
        """Change the mirror pod, at most once a second. Without an API server, the kubelet's own pause passes."""
        now = self._ctx.clock.monotonic()
        if now - self._last < _NUDGED_EVERY:
            return
        self._last = now
        with suppress(APIError):
            self._ctx.probe.patch(POD, self._pod, {"metadata": {"annotations": {_NUDGED: f"{now:.3f}"}}}, NAMESPACE, type="merge")


def _api_server(ctx: UpgradeContext) -> Asked:
    return Asked(healthy=lambda: health.unready(ctx.probe), version=lambda: _reported(ctx))


def _reported(ctx: UpgradeContext) -> str:
    try:
        return str(json.loads(ctx.probe.raw("GET", "/version").body)["gitVersion"])
    except (ValueError, LookupError, TypeError) as error:
        raise APIError("the API server of this machine does not report its version", detail=str(error)) from error


def _with_metrics(ctx: UpgradeContext, name: str) -> Asked:
    """Use the endpoint of the manifest's probe. The version is unknown if the component's metrics are not readable."""

    @functools.cache
    def endpoint(server: str, path: str) -> HealthEndpoint:
        return ctx.health_endpoint(server, path)

    @functools.cache
    def client(server: str) -> KubeAPI:  # its serving certificate is self-signed
        return ctx.bound.connections.kube(replace(ctx.administrator, server=server, ca_pem=None, verify=False, tls_server_name=""))

    def healthy() -> str | None:
        asked = _probed(ctx, name)
        return endpoint(*asked)() if asked is not None else None

    def version() -> str:
        asked = _probed(ctx, name)
        if asked is None or not asked[0].startswith("https:"):
            return ""
        answer = client(asked[0]).raw("GET", "/metrics")
        return running.build_version(answer.body.decode(errors="replace")) if answer.status == 200 else ""

    return Asked(healthy=healthy, version=version)


def _probed(ctx: UpgradeContext, name: str) -> tuple[str, str] | None:
    found = read_static_pod(ctx.host, ctx.host.layout.manifest(name))
    return running.probed(found.body) if found is not None else None


def _etcd(ctx: UpgradeContext) -> Asked:
    endpoint = stacked_etcd.client_url(ctx.addresses)

    def healthy() -> str | None:
        found = ctx.etcd.status(endpoint)
        return found.reason or _standing(found)

    return Asked(healthy=healthy, version=lambda: ctx.etcd.status(endpoint).version)


def _standing(found: Status) -> str | None:
    return "it has no vote yet" if found.learner else None
