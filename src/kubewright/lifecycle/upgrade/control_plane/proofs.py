"""Verifies that components run from their manifests, by their health and by the version that each reports."""

from __future__ import annotations

import functools
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, ComponentFailed
from kubewright.base.events import Waited
from kubewright.base.records import replace
from kubewright.etcd import voters
from kubewright.kube.resources import POD
from kubewright.lifecycle import stacked_etcd
from kubewright.lifecycle.steps import component_versions, health, static_pod_proof
from kubewright.lifecycle.steps.component_versions import core
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD, read_static_pod
from kubewright.lifecycle.steps.static_pod_proof import Asked, StaticPodProof
from kubewright.lifecycle.upgrade.control_plane import elections
from kubewright.lifecycle.upgrade.planning.versions import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubewright.etcd.api import Status
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.steps.health import HealthEndpoint
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_ENDS_WITHIN: Final = 8.0
"""Seconds in which an API server answers its last requests: the kubelet first tries to start the new pod after ten."""
_NUDGED: Final = "kubewright.upgrade/nudged"
_NUDGED_EVERY: Final = 1.0
_HEALTHY: Final = "healthy"
_REMEDY: Final = "fix what the component reports, then run the same command again"
_ETCD_LOST: Final = (
    "if etcd cannot use its data any more: with other members, run `kubewright etcd member replace` on this machine; without them, "
    "`kubewright etcd restore` with the snapshot that was saved below /etc/kubernetes/tmp before the upgrade"
)


def of(ctx: UpgradeContext, name: str) -> StaticPodProof:
    """Return the proof that a component runs from its manifest."""
    asked = _api_server(ctx) if name == API_SERVER else _etcd(ctx) if name == ETCD else _with_metrics(ctx, name)
    return StaticPodProof(name=name, pod=_pod_of(ctx, name), asked=asked, host=ctx.host, now=lambda: ctx.clock.now().timestamp())


def _pod_of(ctx: UpgradeContext, name: str) -> str:
    """Return the name of a static pod (kubelet v1.36: pkg/kubelet/config/common.go, generatePodName)."""
    return f"{name}-{ctx.node_name}"


def wait(ctx: UpgradeContext, proof: StaticPodProof, version: str, *, back: bool = False, steady: float = 0.0) -> Waited:
    """Wait until a proof succeeds, and record it. Raises ComponentFailed or WaitTimeout with the last output of the component."""
    waited = _until(ctx, proof, version, back=back, steady=steady)
    if steady:
        found = f"the same container for {proof.age:.0f} s"
        ctx.prove(f"{proof.name} stays up", expected=f"the same container for {steady:.0f} s", found=found)
    else:
        ctx.prove(f"health of {proof.name}", expected=_HEALTHY, found=_HEALTHY)
        if version:
            ctx.prove(f"version of {proof.name}", expected=version, found="".join(map(core, proof.reported)) or "not reported")
    return waited


def _until(ctx: UpgradeContext, proof: StaticPodProof, version: str, *, back: bool, steady: float) -> Waited:
    saying = f"{proof.name} to run{f' {version}' if version else ''}" if not steady else f"{proof.name} to stay up"
    speed_up = _stopping(ctx, proof) if proof.name == API_SERVER else _nudging(ctx, proof.name)

    def fault() -> str | None:
        reason = proof.fault(version, back=back, steady=steady)
        if reason == static_pod_proof.NOT_STARTED:
            speed_up()
        return reason

    within = ctx.timeouts.upgrade_manifests.seconds
    end, replaced = ctx.clock.monotonic() + within, back and bool(proof.replaced)
    remedy = _ETCD_LOST if back and proof.name == ETCD else _REMEDY
    while True:
        try:
            return ctx.components.until(fault, saying=saying, blame=(proof.name,), within=within, at_most=0.2, remedy=remedy)
        except ComponentFailed:
            # A slow kubelet has not noticed yet that the manifest was restored, and starts the failing pod once more.
            # The restored pod may have been started since that pod failed: it is watched once before its failure counts.
            if not replaced or ctx.clock.monotonic() >= end:
                raise
            replaced = proof.is_replaced()


def _nudging(ctx: UpgradeContext, name: str) -> Callable[[], None]:
    """Return a function that makes the kubelet start a static pod as soon as the former one has ended.

    The kubelet does not start a static pod before the former one of its name has ended, and then tries again only after
    10 to 15 seconds, or when the mirror pod changes (kubelet v1.36: pkg/kubelet/pod_workers.go, allowPodStart;
    pkg/kubelet/kubelet.go, HandlePodUpdates). It replaces the mirror pod when the new pod starts. Without an API server,
    as while etcd is replaced, that pause passes.
    """

    def nudge() -> None:
        body = {"metadata": {"annotations": {_NUDGED: f"{ctx.clock.monotonic():.3f}"}}}
        with suppress(APIError):
            ctx.probe.patch(POD, _pod_of(ctx, name), body, NAMESPACE, type="merge")

    return _at_intervals(ctx, _NUDGED_EVERY, nudge)


def _stopping(ctx: UpgradeContext, proof: StaticPodProof) -> Callable[[], None]:
    """Return a function that stops the former API server if it has begun to end, and does not end in time.

    Open watches keep an API server from ending until the kubelet kills it after 30 seconds, although it has closed its
    port (kube-apiserver v1.36: k8s.io/apiserver/pkg/server/genericapiserver.go, ShutdownTimeout). Other requests have
    been answered by then.
    """

    def stop() -> None:
        if health.unready(ctx.probe) is not None:
            proof.stop_former()

    return _at_intervals(ctx, _ENDS_WITHIN, stop)


def _at_intervals(ctx: UpgradeContext, seconds: float, act: Callable[[], None]) -> Callable[[], None]:
    """Return a function that acts at most once per interval of seconds, which begins now."""
    due = ctx.clock.monotonic() + seconds

    def acting() -> None:
        nonlocal due
        if ctx.clock.monotonic() >= due:
            due = ctx.clock.monotonic() + seconds
            act()

    return acting


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
        return component_versions.build_version(answer.body.decode(errors="replace")) if answer.status == 200 else ""

    return Asked(healthy=healthy, version=version, led=functools.partial(elections.led, ctx, name))


def _probed(ctx: UpgradeContext, name: str) -> tuple[str, str] | None:
    found = read_static_pod(ctx.host, ctx.host.layout.manifest(name))
    return static_pod_proof.probed(found.body) if found is not None else None


def _etcd(ctx: UpgradeContext) -> Asked:
    """Ask the member of this machine: it must have a vote, all that it had before, and the same data as the others.

    That is compared once, because hashing reads the whole database.
    """
    endpoint = stacked_etcd.client_url(ctx.addresses)
    known, compared = 0, False

    def note() -> None:
        nonlocal known
        known = ctx.etcd.status(endpoint).revision

    def healthy() -> str | None:
        nonlocal compared
        found = ctx.etcd.status(endpoint)
        reason = found.reason or _standing(found, known)
        if reason or compared:
            return reason
        reason = voters.unlike_others(ctx.etcd, endpoint)
        compared = reason is None
        return reason

    return Asked(healthy=healthy, version=lambda: ctx.etcd.status(endpoint).version, note=note)


def _standing(found: Status, known: int) -> str | None:
    if found.learner:
        return "it has no vote yet"
    return f"it is at revision {found.revision}, and was at {known} before" if found.revision < known else None
