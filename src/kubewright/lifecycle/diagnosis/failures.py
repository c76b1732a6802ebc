"""Pure interpretation of observations: whether waiting is pointless, the remedy, the reason of a wait, and the report of a failed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.durations import format_seconds
from kubewright.base.records import dataclass, field, replace
from kubewright.host.states import Container, ContainerState, ServiceState
from kubewright.lifecycle.diagnosis import observation, remedies
from kubewright.lifecycle.diagnosis.cluster import SET_CLOCK, ClusterView
from kubewright.lifecycle.diagnosis.observation import Component, Observation

ENDS: Final = 3
"""How often a component may exit before the wait for it fails, as in a local cluster."""
KUBELET_STARTS: Final = 2
"""Failed starts of the kubelet: a unit waits ten seconds between two."""
SILENT_STARTS: Final = 3
"""Failed starts of a kubelet without a reason: on a busy machine, its output is in the journal later than systemd notices its exit."""
PULLS: Final = 2
"""Failed pulls of one image."""
_PULL: Final = "PullImage from image service failed"
_NEVER: Final = "with pull policy of Never"
"""Messages of a kubelet about images (k8s.io/cri-client, pkg/kubelet/images)."""
REPORTED_LINES: Final = 6
"""Lines of the kubelet in a diagnosis."""
LONGEST_REPORTED: Final = 500
"""Characters of a line in a diagnosis."""


@dataclass(frozen=True, kw_only=True)
class PermanentFailure:
    """Why waiting is pointless, and the remedy.

    `component` is the one that fails, '' for the kubelet and its request.
    """

    what: str
    remedy: str
    component: str = ""


@dataclass(frozen=True, kw_only=True)
class Observations:
    """What was observed during a wait."""

    first: Observation
    latest: Observation
    began: float
    """The start of the wait, in seconds since 1970."""
    earlier: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How often each pod of a component had exited before. When its manifest changes, a component gets a new pod, or an earlier one again."""
    pulls: frozenset[str] = frozenset()
    """The kubelet's lines about failed pulls, of all observations: minutes, and a thousand other lines, may be between two of them."""

    @classmethod
    def begin(cls, seen: Observation, *, began: float) -> Observations:
        """Return the state after the first observation."""
        return cls(first=seen, latest=seen, began=began, earlier=_earlier(seen, began), pulls=_pulls(seen))

    def and_then(self, seen: Observation) -> Observations:
        """Return the state after another observation.

        A journal with a reason, and the cluster's view, are kept until there is a newer one.
        """
        kept = seen if observation.last_reason(seen.journal) else replace(seen, journal=self.latest.journal)
        kept = kept if kept.cluster is not None else replace(kept, cluster=self.latest.cluster)
        earlier = {**_earlier(seen, self.began), **self.earlier}
        return replace(self, latest=kept, earlier=earlier, pulls=self.pulls | _pulls(seen))


def permanent_failure(observations: Observations) -> PermanentFailure | None:
    """Return the result of the first rule by which waiting is pointless."""
    return next((found for rule in RULES if (found := rule(observations)) is not None), None)


def _kubelet_failure(observations: Observations) -> PermanentFailure | None:
    before, after = observations.first.kubelet, observations.latest.kubelet
    if after is None or not after.failed:
        return None
    starts = after.restarts - (before.restarts if before is not None else 0) + 1
    said = observation.reasons(observations.latest.journal)
    if after.again and starts < (KUBELET_STARTS if said else SILENT_STARTS):
        return None
    return PermanentFailure(what="the kubelet does not stay up", remedy=remedies.of_kubelet(said))


def _crash_loop(observations: Observations) -> PermanentFailure | None:
    """Return the first component that keeps exiting: later ones may exit because an earlier one is missing.

    One that had exited often before, in another run, must exit once more: its dependencies may have become available.
    """
    for component in observations.latest.components:
        if component.runs or not component.ends:
            continue
        if component.ends >= ENDS and component.ends > observations.earlier.get(component.pod, 0):
            return PermanentFailure(what=f"{component.name} does not stay up", remedy="", component=component.name)
        return None
    return None


def _earlier(seen: Observation, began: float) -> Mapping[tuple[str, str], int]:
    return {component.pod: component.ends_before(began) for component in seen.components if component.containers}


def _image(observations: Observations) -> PermanentFailure | None:
    for component in observations.latest.components:
        if component.image_missing and _cannot_be_pulled(observations, component.image):
            return PermanentFailure(
                what=f"the image {component.image} of {component.name} is not on this machine, and cannot be pulled",
                remedy="import it into the container runtime, or let the runtime reach its registry (imageRepository names another one),"
                " then run the same command again",
            )
    return None


def _cannot_be_pulled(observations: Observations, image: str) -> bool:
    """Whether the kubelet has tried often enough, or is not allowed to try."""
    if any(_NEVER in line and image in line for line in observations.latest.journal):
        return True
    return sum(image in line for line in observations.pulls) >= PULLS


def _pulls(seen: Observation) -> frozenset[str]:
    return frozenset(line for line in seen.journal if _PULL in line)


def _refused_request(observations: Observations) -> PermanentFailure | None:
    request = observations.latest.cluster.request if observations.latest.cluster is not None else None
    return PermanentFailure(what=request.text, remedy=request.remedy) if request is not None and request.refused else None


RULES: Final[tuple[Callable[[Observations], PermanentFailure | None], ...]] = (_kubelet_failure, _refused_request, _crash_loop, _image)


def reason(seen: Observation, own: str, *, now: float) -> str:
    """Return one line with the most fundamental visible reason; `own` is that of the wait itself.

    If the wait is not for a static pod, it is for the kubelet, whose log contains the reason.
    """
    if seen.kubelet is not None and not seen.kubelet.running:
        return _with(_kubelet(seen.kubelet), observation.last_reason(seen.journal))
    if seen.runtime:
        return seen.runtime
    if seen.cluster is not None and (said := _cluster(seen.cluster)):
        return said
    for component in seen.components:
        if not component.runs:
            return _with(_component(component), _last(component.errors) or observation.last_reason(seen.journal))
    if not seen.components:
        return _with(own, observation.last_reason(seen.journal))
    running = [f"{one.name} has been running for {_ago(one.latest, now)}" for one in seen.components if one.latest is not None]
    return _with(", ".join(running), own)


def _cluster(view: ClusterView) -> str:
    """Return the state of the certificate request, or else that the clock is wrong."""
    return view.request.text if view.request is not None else view.clock


def remedy(seen: Observation) -> str:
    """Return the remedy for the latest observation, '' if there is none."""
    if seen.cluster is not None and seen.cluster.request is not None:
        return seen.cluster.request.remedy
    if seen.cluster is not None and seen.cluster.clock:
        return SET_CLOCK
    return remedies.match(remedies.KUBELET, observation.reasons(seen.journal))


def report(seen: Observation, said: Mapping[str, Sequence[str]]) -> str:
    """Return several lines: the state of everything that the wait depends on, with last lines.

    `said` has those of components, by name.
    """
    return "\n".join(_report(seen, said))


def _report(seen: Observation, said: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if seen.kubelet is not None:
        yield _kubelet(seen.kubelet)
        if not (seen.kubelet.running and seen.components and all(component.runs for component in seen.components)):
            yield from with_heading("the kubelet", observation.distinct(observation.reasons(seen.journal))[-REPORTED_LINES:])
    if seen.runtime:
        yield seen.runtime
    if seen.cluster is not None:
        yield from filter(None, (seen.cluster.request.text if seen.cluster.request is not None else "", seen.cluster.clock))
    for component in seen.components:
        yield _component(component)
        yield from with_heading(component.name, said.get(component.name, ()))


def with_heading(whose: str, lines: Sequence[str]) -> list[str]:
    """Return a heading and indented lines; nothing without lines."""
    return [f"the last lines of {whose}:", *(f"  {_cut(line.rstrip())}" for line in lines)] if lines else []


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_REPORTED else f"{line[:LONGEST_REPORTED]}…"


def _kubelet(state: ServiceState) -> str:
    if state.running:
        return "the kubelet is running"
    if state.again:
        times = "once" if state.restarts == 0 else f"{state.restarts + 1} times"
        return f"the kubelet has exited {times}, and systemd is about to restart it"
    return "the kubelet has failed, and its unit does not restart it" if state.failed else "the kubelet is not running"


def _component(component: Component) -> str:
    latest = component.latest
    if latest is not None:
        return f"{component.name} {_state(latest)}{_before(component)}"
    if not component.begun:
        return f"the kubelet has not started the pod of {component.name} yet"
    if component.image_missing:
        return f"{component.name} is waiting for its image {component.image}, which is not on this machine"
    return f"the container of {component.name} is being created"


def _state(container: Container) -> str:
    match container.state:
        case ContainerState.RUNNING:
            return "is running"
        case ContainerState.CREATED:
            return "has a container that is about to start"
        case ContainerState.EXITED:
            why = f" ({container.reason})" if container.reason and container.reason not in {"Error", "Completed"} else ""
            return f"exited with code {container.code}{why}"
        case _:
            return "is in a state that the container runtime does not know"


def _before(component: Component) -> str:
    """Return how often it exited before."""
    if component.latest is not None and component.latest.state is ContainerState.EXITED:
        return f", for the {_ordinal(component.ends)} time" if component.ends > 1 else ""
    if not component.ends:
        return ""
    return f" again, after it exited {'once' if component.ends == 1 else f'{component.ends} times'}"


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _ago(container: Container | None, now: float) -> str:
    return format_seconds(max(0.0, now - container.created)) if container is not None else ""


def _last(lines: Sequence[str]) -> str:
    return observation.shortened(lines[-1]) if lines else ""


def _with(text: str, more: str) -> str:
    return f"{text}: {more}" if text and more else text or more
