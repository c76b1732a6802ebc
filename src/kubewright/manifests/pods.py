"""The common parts of kubeadm's static pods (kubeadm v1.36: util/staticpod, phases/controlplane): flags, volumes, probes.

A component's row contains the rest. Rows of flags give kubeadm's defaults; a machine's overrides replace them; the
user's arguments take precedence over both.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.kubeadm.types import (
    APIServer,
    Arg,
    ClusterConfiguration,
    Configuration,
    ControlPlaneComponent,
    EnvVar,
    ExternalEtcd,
    HostPathMount,
    LocalEtcd,
)
from kubewright.apis.kubeadm.versions import component_image
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.durations import SECOND, Duration
from kubewright.base.records import dataclass, field
from kubewright.host.facts import CA_DIRECTORIES

Value = str | int | PurePosixPath | None

DIRECTORY: Final = "DirectoryOrCreate"
FILE: Final = "FileOrCreate"
SYSTEM_CERTIFICATES: Final = "/etc/ssl/certs"
NAMESPACE: Final = "kube-system"
ANY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - where a component listens
_PERIOD: Final = 10
_PORT: Final = "probe-port"
Settings = APIServer | ControlPlaneComponent | LocalEtcd


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs of one component's manifest.

    `extra_args` are the user's for this component, `overrides` the machine's.
    """

    configuration: Configuration
    layout: Layout
    addresses: Addresses
    detected: Detected
    extra_args: Sequence[Arg] = ()
    overrides: Mapping[str, str] = field(default_factory=dict)
    external_ca: bool = False

    @property
    def cluster(self) -> ClusterConfiguration:
        """The ClusterConfiguration."""
        return self.configuration.cluster

    def given(self, name: str) -> str | None:
        """Return the value of a flag that the user or the machine set; the last of several applies, as in kubeadm."""
        given = [arg.value for arg in self.extra_args if arg.name == name]
        return given[-1] if given else self.overrides.get(name)

    def bind_address(self, otherwise: str) -> str:
        """Return the address that the component listens on: the user's `bind-address`, or the machine's.

        An empty one means all addresses.
        """
        given = self.given("bind-address")
        return otherwise if given is None else given

    def secure_port(self, otherwise: int) -> int:
        """Return the port that the component serves on: the user's `secure-port`, or the machine's. kubeadm's probes ignore the user's."""
        given = self.given("secure-port") or ""
        return int(given) if given.isascii() and given.isdecimal() and 0 < int(given) < 1 << 16 else otherwise


@dataclass(frozen=True)
class Flag:
    """One default flag. It is omitted if its value is None; an empty text is written as `--name=`."""

    name: str
    value: Callable[[Inputs], Value]


def const(text: str) -> Callable[[Inputs], Value]:
    """Return a constant value."""
    return lambda _: text


def arguments(flags: Sequence[Flag], inputs: Inputs) -> list[str]:
    """Return the arguments of a command: defaults by name, then the user's in their own order.

    An argument of the user removes all defaults of the same name.
    """
    values = {flag.name: value for flag in flags if (value := flag.value(inputs)) is not None} | dict(inputs.overrides)
    mine = {arg.name for arg in inputs.extra_args}
    defaults = [f"--{name}={values[name]}" for name in sorted(values) if name not in mine]
    return [*defaults, *(f"--{arg.name}={arg.value}" for arg in inputs.extra_args)]


def changed_port(port: int, default: int) -> int | None:
    """Return a port as the value of a flag that kubeadm does not write: None for the component's own default."""
    return None if port == default else port


def mounted(name: str, path: PurePosixPath | str, kind: str, *, read_only: bool = True) -> HostPathMount:
    """Return a mount of a path at the same path."""
    return HostPathMount(name=name, host_path=str(path), mount_path=str(path), read_only=read_only, path_type=kind)


def certificates(inputs: Inputs) -> list[HostPathMount]:
    """Return the mounts that all TLS components need: the system's certificates, ours, and the host's CA directories that exist."""
    return [
        mounted("ca-certs", SYSTEM_CERTIFICATES, DIRECTORY),
        mounted("k8s-certs", inputs.layout.pki, DIRECTORY),
        *(mounted(path.removeprefix("/").replace("/", "-"), path, DIRECTORY) for path in inputs.detected.ca_directories),
    ]


def external_etcd(external: ExternalEtcd | None, pki: PurePosixPath) -> list[HostPathMount]:
    """Return the directories of an external etcd's files that are not mounted otherwise.

    Whether a directory contains another is decided by the text prefix, as in kubeadm: `/srv/etcd-old` counts as inside
    `/srv/etcd`.
    """
    if external is None:
        return []
    known = (*CA_DIRECTORIES, SYSTEM_CERTIFICATES, str(pki))
    kept: list[str] = []
    for path in filter(None, (external.ca_file, external.cert_file, external.key_file)):
        directory = posixpath.dirname(posixpath.normpath(path)) or "."
        if directory == "." or directory.startswith(known):
            continue
        inside = any(directory.startswith(other) for other in kept)
        kept = [other for other in kept if not other.startswith(directory) or other == directory]
        if not inside:
            kept.append(directory)
    return [mounted(f"etcd-certs-{index}", directory, DIRECTORY) for index, directory in enumerate(sorted(set(kept)))]


def merged(defaults: Iterable[HostPathMount], extra: Iterable[HostPathMount]) -> list[HostPathMount]:
    """Return one mount per name, in order of first appearance; the last one applies, so the user's replace defaults."""
    return list({mount.name: mount for mount in (*defaults, *extra)}.values())


def volume_documents(mounts: Sequence[HostPathMount]) -> list[dict[str, Any]]:
    """Return `spec.volumes`, sorted by name. An empty type is included."""
    return [
        {"hostPath": {"path": mount.host_path, "type": mount.path_type}, "name": mount.name}
        for mount in sorted(mounts, key=lambda mount: mount.name)
    ]


def mount_documents(mounts: Sequence[HostPathMount]) -> list[dict[str, Any]]:
    """Return `volumeMounts` of a container in the order given."""
    return [{"mountPath": mount.mount_path, "name": mount.name} | ({"readOnly": True} if mount.read_only else {}) for mount in mounts]


@dataclass(frozen=True, kw_only=True)
class Probes:
    """The health endpoints of a component.

    Without a host, the kubelet uses the pod's address; without `ready`, there is no readiness probe.
    """

    port: int
    live: str
    start: str
    ready: str = ""
    host: str = ""
    scheme: str = "HTTPS"


def no_annotations(_: Inputs) -> dict[str, str]:
    """Return no annotations, as for most components."""
    return {}


@dataclass(frozen=True, kw_only=True)
class Component:
    """A row of the static pods: the differences between components.

    `settings` picks the user's settings; `mounts` are kubeadm's own, before the user's. The proxy variables of our
    environment are passed on to components with `takes_proxies`.
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
    mounts = merged(component.mounts(inputs), extra)
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
            "volumes": volume_documents(mounts),
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
        "volumeMounts": mount_documents(mounts),
    }


def environment(proxies: Mapping[str, str], extra: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Return `env`, sorted by name: our proxy variables, overridden by the user's; the last one of a name applies."""
    named = {name: EnvVar(name=name, value=value) for name, value in proxies.items()} | {one.name: one for one in extra}
    return [_variable(named[name]) for name in sorted(named)]


def _variable(one: EnvVar) -> dict[str, Any]:
    return (
        {"name": one.name}
        | ({"value": one.value} if one.value else {})
        | ({"valueFrom": _copied(one.value_from)} if one.value_from else {})
    )


def _copied(value: Any) -> Any:
    """Return plain dicts and lists, so that nothing is shared with the frozen configuration."""
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return [_copied(part) for part in value] if isinstance(value, (list, tuple)) else value


def _probe_documents(probes: Probes, patience: Duration) -> dict[str, Any]:
    """Return the probes.

    The start-up probe has as many attempts, 10 s apart, as the configured timeout requires; Go omits a 0.
    """
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
    """Return the probe's host for a component that listens on an address: none if it listens on all."""
    return "" if address in ANY_ADDRESS else address
