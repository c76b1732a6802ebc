"""What a run decides, for the log at -v 4: phases, changes and waits as their events tell them; differences at -v 8, secrets masked as in a plan."""

from __future__ import annotations

import sys

from kubewright.base import events
from kubewright.base.durations import format_seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    import logging

DECISIONS = 4
DIFFERENCES = 8


def has_log() -> bool:
    """Tell whether somebody asked for a log. It would tear the picture of a live display to pieces."""
    return _wanted(1) is not None


def logged(reporter: events.Reporter) -> events.Reporter:
    """Return a reporter that also writes to the log what it is told; the same one where nobody wants to see that."""
    log = _wanted(DECISIONS)
    return reporter if log is None else _Logged(reporter, log)


def _wanted(verbosity: int) -> logging.Logger | None:
    """Return the log if it shows what is told at a verbosity. Without -v nothing is set up, and `logging` is not loaded for this question."""
    if "kubewright.base.logs" not in sys.modules:
        return None
    import logging

    from kubewright.base.logs import level_of

    log = logging.getLogger(__name__)
    return log if log.isEnabledFor(level_of(verbosity)) else None


class _Logged:
    """Writes events to the log, then hands them on."""

    def __init__(self, reporter: events.Reporter, log: logging.Logger) -> None:
        self._reporter = reporter
        self._log = log

    def emit(self, event: events.Event, /) -> None:
        from kubewright.base.logs import verbose

        text = _text(event)
        if text:
            verbose(self._log, DECISIONS, "%s", text)
        if isinstance(event, events.Changed) and event.change.diff:
            verbose(self._log, DIFFERENCES, "difference of %s:\n%s", event.change.target, event.change.diff)
        self._reporter.emit(event)


def _text(event: events.Event) -> str:
    match event:
        case events.PhaseStarted(phase=phase):
            return f"phase {phase} begins"
        case events.PhaseFinished(phase=phase, seconds=seconds):
            return f"phase {phase} took {format_seconds(seconds)}"
        case events.PhaseSkipped(phase=phase, reason=reason):
            return f"phase {phase} is left out: {reason}"
        case events.Changed(change=change):
            return f"{change.target}: {change.action.value}{f' ({change.reason})' if change.reason else ''}"
        case events.Waiting(what=what, reason=reason, elapsed=elapsed):
            return f"waiting for {what} ({format_seconds(elapsed)}): {' '.join(reason.split())}"
        case events.Waited(what=what, seconds=seconds):
            return f"waited for {what}: {format_seconds(seconds)}"
        case events.State(subject=subject, state=state):
            return f"{subject}: {state}"
    return ""
