"""What a run tells about itself while it runs: plain values that a `Reporter` renders as text, JSON lines or a live display."""

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
    """A phase ended well after so many seconds."""

    phase: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PhaseSkipped:
    """A phase was left out, and why."""

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
    """A check of the machine found something that does not stop the run. `check` is its name."""

    check: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Changed:
    """One target was looked at, and perhaps changed."""

    change: Change


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a long task is. `total` is None where it is not known; `unit` is `bytes`, `packages`, ..."""

    task: str
    done: float
    total: float | None = None
    unit: str = ""
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Something is waited for; `reason` is why it is not there yet."""

    what: str
    reason: str
    elapsed: float


@dataclass(frozen=True, kw_only=True)
class Waited:
    """A wait ended well after so many seconds."""

    what: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class State:
    """The present state of one named thing, for the live display and the timings: a machine's component, a node, a milestone."""

    subject: str
    state: str
    elapsed: float
    labels: dict[str, str] = field(default_factory=dict)


Event = PhaseStarted | PhaseFinished | PhaseSkipped | Line | Warned | Checked | Changed | Progress | Waiting | Waited | State


class Reporter(Protocol):
    """Receives events, in order, from one thread at a time or several: implementations lock for themselves."""

    def emit(self, event: Event, /) -> None:
        """Take one event. Must not raise and must not block for long."""
        ...


class SilentReporter:
    """Drops everything."""

    def emit(self, event: Event, /) -> None:
        return


class RecordingReporter:
    """Keeps everything; for tests and for results."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event, /) -> None:
        self.events.append(event)


def as_map(event: Event) -> dict[str, object]:
    """Return the JSON form of an event: its fields, and `event` with its kind."""
    if isinstance(event, Changed):
        return {"event": "Changed", **event.change.as_map()}
    return {"event": type(event).__name__, **asdict(event)}
