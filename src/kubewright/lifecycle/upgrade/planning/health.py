"""The checks of a cluster before an upgrade (kubeadm v1.36: phases/upgrade/preflight.go and health.go)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from kubewright.apis.kubeadm.types import CONTROL_PLANE_LABEL, ClusterConfiguration
from kubewright.apis.kubeadm.versions import DEFAULT_REPOSITORY, component_image
from kubewright.base import untyped
from kubewright.base.checks import Check, Finding, Report, run_checks, warning
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, NotFound, ServerError, TooManyRequests, Unreachable, WaitTimeout
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass
from kubewright.base.versions import OWN, release_for
from kubewright.base.wait import Backoff, Waiter, retry
from kubewright.host.seam import Host
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP, NODE, POD, named
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE, NAMESPACE, dns_version
from kubewright.manifests import corefile

JOB: Final = "upgrade-health-check"
JOB_WITHIN: Final = 60.0
"""Seconds for the Job to complete, and for the API server to accept it."""
_JOB_LIVES: Final = 65
_USER: Final = 999
_PAUSES: Final = Backoff(first=0.1, factor=2.0, limit=1.0)
_PASSING: Final = (Unreachable, ServerError, TooManyRequests)
_COREFILE: Final = "check the ConfigMap kube-system/coredns; if it is valid for the new release of CoreDNS, ignore this check"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Health:
    """The input of the checks. `ignored` has names of checks in any case, or `all`."""

    api: KubeAPI
    host: Host
    clock: Clock
    waiter: Waiter
    ignored: Iterable[str] = ()

    def check_dns(self) -> Report:
        """Check the configuration of CoreDNS. Raises APIError if the cluster cannot be read."""
        return self._run(_OF_DNS)

    def check(self, cluster: object) -> Report:
        """Check that the cluster runs a Job, and its control planes. `cluster` is its ClusterConfiguration."""
        return self._run((_row("CreateJob", lambda health: health.jobs(cluster)), *_OF_CONTROL_PLANES))

    def _run(self, checks: Sequence[Check[Health]]) -> Report:
        return run_checks(checks, self, ignored=self.ignored, in_order=True)

    def jobs(self, cluster: object) -> Iterator[Finding]:
        """Run a Job whose only container prints its version. It is removed by its time to live."""
        name = f"{JOB}-{int(self.clock.now().timestamp() * 1000)}"
        remedy = "make sure that a Node accepts pods and that kube-controller-manager, kube-scheduler and the image registry work"
        try:
            if not self._patiently(lambda: self.api.list(NODE, field_selector="spec.unschedulable=false")):
                yield warning("no Job was tried, because no Node accepts pods", remedy="uncordon one before the upgrade")
                return
            self._patiently(lambda: self.api.create(_job(name, _pause_image(cluster))))
            self.waiter.until(
                lambda: self._unfinished(name), within=JOB_WITHIN, saying=f"the Job {NAMESPACE}/{name} to complete", every=0.1, at_most=1.0
            )
        except _JobFailed as failed:
            yield Finding(text=f"the Job {NAMESPACE}/{name} failed: {failed}", remedy=remedy)
        except WaitTimeout as error:
            yield Finding(text=f"the Job {NAMESPACE}/{name} did not complete in {JOB_WITHIN:.0f} s: {error.detail}", remedy=remedy)
        except APIError as error:
            yield Finding(text=f"the cluster accepts no Job: {error}", remedy=remedy)

    def _patiently(self, call: Callable[[], T]) -> T:
        return retry(call, clock=self.clock, on=_PASSING, within=JOB_WITHIN, backoff=_PAUSES)

    def _unfinished(self, name: str) -> str | None:
        """Return why the Job is not complete. kubeadm waits for a whole minute even if it has failed."""
        try:
            status = untyped.mapping(self.api.get(named("Job"), name, NAMESPACE).get("status"))
            for one in untyped.mappings(status.get("conditions")):
                if one.get("status") == "True" and one.get("type") == "Complete":
                    return None
                if one.get("status") == "True" and one.get("type") == "Failed":
                    raise _JobFailed(one.get("message") or one.get("reason") or "it does not say why")
            pods = self.api.list(POD, NAMESPACE, label_selector=f"batch.kubernetes.io/job-name={name}")
        except _PASSING as error:
            return str(error)
        return "; ".join(map(_state, pods)) or "it has no pod yet"


class _JobFailed(Exception):
    """The Job has failed."""


def _job(name: str, image: str) -> dict[str, Any]:
    """Return the Job: without privileges, on control planes too, and limited to the time for which the check waits."""
    container = {"name": JOB, "image": image, "args": ["-v"]}
    pod = {
        "restartPolicy": "Never",
        "securityContext": {"runAsUser": _USER, "runAsGroup": _USER, "runAsNonRoot": True},
        "tolerations": [{"key": CONTROL_PLANE_LABEL, "effect": "NoSchedule"}],
        "containers": [container],
    }
    spec = {"backoffLimit": 0, "ttlSecondsAfterFinished": _JOB_LIVES, "activeDeadlineSeconds": _JOB_LIVES, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def _pause_image(cluster: object) -> str:
    named = cluster.get("imageRepository") if isinstance(cluster, Mapping) else None
    repository = named if isinstance(named, str) and named else DEFAULT_REPOSITORY
    return component_image(ClusterConfiguration(kubernetes_version=KUBERNETES, image_repository=repository), "pause")


def _state(pod: Mapping[str, Any]) -> str:
    """Describe the state of a pod: what its container is waiting for, otherwise a condition, otherwise its phase."""
    status = untyped.mapping(pod.get("status"))
    states = [untyped.mapping(one.get("state")) for one in untyped.mappings(status.get("containerStatuses"))]
    conditions = [one for one in untyped.mappings(status.get("conditions")) if one.get("status") == "False"]
    rows = [*(untyped.mapping(one.get("waiting")) for one in states), *conditions]
    said = next((": ".join(str(one[key]) for key in ("reason", "message") if one.get(key)) for one in rows if one.get("reason")), "")
    return f"its pod is {status.get('phase', 'unknown')}{f' ({said})' if said else ''}"


def _outdated_corefile(api: KubeAPI) -> tuple[str, str] | None:
    """Return the configuration of CoreDNS and its release; None without a ConfigMap, or if it is the new release already."""
    try:
        data = api.get(CONFIG_MAP, "coredns", NAMESPACE).get("data") or {}
    except NotFound:
        return None
    text = data.get("Corefile")
    found = (text, dns_version(api).lstrip("v")) if isinstance(text, str) else ("", "")
    return found if found[1] != _target() else None


def _unknown(api: KubeAPI) -> Iterator[Finding]:
    """Find plugins and options that are unknown in a release between the present one and the new one."""
    found, target = _outdated_corefile(api), _target()
    if found is None:
        return
    text, installed = found
    problem = corefile.no_way(installed, target)
    if problem:
        yield Finding(text=problem, remedy=_COREFILE)
        return
    for one in dict.fromkeys(corefile.unknown(text, installed, target)):
        yield Finding(text=f"it is unknown whether {one} works with CoreDNS {target}", remedy=_COREFILE)


def _obstacles(api: KubeAPI) -> Iterator[Finding]:
    found = _outdated_corefile(api)
    if found is None:
        return
    text, installed = found
    unknown = corefile.no_way(installed, _target())
    obstacle = "" if unknown else corefile.obstacle(text, installed)
    if unknown:
        yield Finding(text=f"the configuration of CoreDNS will not be migrated: {unknown}", remedy=_COREFILE)
    if obstacle:
        yield Finding(text=f"CoreDNS will not be upgraded: {obstacle}", remedy=_COREFILE)


def _target() -> str:
    return release_for(OWN).coredns_tag.lstrip("v")


def _not_ready(api: KubeAPI) -> Iterator[Finding]:
    """Find control planes that are not Ready; one that has not reported yet does not count."""
    for node in api.list(NODE, label_selector=CONTROL_PLANE_LABEL):
        conditions = untyped.mappings(untyped.mapping(node.get("status")).get("conditions"))
        if any(one.get("type") == "Ready" and one.get("status") != "True" for one in conditions):
            yield Finding(text=f"the control plane {node['metadata']['name']} is not Ready", remedy="fix it before the upgrade")


def _missing(host: Host) -> Iterator[Finding]:
    paths = [host.layout.manifest(name) for name in CONTROL_PLANE]
    lacking = [str(path) for path in paths if host.read(path) is None]
    if lacking:
        yield Finding(text=f"manifests are missing: {', '.join(lacking)}", remedy="run this on a control plane")


def _row(name: str, find: Callable[[Health], Iterable[Finding]]) -> Check[Health]:
    """Return a check that reads the cluster: if that fails, the command ends with the reason."""
    return Check(name=name, find=find, passes_errors_on=True)


_OF_DNS: Final = (
    _row("CoreDNSUnsupportedPlugins", lambda health: _unknown(health.api)),
    _row("CoreDNSMigration", lambda health: _obstacles(health.api)),
)
_OF_CONTROL_PLANES: Final = (
    _row("ControlPlaneNodesReady", lambda health: _not_ready(health.api)),
    _row("StaticPodManifest", lambda health: _missing(health.host)),
)
