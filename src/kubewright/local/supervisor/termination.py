"""Decides what follows from the end of a process: the line that explains it, and when it is restarted.

Pure.

The output of Kubernetes 1.36 components and etcd 3.6: an unknown flag gives `Error: unknown flag: --x` as the last line
after the whole usage text, but etcd prints it first and its usage afterwards; any other failure is klog's `E...
"command failed" err="..."` or zap's `{"level":"fatal",...}` as the last line.

The kubelet's back-off begins at 10 s, doubles up to 5 min and is forgotten after 10 min, because image pulls and shared
nodes make restarts expensive. Here a restart costs a fork, and a user waits: 0.1 s, then 1 s, doubling to 60 s.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

MESSAGE_LINES: Final = 20
"""How many lines of an ended process are kept."""
_SEARCHED_LINES: Final = 40
_LIMIT: Final = 300

_FAILURE: Final = re.compile(
    r"""[EF]\d{4}\ \d\d:                        # klog
    | \{"level":"(?:error|fatal|panic|dpanic)"  # zap
    | (?:error|panic|fatal\ error):\            # cobra, the Go runtime
    | flag\ provided\ but\ not\ defined: | invalid\ value\ ".*"\ for\ flag\ """,
    re.VERBOSE | re.IGNORECASE,
)
_KLOG: Final = re.compile(r'[IWEF]\d{4} [0-9:.]+ +\d+ [^\]]*\] (?:"(?P<message>[^"]*)"(?: err="(?P<error>(?:[^"\\]|\\.)*)")?)?(?P<rest>.*)')


FIRST: Final = 0.1
SECOND: Final = 1.0
LONGEST: Final = 60.0
WELL_AFTER_READY: Final = 10.0
"""Seconds of readiness after which an earlier failure no longer counts."""
WELL_AFTER: Final = 600.0
"""Seconds of running after which it no longer counts either, for components that never become ready (the kubelet's MaxContainerBackOff × 2)."""
CRASH_LOOP: Final = 2
"""Consecutive failures that make a crash loop: a single one may be an accident of the start order."""


def termination_message(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines; if the line with the reason is before them, it replaces the first."""
    kept = tuple(lines[-MESSAGE_LINES:])
    failure = _failure_line(lines)
    return kept if failure is None or failure in kept else (failure, *kept[1:])


def failure_summary(lines: Sequence[str]) -> str:
    """Return the line with the reason, in a form for people; '' if there is none."""
    line = _failure_line(lines) or next((line for line in reversed(lines) if line.strip()), "")
    text = readable(line)
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}…"


def readable(line: str) -> str:
    """Return the message of a line of klog or zap, with its error; any other line unchanged."""
    if match := _KLOG.match(line):
        if match["message"] is None:
            return match["rest"].strip()
        error = (match["error"] or "").replace('\\"', '"').replace("\\n", " ")
        return f"{match['message']}: {error}" if error else f"{match['message']}{match['rest']}"
    if line.startswith('{"level":'):
        return _zap(line)
    return line.strip()


def _zap(line: str) -> str:
    try:
        fields = json.loads(line)
    except ValueError:  # truncated, or not JSON
        return line
    return ": ".join(str(fields[name]) for name in ("msg", "error") if fields.get(name))


def _failure_line(lines: Sequence[str]) -> str | None:
    return next((line for line in reversed(lines[-_SEARCHED_LINES:]) if _FAILURE.match(line)), None)


def restart_delay(failures: int) -> float:
    """Return the seconds to wait before the next start, after so many consecutive failures (at least one)."""
    if failures <= 1:
        return FIRST
    return min(SECOND * 2.0 ** min(failures - 2, 16), LONGEST)


def failures_after(failures: int, *, ran: float, ready: float) -> int:
    """Return the consecutive failures once a run has ended, after `ran` seconds, `ready` of them since it was first ready (0 if never)."""
    well = ready >= WELL_AFTER_READY or ran >= WELL_AFTER
    return 1 if well else failures + 1
