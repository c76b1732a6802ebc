"""The events of a run: plain values that a `Reporter` renders as text, JSON lines or a live display."""

from __future__ import annotations

from typing import Protocol

from kubewright.base.change import Change
from kubewright.base.records import asdict, dataclass, field


@dataclass(frozen=True, kw_only=True)
class PhaseStarted:
    """A phase begins. `phase` is its full name, for example `certs/apiserver`."""

    phase: str


@dataclass(frozen=True, kw_only=True)
class PhaseFinished:
    """A phase succeeded, in `seconds`."""

    phase: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PhaseSkipped:
    """A phase was skipped, with the reason."""

    phase: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of progress text; `topic` is what kubeadm prints in brackets."""

    topic: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Warned:
    """Something the user should know that does not stop the run."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A check of the machine found a problem that does not stop the run. `check` is its name."""

    check: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One target was examined, and perhaps changed."""

    change: Change


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of a long task. `total` is None if it is unknown; `unit` is `bytes`, `packages`, ..."""

    task: str
    done: float
    total: float | None = None
    unit: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A wait is in progress; `reason` is why it is not over yet."""

    what: str
    reason: str
    elapsed: float


@dataclass(frozen=True, kw_only=True)
class Waited:
    """A wait succeeded, after `seconds`."""

    what: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class State:
    """The current state of one named thing, for the live display and the timings: a machine's component, a node, a milestone."""

    subject: str
    state: str
    elapsed: float
    labels: dict[str, str] = field(default_factory=dict)


Event = PhaseStarted | PhaseFinished | PhaseSkipped | Line | Warned | Checked | Changed | Progress | Waiting | Waited | State


class Reporter(Protocol):
    """Receives events, in order, from one or several threads: implementations do their own locking."""

    def emit(self, event: Event, /) -> None:
        """Receive one event. Must not raise and must not block for long."""
        ...


class SilentReporter:
    """Discards all events."""

    def emit(self, event: Event, /) -> None:
        return


class RecordingReporter:
    """Records all events; for tests and for results."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)


def as_map(event: Event) -> dict[str, object]:
    """Return the JSON form of an event: its fields, and `event` with its kind."""
    if isinstance(event, Changed):
        return {"event": "Changed", **event.change.as_map()}
    return {"event": type(event).__name__, **asdict(event)}
