"""The common shape of kubeadm's static pods (spec/kubeadm.md 6.1 to 6.3): everything but what a component's row says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kubewright.apis.kubeadm.image_names import component_image
from kubewright.apis.kubeadm.types import APIServer, ControlPlaneComponent, EnvVar, HostPathMount, LocalEtcd
from kubewright.base.durations import SECOND, Duration
from kubewright.base.records import dataclass
from kubewright.manifests import volumes
from kubewright.manifests.flags import Flag, Inputs, arguments

NAMESPACE: Final = "kube-system"
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - where a component listens
_PERIOD: Final = 10
_PORT: Final = "probe-port"

Settings = APIServer | ControlPlaneComponent | LocalEtcd


@dataclass(frozen=True, kw_only=True)
class Probes:
    """Where a component says how it is. Without a host the kubelet asks at the pod's address; without `ready` there is no such probe."""

    port: int
    live: str
    start: str
    ready: str = ""
    host: str = ""
    scheme: str = "HTTPS"


def no_annotations(_: Inputs) -> dict[str, str]:
    """Return no annotations: most components have none."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Component:
    """One row of the static pods: what differs from component to component.

    `settings` picks the user's settings; `mounts` are kubeadm's own, before the user's. The proxy variables of our environment are handed on
    to components with `takes_proxies`.
    """

    name: str
    flags: tuple[Flag, ...]
    settings: Callable[[Inputs], Settings]
    probes: Callable[[Inputs], Probes]
    mounts: Callable[[Inputs], Sequence[HostPathMount]]
    requests: Mapping[str, str]
    annotations: Callable[[Inputs], Mapping[str, str]] = no_annotations
    takes_proxies: bool = True
    sorts_mounts: bool = True


def pod(component: Component, inputs: Inputs) -> dict[str, Any]:
    """Return the manifest of a component."""
    settings = component.settings(inputs)
    extra = () if isinstance(settings, LocalEtcd) else settings.extra_volumes
    mounts = volumes.merged(component.mounts(inputs), extra)
    annotations = dict(component.annotations(inputs))
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **({"annotations": annotations} if annotations else {}),
            "labels": {"component": component.name, "tier": "control-plane"},
            "name": component.name,
            "namespace": NAMESPACE,
        },
        "spec": {
            "containers": [_container(component, inputs, settings, mounts)],
            "hostNetwork": True,
            "priority": 2000001000,
            "priorityClassName": "system-node-critical",
            "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": volumes.volume_documents(mounts),
        },
        "status": {},
    }


def _container(component: Component, inputs: Inputs, settings: Settings, mounts: list[HostPathMount]) -> dict[str, Any]:
    proxies = inputs.detected.proxy_environment if component.takes_proxies else {}
    env = environment(proxies, settings.extra_envs)
    probes = component.probes(inputs)
    if component.sorts_mounts:
        mounts = sorted(mounts, key=lambda mount: mount.name)
    return {
        "command": [component.name, *arguments(component.flags, inputs)],
        **({"env": env} if env else {}),
        "image": component_image(inputs.cluster, component.name),
        "imagePullPolicy": "IfNotPresent",
        **_probe_documents(probes, inputs.configuration.init.timeouts.control_plane_component_health_check),
        "name": component.name,
        "ports": [{"containerPort": probes.port, "name": _PORT, "protocol": "TCP"}],
        "resources": {"requests": dict(component.requests)},
        "volumeMounts": volumes.mount_documents(mounts),
    }


def environment(proxies: Mapping[str, str], extra: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Return `env`, sorted by name: our proxy variables, overlaid by the user's; of two with one name the last counts."""
    named = {name: EnvVar(name=name, value=value) for name, value in proxies.items()} | {one.name: one for one in extra}
    return [_variable(named[name]) for name in sorted(named)]


def _variable(one: EnvVar) -> dict[str, Any]:
    return (
        {"name": one.name}
        | ({"value": one.value} if one.value else {})
        | ({"valueFrom": _copied(one.value_from)} if one.value_from else {})
    )


def _copied(value: Any) -> Any:
    """Return plain dicts and lists, so that nothing of the frozen configuration is shared."""
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, (list, tuple)) else value


def _probe_documents(probes: Probes, patience: Duration) -> dict[str, Any]:
    """Return the probes. The start-up probe has as many tries, 10 s apart, as the configured time-out needs; Go leaves out a 0."""
    failures = -(-patience // (_PERIOD * SECOND))
    start = _probe(probes, probes.start, delay=_PERIOD, period=_PERIOD, failures=failures)
    if not failures:
        del start["failureThreshold"]
    ready = {"readinessProbe": _probe(probes, probes.ready, delay=0, period=1, failures=3)} if probes.ready else {}
    return {
        "livenessProbe": _probe(probes, probes.live, delay=_PERIOD, period=_PERIOD, failures=8),
        **ready,
        "startupProbe": start,
    }


def _probe(probes: Probes, path: str, *, delay: int, period: int, failures: int) -> dict[str, Any]:
    host = {} if not probes.host else {"host": probes.host}
    return {
        "failureThreshold": failures,
        "httpGet": {**host, "path": path, "port": _PORT, "scheme": probes.scheme},
        **({"initialDelaySeconds": delay} if delay else {}),
        "periodSeconds": period,
        "timeoutSeconds": 15,
    }


def probe_host(address: str) -> str:
    """Return the host to ask for something that listens on an address: none where it listens on all."""
    return "" if address in ANY_ADDRESS else address
