"""The options of one run of an agent on a machine, from the configuration, the flags and the machine's name.

Pure, except for `require_kubeconfig`, which looks at a file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.agent.configuration.kubelet_api import KubeletAPIOptions, kubelet_api_options
from kubewright.agent.configuration.reading import AgentConfiguration
from kubewright.agent.dependencies import Duties, Timings
from kubewright.agent.observation.addresses import canonical, node_ip_errors
from kubewright.agent.observation.observer import ObservationSettings
from kubewright.agent.status.facts import MachineProfile, NodeFacts, check_labels
from kubewright.agent.status.pressures import HARD_EVICTION, thresholds
from kubewright.apis.formats import subdomain_problems
from kubewright.base.errors import DocumentError, UsageError, ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.quantity import Quantity
from kubewright.base.records import dataclass, replace
from kubewright.base.versions import OWN
from kubewright.host.facts import MachineInfo, count_cores
from kubewright.host.readers import FileReader

ROOT: Final = PurePosixPath("/var/lib/kubelet")
NO_PODS: Final = ("kubewright.dev/no-pods", "", "NoSchedule")
"""The taint of a Node whose agent runs no pods."""
UNINITIALIZED: Final = ("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")
SHORTEST: Final = 600.0
"""The shortest certificate lifetime that may be requested, in seconds (certificates.k8s.io: expirationSeconds)."""
_RESERVED: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, kw_only=True)
class Own:
    """Values of the flags that set no field of KubeletConfiguration.

    '' and () for those that were not given.
    """

    kubeconfig: str = ""
    bootstrap_kubeconfig: str = ""
    cert_dir: str = ""
    root_dir: str = ""
    hostname_override: str = ""
    node_ips: tuple[str, ...] = ()
    node_labels: tuple[str, ...] = ()
    cloud_provider: str = ""
    certificate_lifetime: float = 0.0
    exit_without_certificate: float = 0.0
    """Both in seconds, 0 for none."""


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """All options of a run.

    Paths are those of the machine; `runtime` is the address of the container runtime, '' for none.
    """

    name: str
    kubeconfig: PurePosixPath
    bootstrap: PurePosixPath | None
    pki: PurePosixPath
    root: PurePosixPath
    runtime: str
    runtime_timeout: float
    observation: ObservationSettings
    duties: Duties
    timings: Timings
    health: tuple[str, int]
    """Address and port of the health endpoint; port 0 disables it."""
    kubelet_api: KubeletAPIOptions | None
    labels: tuple[tuple[str, str], ...]
    kubelet: Mapping[str, Any]
    external_cloud: bool = False
    exit_after: float = 0.0
    """Seconds without a client certificate after which the process ends, 0 for never."""

    def facts(self, machine: MachineInfo, *, storage: int) -> NodeFacts:
        """Return what the agent knows about its node.

        `storage` is the size of the file system that holds the root directory.
        """
        kubelet = self.kubelet
        isolates_storage = _or(kubelet["localStorageCapacityIsolation"], True)
        given = tuple((one["key"], one["value"], one["effect"]) for one in kubelet["registerWithTaints"] or ())
        return NodeFacts(
            name=self.name,
            profile=_profile(kubelet, machine, storage=storage if isolates_storage else 0),
            addresses=(),
            kubelet_port=kubelet["port"],
            labels=self.labels,
            taints=(*given, *((UNINITIALIZED,) if self.external_cloud else ()), NO_PODS),
            provider_id=kubelet["providerID"],
            attach_detach=_or(kubelet["enableControllerAttachDetach"], True),
            max_images=_or(kubelet["nodeStatusMaxImages"], 50),
            needs_pod_range=False,
            external_cloud=self.external_cloud,
            node_ips=self.observation.node_ips,
            isolates_storage=isolates_storage,
        )


def require_kubeconfig(options: AgentOptions, files: FileReader) -> None:
    """Raise DocumentError if there is neither a kubeconfig nor a bootstrap kubeconfig.

    That ends the process, as it ends a kubelet (kubelet v1.36: cmd/kubelet/app/server.go, buildKubeletClientConfig).
    """
    if options.bootstrap is None and files.state(options.kubeconfig) is None:
        raise DocumentError(
            f"the kubeconfig {options.kubeconfig} does not exist",
            remedy="check --kubeconfig, or pass a file to join with: --bootstrap-kubeconfig",
        )


def options_of(configuration: AgentConfiguration, own: Own, *, host_name: str) -> AgentOptions:
    """Combine files and flags.

    Raises UsageError without a kubeconfig, ValidationError for values that no node can have.
    """
    _require_usable(own)
    kubelet = configuration.kubelet
    name = (own.hostname_override or host_name).strip().lower()
    labels, node_ips = _labels(own.node_labels), canonical(own.node_ips)
    check_labels(dict(labels))
    if errors := [*_name_errors(name), *node_ip_errors(node_ips), *_lifetime_errors(own.certificate_lifetime)]:
        raise ValidationError("no node can have these settings", errors, remedy="correct the flags named above")
    root = PurePosixPath(own.root_dir) if own.root_dir else ROOT
    hold = kubelet["evictionPressureTransitionPeriod"].seconds
    watched = thresholds(hard_eviction(kubelet), kubelet["evictionSoft"] or {}, kubelet["evictionMinimumReclaim"] or {})
    return AgentOptions(
        name=name,
        kubeconfig=PurePosixPath(own.kubeconfig),
        bootstrap=PurePosixPath(own.bootstrap_kubeconfig) if own.bootstrap_kubeconfig else None,
        pki=PurePosixPath(own.cert_dir) if own.cert_dir else root / "pki",
        root=root,
        runtime=kubelet["containerRuntimeEndpoint"],
        runtime_timeout=kubelet["runtimeRequestTimeout"].seconds,
        observation=ObservationSettings(name=name, node_ips=node_ips, thresholds=watched, hold=hold),
        duties=Duties(
            registers=_or(kubelet["registerNode"], True),
            csi_node=True,
            rotates=kubelet["rotateCertificates"],
            kubeconfig_at_once=kubelet["rotateCertificates"],
            events=True,
            returns=True,
        ),
        timings=replace(_timings(kubelet), certificate_lifetime=int(own.certificate_lifetime) or None),
        health=(kubelet["healthzBindAddress"], _or(kubelet["healthzPort"], 10248)),
        kubelet_api=kubelet_api_options(kubelet),
        labels=labels,
        kubelet=kubelet,
        external_cloud=bool(own.cloud_provider),
        exit_after=own.exit_without_certificate,
    )


def _require_usable(own: Own) -> None:
    """Require a cluster to join, and no removed cloud provider. Raises UsageError."""
    if not own.kubeconfig:
        raise UsageError(
            "there is no cluster to join",
            remedy="pass the path of the node's kubeconfig with --kubeconfig; with --bootstrap-kubeconfig it need not exist yet",
        )
    if own.cloud_provider not in {"", "external"}:
        raise UsageError(
            f"--cloud-provider={own.cloud_provider}: in-tree cloud providers have been removed", remedy="use external, or leave it out"
        )


def hard_eviction(kubelet: Mapping[str, Any]) -> dict[str, str]:
    """Return the hard thresholds, or the defaults if none are configured."""
    given = kubelet["evictionHard"]
    return dict(HARD_EVICTION if given is None else given)


def reserved(kubelet: Mapping[str, Any]) -> dict[str, int]:
    """Return the sum of systemReserved and kubeReserved: millicores for cpu, bytes for the others.

    A list of reserved cores replaces the whole amount of cpu.
    """
    system, kube = dict(kubelet["systemReserved"] or {}), dict(kubelet["kubeReserved"] or {})
    if kubelet["reservedSystemCPUs"]:
        kube.pop("cpu", None)
        system["cpu"] = str(count_cores(kubelet["reservedSystemCPUs"]))
    found: dict[str, int] = {}
    for amounts in (system, kube):
        for resource, text in amounts.items():
            if resource in _RESERVED:
                amount = Quantity.parse(text)
                found[resource] = found.get(resource, 0) + (amount.millis if resource == "cpu" else amount.value)
    return found


def _name_errors(name: str) -> list[FieldError]:
    path = FieldPath("--hostname-override")
    return [FieldError(path=path, type=FieldErrorType.INVALID, value=name, reason=reason) for reason in subdomain_problems(name)]


def _lifetime_errors(seconds: float) -> list[FieldError]:
    """Return the errors of a requested certificate lifetime: the API accepts none below ten minutes."""
    if not 0 < seconds < SHORTEST:
        return []
    path = FieldPath("--certificate-lifetime")
    return [FieldError(path=path, type=FieldErrorType.INVALID, value=f"{seconds:g}s", reason="must be at least 10m")]


def _profile(kubelet: Mapping[str, Any], machine: MachineInfo, *, storage: int) -> MachineProfile:
    return MachineProfile(
        architecture=machine.architecture,
        kubelet_version=str(OWN),
        cpu_millis=machine.cores * 1000,
        memory=machine.memory,
        ephemeral_storage=storage,
        machine_id=machine.machine_id,
        system_uuid=machine.system_uuid,
        boot_id=machine.boot_id,
        kernel_version=machine.kernel,
        os_image=machine.os_image,
        huge_pages={str(Quantity.of_bytes(size)): size * count for size, count in machine.huge_pages.items()},
        swap=machine.swap,
        max_pods=kubelet["maxPods"],
        pods_per_core=kubelet["podsPerCore"],
        reserved=reserved(kubelet),
        hard_eviction=hard_eviction(kubelet),
    )


def _timings(kubelet: Mapping[str, Any]) -> Timings:
    """Return the kubelet's intervals with the configured ones. The first registration attempt does not wait."""
    update, report = (kubelet[f"nodeStatus{word}Frequency"].seconds for word in ("Update", "Report"))
    lease = kubelet["nodeLeaseDurationSeconds"]
    return replace(Timings(), registration_first=0.0, status_update=update, status_report=report, lease_duration=lease)


def _labels(pairs: Sequence[str]) -> tuple[tuple[str, str], ...]:
    split = (pair.partition("=") for pair in pairs if pair)
    return tuple((key.strip(), value.strip()) for key, _, value in split)


def _or(value: Any, default: Any) -> Any:
    """Return a field that may be absent, or its default."""
    return default if value is None else value
