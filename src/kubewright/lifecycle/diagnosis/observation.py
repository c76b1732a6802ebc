"""What a machine says of its kubelet, its container runtime and its static pods at one moment, and which lines of their logs matter.

Only reads, and never fails.
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
"""Of these, those of its beginning: it says what was done, and the end says why it failed."""
_CAUSES: Final = Pattern(
    r'"Failed to pull image"|is not present with pull policy|MountVolume\.SetUp failed'
    r'|"(RunPodSandbox|StartContainer|CreateContainer in sandbox) from runtime service failed"'
)
"""How a kubelet says why a container is not there (k8s.io/cri-client, pkg/kubelet/kuberuntime)."""
_HEADER: Final = Pattern(r"^(?P<level>[IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+:\d+\] ")
"""What Kubernetes' components put in front of a line: level, date, time, thread, file and line (k8s.io/klog)."""
_SYSTEMD: Final = Pattern(r"^(\S+\.service: |(Started|Starting|Stopped|Stopping) )")
_FAILED: Final = Pattern(r"^\S+\.service: (Failed (?!with result)|Unable )")
"""What systemd says of a service that it could not even start."""
_ERROR: Final = Pattern(r'^(error|panic|fatal|invalid|flag provided|unknown)\b|"level":"(error|d?panic|fatal)"', re.IGNORECASE)
"""How the last lines of a component begin that does not use klog: a bad flag, which all of its usage follows, or etcd's own log."""
_MEMBERS: Final = ("msg", "error")
"""Of a line of etcd's log, which is JSON."""
_CONSEQUENCES: Final = Pattern(
    r"connection refused|Unable to read config path|cni plugin not initialized|network not ready|node \S+ not found|Error getting (the current )?node"
    r"|Missing actuated pod level|Failed to ensure lease|Unable to register node|CrashLoopBackOff|Failed to watch|ImagePullBackOff|UnmountVolume|orphaned pod"
    r"|checkpoint is not found|Unable to write event|Server rejected event|set owner ref to the node lease|no imagefs label|oom.score|PLEG is not healthy"
)
"""Errors of a kubelet while there is no API server: that is what is waited for, and no reason."""
KUBELET: Final = "kubelet"
STATIC_PODS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NAMESPACE: Final = "kube-system"
JOURNAL_LINES: Final = 300
"""Of the kubelet's journal: it writes a dozen a second while there is no API server."""
LOG_LINES: Final = 200
"""Lines of a component that ended: the usage of one that does not know a flag has more than a hundred."""
ERROR_LINES: Final = 10
"""Of these, those that are shown."""


def reasons(lines: Sequence[str]) -> list[str]:
    """Return the lines that give a reason.

    Why there is no container, else errors, else what the program wrote outside of its log, else why systemd could not start it.
    """
    if causes := [line for line in lines if _CAUSES.search(line)]:
        return causes
    found = [line for line in lines if line.strip() and not _CONSEQUENCES.search(line)]
    for wanted in (is_error, _is_own, _FAILED.search):
        if chosen := [line for line in found if wanted(line)]:
            return chosen
    return []


def distinct(lines: Sequence[str]) -> list[str]:
    """Return each line once, where it stands last; lines that differ only in time and place in the program are one."""
    found: dict[str, str] = {}
    for line in lines:
        found.pop(shortened(line), None)
        found[shortened(line)] = line
    return list(found.values())


def errors(lines: Sequence[str]) -> list[str]:
    """Return the errors that a component wrote; all of the lines where that cannot be told."""
    return [line for line in lines if is_error(line) or _ERROR.search(line)] or list(lines)


def last_reason(lines: Sequence[str]) -> str:
    """Return the last line that gives a reason, without klog's header; '' of none."""
    chosen = reasons(lines)
    return shortened(chosen[-1]) if chosen else ""


def shortened(line: str) -> str:
    """Return a line of a log as part of a sentence."""
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
    """Whether a component of Kubernetes calls a line of its log an error."""
    matched = _HEADER.match(line)
    return matched is not None and matched["level"] in "EF"


def _is_own(line: str) -> bool:
    return _HEADER.match(line) is None and not _SYSTEMD.match(line)


@dataclass(frozen=True, kw_only=True)
class Component:
    """A static pod. `containers` are those that the runtime still knows, one for each start, the latest first.

    `errors` are the last ones of a container that has ended. `image` is what its manifest names; it is read only where a pod has begun and no
    container is there.
    """

    name: str
    containers: tuple[Container, ...] = ()
    begun: bool = True
    errors: tuple[str, ...] = ()
    image: str = ""
    image_missing: bool = False

    @property
    def latest(self) -> Container | None:
        """Its running container, or the last one."""
        return self.containers[0] if self.containers else None

    @property
    def pod(self) -> tuple[str, str]:
        """What tells the pods of components apart, also those that a component had before its manifest changed."""
        return self.name, self.latest.pod_uid if self.latest is not None else ""

    @property
    def runs(self) -> bool:
        """Whether it runs at the moment."""
        return self.latest is not None and self.latest.state is ContainerState.RUNNING

    @property
    def ends(self) -> int:
        """How often it has ended since its pod was made."""
        if self.latest is None:
            return 0
        return self.latest.attempt + (self.latest.state is ContainerState.EXITED)

    def ends_before(self, moment: float) -> int:
        """Return how many of its ends, those to come included, are of lives that began before a moment.

        A run that goes on after another one does not count these: what a life lacked when it began may have come since.
        Nor do lives of the pod that was there before its manifest changed.
        """
        if self.latest is None:
            return 0
        own = [one for one in self.containers if one.pod_uid == self.latest.pod_uid]
        past = [one.attempt + 1 for one in own if one.created < moment]
        return max(past) if past else min(one.attempt for one in own)


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The machine at one moment.

    `kubelet` is None if no service manager knows it, or nobody asked; `journal` are its last lines, where they were read. `runtime` says why
    the container runtime does not answer, '' if it does. `cluster` is what the cluster said, None if it was not asked.
    """

    kubelet: ServiceState | None = None
    journal: tuple[str, ...] = ()
    runtime: str = ""
    components: tuple[Component, ...] = ()
    cluster: ClusterView | None = None


def observe(host: Host, names: Sequence[str], *, journal: bool) -> Observation:
    """Look at the kubelet and at static pods by the names of their components, in that order.

    Where all of them run, nobody asks for the kubelet, unless its `journal` is wanted: a program is started to ask, on a machine that
    has other things to do. The journal, which costs more than all the rest, is read only where it is wanted or the kubelet does not run.
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
    except HostError:  # systemd does not answer in time on a machine that is busy
        return None


def not_running(host: Host) -> list[str]:
    """Return the static pods of the control plane that the kubelet has begun with and that do not run.

    It tries again after pauses of up to five minutes, be it that a container ended or that there was no image for it.
    """
    try:
        found = _components(host, STATIC_PODS)
    except HostError:  # whoever needs the runtime says so
        return []
    return [component.name for component in found if component.begun and not component.runs]


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


def last_errors(host: Host, name: str) -> list[str]:
    """Return the last errors of a static pod, from the latest container of it that wrote anything."""
    return errors(host.runtime.last_lines(name, count=LOG_LINES))[-ERROR_LINES:]


def _without_container(host: Host, name: str, sandboxes: Sequence[Sandbox]) -> Component:
    """Find out why a static pod has no container: it has not begun, or lacks its image."""
    if not any(one.ready and one.namespace == NAMESPACE and one.name.startswith(f"{name}-") for one in sandboxes):
        return Component(name=name, begun=False)
    image = _image(host, name)
    return Component(name=name, image=image, image_missing=bool(image) and not host.runtime.has_image(image))


def _image(host: Host, name: str) -> str:
    """Return the image that a manifest names, '' if that cannot be told."""
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
