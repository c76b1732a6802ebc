"""The state of a machine's kubelet, container runtime and static pods at one moment, and the relevant lines of their logs.

Only reads, and never raises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.base import yaml
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass
from kubewright.host.seam import Host
from kubewright.host.states import Container, ContainerState, Sandbox, ServiceState
from kubewright.lifecycle.diagnosis.cluster import ClusterView

LONGEST: Final = 240
"""Characters of a line that is shown as a reason."""
_HEAD: Final = 90
"""How many of these are from its beginning, which names the action; the end contains the reason of its failure."""
_CAUSES: Final = Pattern(
    r'"Failed to pull image"|is not present with pull policy|MountVolume\.SetUp failed'
    r'|"(RunPodSandbox|StartContainer|CreateContainer in sandbox) from runtime service failed"'
)
"""Messages of a kubelet about missing containers (k8s.io/cri-client, pkg/kubelet/kuberuntime)."""
_HEADER: Final = Pattern(r"^(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+:\d+\] ")
"""The header of a log line of Kubernetes' components: level, date, time, thread, file and line (k8s.io/klog)."""
_SYSTEMD: Final = Pattern(r"^(\S+\.service: |(Started|Starting|Stopped|Stopping) )")
_FAILED: Final = Pattern(r"^\S+\.service: (Failed (?!with result)|Unable )")
"""Messages of systemd about a service that it could not start at all."""
_ERROR: Final = Pattern(r'^(error|panic|fatal|invalid|flag provided|unknown)\b|"level":"(error|d?panic|fatal)"', re.IGNORECASE)
"""The beginning of the last lines of a component without klog: a bad flag, followed by the whole usage, or etcd's own log."""
_MEMBERS: Final = ("msg", "error")
"""The members of a line of etcd's log, which is JSON."""
_CONSEQUENCES: Final = Pattern(
    r"connection refused|Unable to read config path|cni plugin not initialized|network not ready|node \S+ not found|Error getting (the current )?node"
    r"|Missing actuated pod level|Failed to ensure lease|Unable to register node|CrashLoopBackOff|Failed to watch|ImagePullBackOff|UnmountVolume|orphaned pod"
    r"|checkpoint is not found|Unable to write event|Server rejected event|set owner ref to the node lease|no imagefs label|oom.score|PLEG is not healthy"
)
"""Errors of a kubelet while there is no API server: these are expected during the wait, and not a reason."""
KUBELET: Final = "kubelet"
STATIC_PODS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NAMESPACE: Final = "kube-system"
JOURNAL_LINES: Final = 300
"""Lines of the kubelet's journal: it writes a dozen per second while there is no API server."""
LOG_LINES: Final = 200
"""Lines of a component that exited: the usage printed for an unknown flag has more than a hundred."""
ERROR_LINES: Final = 10
"""How many of these are shown."""


def reasons(lines: Sequence[str]) -> list[str]:
    """Return the lines that contain a reason.

    These are reasons for missing containers, else errors, else the program's output outside its log, else why systemd
    could not start it.
    """
    if causes := [line for line in lines if _CAUSES.search(line)]:
        return causes
    found = [line for line in lines if line.strip() and not _CONSEQUENCES.search(line)]
    for wanted in (is_error, _is_own, _FAILED.search):
        if chosen := [line for line in found if wanted(line)]:
            return chosen
    return []


def distinct(lines: Sequence[str]) -> list[str]:
    """Return each line once, at its last position.

    Lines that differ only in time and source location count as the same.
    """
    found: dict[str, str] = {}
    for line in lines:
        found.pop(shortened(line), None)
        found[shortened(line)] = line
    return list(found.values())


def errors(lines: Sequence[str]) -> list[str]:
    """Return the errors in a component's lines; all lines if errors cannot be recognized."""
    return [line for line in lines if is_error(line) or _ERROR.search(line)] or list(lines)


def last_reason(lines: Sequence[str]) -> str:
    """Return the last line that contains a reason, without klog's header; '' if there is none."""
    chosen = reasons(lines)
    return shortened(chosen[-1]) if chosen else ""


def shortened(line: str) -> str:
    """Return a log line as part of a sentence."""
    matched = _HEADER.match(line)
    text = " ".join((line[matched.end() :] if matched else _of_json(line)).split())
    return text if len(text) <= LONGEST else f"{text[:_HEAD]} … {text[_HEAD + 3 - LONGEST :]}"


def _of_json(line: str) -> str:
    if not line.startswith("{"):
        return line
    try:
        found = json.loads(line)
    except ValueError:
        return line
    return ": ".join(str(found[name]) for name in _MEMBERS if found.get(name)) or line


def is_error(line: str) -> bool:
    """Whether a log line of a Kubernetes component is an error."""
    matched = _HEADER.match(line)
    return matched is not None and matched["level"] in "EF"


def _is_own(line: str) -> bool:
    return _HEADER.match(line) is None and not _SYSTEMD.match(line)


@dataclass(frozen=True, kw_only=True)
class Component:
    """A static pod."""

    name: str
    containers: tuple[Container, ...] = ()
    """The containers that the runtime still knows, one for each start, the latest first."""
    begun: bool = True
    """Whether the kubelet has begun to start the pod."""
    errors: tuple[str, ...] = ()
    """The last errors of a container that has exited."""
    image: str = ""
    """The image in the manifest. It is read only if the pod has begun and has no container."""
    image_missing: bool = False

    @property
    def latest(self) -> Container | None:
        """Its running container, or the last one."""
        return self.containers[0] if self.containers else None

    @property
    def pod(self) -> tuple[str, str]:
        """The identity of the component's pod, which changes with its manifest."""
        return self.name, self.latest.pod_uid if self.latest is not None else ""

    @property
    def runs(self) -> bool:
        """Whether it is currently running."""
        return self.latest is not None and self.latest.state is ContainerState.RUNNING

    @property
    def ends(self) -> int:
        """How often it has exited since its pod was created."""
        if self.latest is None:
            return 0
        return self.latest.attempt + (self.latest.state is ContainerState.EXITED)

    def ends_before(self, moment: float) -> int:
        """Return how many of its exits, including a future one, are of runs that started before a moment.

        A resumed run does not count these: dependencies that were missing then may be available now. Runs of the pod
        before a change of its manifest do not count either.
        """
        if self.latest is None:
            return 0
        own = [one for one in self.containers if one.pod_uid == self.latest.pod_uid]
        past = [one.attempt + 1 for one in own if one.created < moment]
        return max(past) if past else min(one.attempt for one in own)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The machine at one moment."""

    kubelet: ServiceState | None = None
    """The state of the kubelet's service; None if no service manager knows it, or it was not requested."""
    journal: tuple[str, ...] = ()
    """The last lines of the kubelet, if they were read."""
    runtime: str = ""
    """Why the container runtime does not answer; '' if it does."""
    components: tuple[Component, ...] = ()
    cluster: ClusterView | None = None
    """The cluster's view of the machine; None if it was not requested."""


def observe(host: Host, names: Sequence[str], *, journal: bool) -> Observation:
    """Observe the kubelet and static pods, given the names of their components, in that order.

    If all of them run, the kubelet is not checked, unless its `journal` is wanted: the check starts a program on a busy
    machine. The journal, which costs more than everything else, is read only if it is wanted or the kubelet does not
    run.
    """
    try:
        components, runtime = _components(host, names), ""
    except HostError as error:
        components, runtime = (), str(error)
    if components and all(component.runs for component in components) and not journal:
        return Observation(components=components)
    kubelet = _kubelet_service(host)
    wanted = journal or (kubelet is not None and not kubelet.running)
    lines = tuple(host.service_lines(KUBELET, count=JOURNAL_LINES)) if wanted else ()
    return Observation(kubelet=kubelet, journal=lines, runtime=runtime, components=components)


def _kubelet_service(host: Host) -> ServiceState | None:
    try:
        return host.service(KUBELET)
    except HostError:  # on a busy machine, systemd does not answer in time
        return None


def failed(host: Host, *, since: float) -> list[str]:
    """Return the control plane's static pods that a kubelet, which runs since a time, has tried to start without success.

    It tries again after pauses of up to five minutes, whether a container exited or its image was missing. Containers
    that are older, those from before a reboot for example, cause no pause.
    """
    try:
        found = _components(host, STATIC_PODS)
    except HostError:  # callers that need the runtime report it
        return []
    return [one.name for one in found if one.begun and (one.latest is None or _has_failed(one.latest, since=since))]


def _has_failed(container: Container, *, since: float) -> bool:
    return container.state is ContainerState.EXITED and container.created >= since


def _components(host: Host, names: Sequence[str]) -> tuple[Component, ...]:
    if not names:
        host.runtime.version()
        return ()
    found: dict[str, list[Container]] = {name: [] for name in names}
    for container in host.runtime.containers(namespace=NAMESPACE):
        if container.name in found:
            found[container.name].append(container)
    begun = host.runtime.sandboxes() if not all(found.values()) else []
    return tuple(_with_container(host, name, own) if own else _without_container(host, name, begun) for name, own in found.items())


def _with_container(host: Host, name: str, containers: Sequence[Container]) -> Component:
    said = last_errors(host, name) if containers[0].state is ContainerState.EXITED else []
    return Component(name=name, containers=tuple(containers), errors=tuple(said))


def last_errors(host: Host, name: str, *, container: str = "") -> list[str]:
    """Return the last errors of a static pod, from its latest container with output, or from the one with an ID."""
    return errors(host.runtime.last_lines(name, count=LOG_LINES, container=container))[-ERROR_LINES:]


def _without_container(host: Host, name: str, sandboxes: Sequence[Sandbox]) -> Component:
    """Return why a static pod has no container: it has not started, or lacks its image."""
    if not any(one.ready and one.namespace == NAMESPACE and one.name.startswith(f"{name}-") for one in sandboxes):
        return Component(name=name, begun=False)
    image = _image(host, name)
    return Component(name=name, image=image, image_missing=bool(image) and not host.runtime.has_image(image))


def _image(host: Host, name: str) -> str:
    """Return the image in a manifest, '' if it cannot be read."""
    path = host.layout.manifest(name)
    try:
        found = yaml.load(host.read(path) or b"", source=str(path))
    except KubewrightError:
        return ""
    spec = found.get("spec") if isinstance(found, Mapping) else None
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    first = containers[0] if isinstance(containers, list) and containers else None
    image = first.get("image") if isinstance(first, Mapping) else None
    return image if isinstance(image, str) else ""
