"""The fields of a kubelet's configuration that a hub may set, and the values that it may use. Pure; a field is a row.

A hub controls a node's place in the cluster, not the machine. So it may set how the kubelet uses the machine for pods
and how it talks to the cluster, and security settings to their defaults or stricter. It must not name files,
programs, cgroups, other servers or addresses to listen on, open the kubelet's API, or switch feature gates. Other
fields require the consent of the machine's owner, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import formats, kubelet_rules
from kubewright.apis.components import one_of
from kubewright.apis.findings import Findings
from kubewright.apis.kubelet import API_VERSION, KIND, KUBELET
from kubewright.apis.scalars import Kind
from kubewright.apis.schema import Plain, Pointer
from kubewright.base.durations import HOUR
from kubewright.base.errors import TrustError, UsageError
from kubewright.base.messages import did_you_mean, quoted
from kubewright.base.plain_text import require_one_line_each
from kubewright.base.records import dataclass

Read = Callable[[Any], Any]
"""Returns the value to write for a given one. Raises ValueError with the reason if a hub must not set it."""

_LOUDEST: Final = 5
"""Kubelets log requests from verbosity 6 on, and their bodies from 8 on."""
_REQUIRED: Final = frozenset({"apiVersion", "kind"})
OF_THE_MACHINE: Final = frozenset(
    {"tlsCertFile", "tlsPrivateKeyFile", "authentication.x509.clientCAFile", "containerRuntimeEndpoint", "imageServiceEndpoint"}
)
"""Fields that the node always writes itself, regardless of the hub."""


class RefusedFields(TrustError):
    """A kubelet's configuration sets fields that a hub must not set. `flag` accepts them on a machine, '' if no flag does."""

    def __init__(self, problems: Sequence[str], acceptable: Sequence[str]) -> None:
        self.flag = f"--accept-kubelet-fields={','.join(acceptable)}" if acceptable else ""
        accept = f"; or, if this machine is to have it, join with {self.flag}" if self.flag else ""
        super().__init__("fields are refused", detail="\n".join(problems), remedy=f"ask the operator of the hub to leave that out{accept}")


def _any(value: Any) -> Any:
    return value


def _checked(check: Callable[[Any], str]) -> Read:
    def read(value: Any) -> Any:
        reason = check(value)
        if reason:
            raise ValueError(reason)
        return value

    return read


def _addresses(values: Sequence[str]) -> tuple[str, ...]:
    found = [formats.address(value) for value in values]
    wrong = next((value for value, address in zip(values, found, strict=True) if address is None), None)
    if wrong is not None:
        raise ValueError(f"{quoted(wrong)} must be an IP address")
    return tuple(map(str, found))


def _loopback(value: str) -> str:
    found = formats.address(value)
    if found is None or not found.is_loopback:
        raise ValueError(f"{quoted(value)} must be a loopback address")
    return str(found)


def _domain(value: str) -> str:
    if formats.subdomain_problems(value):
        raise ValueError(f"{quoted(value)} must be a DNS domain in lower case")
    return value


def _pods_only(values: Sequence[str]) -> Sequence[str]:
    if set(values) - {"pods", "none"}:
        raise ValueError("must be pods or none: other values name cgroups of the machine")
    return values


_READS: Final[Mapping[str, Read]] = {
    "": _any,
    "off": _checked(lambda value: "must be false" if value else ""),
    "addresses": _addresses,
    "loopback": _loopback,
    "domain": _domain,
    "pods": _pods_only,
    "quiet": _checked(lambda value: f"{value} must be at most {_LOUDEST}" if value > _LOUDEST else ""),
    "hour": _checked(lambda value: "" if 0 <= value <= HOUR else f"{value} must be at most 1h"),
    "Webhook": _checked(lambda value: "" if value == "Webhook" else f"{quoted(value)} must be Webhook"),
    "driver": _checked(one_of("systemd", "cgroupfs")),
    "TLS": _checked(one_of("VersionTLS12", "VersionTLS13")),
    "policy": _checked(one_of("none", "None", "static", "Static")),
    "strategy": _checked(one_of("Watch", "Cache", "Get")),
}

_LIMITS: Final = frozenset({"off", "loopback", "pods", "quiet", "hour", "Webhook", "TLS"})
"""The limits that keep a hub from having more control than it should, and that a machine's owner may waive. The other limits are about form."""

FIELDS: Final = {
    "names in the cluster": "clusterDNS=addresses clusterDomain=domain",
    "certificates that the cluster signs": "rotateCertificates serverTLSBootstrap",
    "the kubelet's API, at its defaults or stricter": """
        tlsMinVersion=TLS authentication.anonymous.enabled=off authentication.webhook.enabled
        authentication.webhook.cacheTTL=hour authorization.mode=Webhook
        authorization.webhook.cacheAuthorizedTTL=hour authorization.webhook.cacheUnauthorizedTTL=hour enableServer
        enableDebuggingHandlers enableSystemLogHandler enableSystemLogQuery=off enableProfilingHandler
        enableDebugFlagsHandler
    """,
    "health and logs": """
        healthzBindAddress=loopback healthzPort logging.format logging.verbosity=quiet logging.flushFrequency
        containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval
    """,
    "properties of the machine": "cgroupDriver=driver failCgroupV1 failSwapOn memorySwap.swapBehavior hairpinMode",
    "capacity for pods": """
        maxPods podsPerCore podPidsLimit systemReserved kubeReserved enforceNodeAllocatable=pods
        reservedSystemCPUs reservedMemory qosReserved
    """,
    "processors and memory": """
        cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy=policy cpuManagerPolicyOptions cpuManagerReconcilePeriod
        memoryManagerPolicy=policy topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions
        memoryThrottlingFactor singleProcessOOMKill
    """,
    "eviction": """
        evictionHard evictionSoft evictionSoftGracePeriod evictionMinimumReclaim evictionMaxPodGracePeriod
        evictionPressureTransitionPeriod mergeDefaultEvictionSettings kernelMemcgNotification
    """,
    "images": """
        imageGCHighThresholdPercent imageGCLowThresholdPercent imageMinimumGCAge imageMaximumGCAge
        nodeStatusMaxImages serializeImagePulls maxParallelImagePulls registryPullQPS registryBurst
    """,
    "shutdown of the machine, restarts of containers": """
        shutdownGracePeriod shutdownGracePeriodCriticalPods shutdownGracePeriodByPodPriority
        crashLoopBackOff.maxContainerRestartPeriod
    """,
    "confinement of pods and of the kubelet": "seccompDefault protectKernelDefaults userNamespaces.idsPerPod",
    "the Node and its reports": """
        registerWithTaints nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds
        syncFrequency volumeStatsAggPeriod configMapAndSecretChangeDetectionStrategy=strategy kubeAPIQPS
        kubeAPIBurst eventRecordQPS eventBurst runtimeRequestTimeout streamingConnectionIdleTimeout
    """,
}
"""The fields that a hub may set, by purpose. The name after `=` is a reader of `_READS`, which limits the values."""


@dataclass(frozen=True)
class AcceptedField:
    """How a field that a hub may set is read. `limited` fields accept only some values; others need consent."""

    read: Read
    limited: bool


def _row(field: str) -> tuple[str, AcceptedField]:
    path, _, read = field.partition("=")
    return path, AcceptedField(_READS[read], read in _LIMITS)


ROWS: Final[Mapping[str, AcceptedField]] = dict(_row(field) for fields in FIELDS.values() for field in fields.split())
_RULES: Final[Mapping[str, Read]] = {row.path: _checked(row.check) for row in kubelet_rules.ROWS}
"""Limits that kubelets enforce when they start."""


def consent(names: Sequence[str]) -> frozenset[str]:
    """Return the fields to which the machine's owner consents; a struct includes all of its fields.

    Raises UsageError for an unknown one.
    """
    known = {path for path, _ in _paths(KUBELET)}
    for name in names:
        if name not in known:
            raise UsageError(
                f"the kubelet's configuration has no field {quoted(name)}{did_you_mean(name, known)}",
                remedy="name fields as `kubewright config explain KubeletConfiguration` does, such as staticPodPath,authorization.mode",
            )
        if name in OF_THE_MACHINE or any(path.startswith(f"{name}.") for path in OF_THE_MACHINE):
            raise UsageError(
                f"{name} cannot be left to a hub: `node join` writes it", remedy="leave it out; name single fields of a struct"
            )
    return frozenset(names)


def read(document: Mapping[str, Any], *, accepted: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the fields that a document sets, except Go's zero values and the machine's own fields.

    Raises RefusedFields with everything that a hub must not set and nobody has accepted, and UnsafeText.
    """
    body = {name: value for name, value in document.items() if name not in _REQUIRED}
    require_one_line_each(body, what=KIND)
    findings = Findings()
    decoded = KUBELET.decode(body, findings.root)
    problems = [str(error) for error in (*findings.errors, *findings.surplus)]
    found: dict[str, Any] = {}
    refused: list[str] = []
    for path, kind, value in _given(KUBELET, body, decoded):
        if path in OF_THE_MACHINE:
            continue
        row, consented = ROWS.get(path), _is_in(path, accepted)
        if row is None and not consented:
            problems.append(f"{path}: a hub may not set it")
            refused.append(path)
            continue
        try:
            _put(found, path, kind.encode(_readable(path, row, consented, value)))
        except ValueError as error:
            problems.append(f"{path}: {error}")
            refused += [path] if row is not None and row.limited and not consented else []
    if problems:
        raise RefusedFields(problems, refused)
    return found


def _readable(path: str, row: AcceptedField | None, consented: bool, value: Any) -> Any:
    """Return the value to write. Raises ValueError for a value that kubelets refuse, or that a hub must not set."""
    _RULES.get(path, _any)(value)
    return value if row is None or (consented and row.limited) else row.read(value)


def require_kind(document: Mapping[str, Any]) -> None:
    """Require a KubeletConfiguration. Raises TrustError."""
    if (document.get("apiVersion"), document.get("kind")) != (API_VERSION, KIND):
        raise TrustError(f"it is not a {KIND}")


def _is_in(path: str, accepted: frozenset[str]) -> bool:
    return path in accepted or any(path.startswith(f"{name}.") for name in accepted)


def _struct(kind: Kind) -> Plain | None:
    inner = kind.inner if isinstance(kind, Pointer) else kind
    return inner if isinstance(inner, Plain) else None


def _paths(plain: Plain, before: str = "") -> Iterator[tuple[str, Kind]]:
    for field in plain.fields:
        yield f"{before}{field.name}", field.kind
        struct = _struct(field.kind)
        if struct is not None:
            yield from _paths(struct, f"{before}{field.name}.")


def _given(plain: Plain, body: Mapping[str, Any], decoded: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Kind, Any]]:
    """Yield path, kind and value of each field of a document that differs from an unset one."""
    for field in plain.fields:
        value, struct = decoded[field.name], _struct(field.kind)
        given = body.get(field.name)
        if given is None or value is None:
            continue
        if struct is not None:
            given = given if isinstance(given, Mapping) else {}  # other types were reported already
            yield from _given(struct, given, value, f"{before}{field.name}.")
        elif value != field.kind.zero() and value not in ((), {}):
            yield f"{before}{field.name}", field.kind, value


def _put(found: dict[str, Any], path: str, value: Any) -> None:
    *parents, name = path.split(".")
    for parent in parents:
        found = found.setdefault(parent, {})
    found[name] = value
