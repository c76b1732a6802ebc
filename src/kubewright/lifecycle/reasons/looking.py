"""Looking at a machine: its kubelet, its container runtime, and the static pods that are waited for. Reads only, and never fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.base import yaml
from kubewright.base.errors import HostError, KubewrightError
from kubewright.host.seam import Host
from kubewright.host.states import Container, ContainerState, Sandbox, ServiceState
from kubewright.lifecycle.reasons.seen import Component, Seen
from kubewright.lifecycle.reasons.words import complaints

KUBELET: Final = "kubelet"
STATIC_PODS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
NAMESPACE: Final = "kube-system"
LINES: Final = 300
"""Of the kubelet's journal: it writes a dozen a second while there is no API server."""
LAST: Final = 200
"""Lines of a component that ended: the usage of one that does not know a flag has more than a hundred."""
KEPT: Final = 10
"""Of these, those that are shown."""


def look(host: Host, names: Sequence[str], *, words: bool) -> Seen:
    """Look at the kubelet and at static pods by the names of their components, in that order.

    Where all of them run, nobody asks for the kubelet, unless its `words` are wanted: a program is started to ask, on a machine that has
    other things to do. Its journal, which costs more than all the rest, is read only where words are wanted or it does not run.
    """
    try:
        components, runtime = _components(host, names), ""
    except HostError as error:
        components, runtime = (), str(error)
    if components and all(component.runs for component in components) and not words:
        return Seen(components=components)
    kubelet = _kubelet(host)
    wanted = words or (kubelet is not None and not kubelet.running)
    said = tuple(host.service_lines(KUBELET, count=LINES)) if wanted else ()
    return Seen(kubelet=kubelet, words=said, runtime=runtime, components=components)


def _kubelet(host: Host) -> ServiceState | None:
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
    except HostError:  # whoever needs the runtime will tell
        return []
    return [component.name for component in found if component.begun and not component.runs]


def _components(host: Host, names: Sequence[str]) -> tuple[Component, ...]:
    if not names:
        host.runtime.version()
        return ()
    lives: dict[str, list[Container]] = {name: [] for name in names}
    for container in host.runtime.containers(namespace=NAMESPACE):
        if container.name in lives:
            lives[container.name].append(container)
    begun = host.runtime.sandboxes() if not all(lives.values()) else []
    return tuple(_with_container(host, name, found) if found else _without_container(host, name, begun) for name, found in lives.items())


def _with_container(host: Host, name: str, lives: Sequence[Container]) -> Component:
    said = last_words(host, name) if lives[0].state is ContainerState.EXITED else []
    return Component(name=name, lives=tuple(lives), words=tuple(said))


def last_words(host: Host, name: str) -> list[str]:
    """Return what the last life of a static pod that said anything complained about at its end."""
    return complaints(host.runtime.last_lines(name, count=LAST))[-KEPT:]


def _without_container(host: Host, name: str, sandboxes: Sequence[Sandbox]) -> Component:
    """Look why a static pod has no container: it has not begun, or lacks its image."""
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
