"""From what was seen of a machine to words: the reason of a wait, and the whole story when it fails. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from kubewright.base.durations import format_seconds
from kubewright.host.states import Container, ContainerState, ServiceState
from kubewright.lifecycle.reasons import words
from kubewright.lifecycle.reasons.seen import Component, Seen

LINES: Final = 6
"""Lines of the kubelet that a diagnosis has."""
LONGEST: Final = 500
"""Characters of a line in a diagnosis."""


def reason(seen: Seen, own: str, *, now: float) -> str:
    """Return one line: what stands in the way first, as far down as can be seen; `own` is what the wait itself knows.

    Where no static pod is waited for, it is the kubelet that does something: its own words say why it has not.
    """
    if seen.kubelet is not None and not seen.kubelet.running:
        return _with(_kubelet(seen.kubelet), words.telling(seen.words))
    if seen.runtime:
        return seen.runtime
    for component in seen.components:
        if not component.runs:
            return _with(_component(component), _last(component.words) or words.telling(seen.words))
    if not seen.components:
        return _with(own, words.telling(seen.words))
    running = [f"{one.name} runs for {_ago(one.latest, now)}" for one in seen.components if one.latest is not None]
    return _with(", ".join(running), own)


def story(seen: Seen, said: Mapping[str, Sequence[str]]) -> str:
    """Return several lines: the state of everything that is waited for, with last words. `said` has those of components, by name."""
    return "\n".join(_story(seen, said))


def _story(seen: Seen, said: Mapping[str, Sequence[str]]) -> Iterator[str]:
    if seen.kubelet is not None:
        yield _kubelet(seen.kubelet)
        if not (seen.kubelet.running and seen.components and all(component.runs for component in seen.components)):
            yield from last_lines("the kubelet", words.essential(seen.words)[-LINES:])
    if seen.runtime:
        yield seen.runtime
    for component in seen.components:
        yield _component(component)
        yield from last_lines(component.name, said.get(component.name, ()))


def last_lines(whose: str, lines: Sequence[str]) -> list[str]:
    """Return a heading and what somebody said, indented; nothing of nothing."""
    return [f"the last lines of {whose}:", *(f"  {_cut(line.rstrip())}" for line in lines)] if lines else []


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"


def _kubelet(state: ServiceState) -> str:
    if state.running:
        return "the kubelet runs"
    if state.again:
        times = "once" if state.restarts == 0 else f"{state.restarts + 1} times"
        return f"the kubelet ended {times} and is started again after a pause"
    return "the kubelet failed, and nobody starts it again" if state.failed else "the kubelet does not run"


def _component(component: Component) -> str:
    latest = component.latest
    if latest is not None:
        return f"{component.name} {_life(latest)}{_before(component)}"
    if not component.begun:
        return f"the kubelet has not begun with {component.name}"
    if component.image_missing:
        return f"{component.name} waits for its image {component.image}, which is not on this machine"
    return f"the container of {component.name} is being made"


def _life(life: Container) -> str:
    match life.state:
        case ContainerState.RUNNING:
            return "runs"
        case ContainerState.CREATED:
            return "is created and about to start"
        case ContainerState.EXITED:
            why = f" ({life.reason})" if life.reason and life.reason not in {"Error", "Completed"} else ""
            return f"ended with code {life.code}{why}"
        case _:
            return "is in a state that its runtime does not know"


def _before(component: Component) -> str:
    """Tell of earlier lives."""
    if component.latest is not None and component.latest.state is ContainerState.EXITED:
        return f", for the {_ordinal(component.ends)} time" if component.ends > 1 else ""
    return (
        f" again, after it ended {component.ends} times" if component.ends > 1 else " again, after it ended once" if component.ends else ""
    )


def _ordinal(number: int) -> str:
    return {2: "second", 3: "third"}.get(number, f"{number}th")


def _ago(life: Container | None, now: float) -> str:
    return format_seconds(max(0.0, now - life.created)) if life is not None else ""


def _last(lines: Sequence[str]) -> str:
    return words.short(lines[-1]) if lines else ""


def _with(text: str, more: str) -> str:
    return f"{text}: {more}" if text and more else text or more
