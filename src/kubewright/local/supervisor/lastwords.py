"""Which of a dead component's last lines says why, and how to say it in one line. Pure.

What the components of Kubernetes 1.36 and etcd 3.6 do: an unknown flag gives `Error: unknown flag: --x` as the last line after the whole
usage text, but etcd says it first and its usage afterwards; any other failure is klog's `E... "command failed" err="..."` or zap's
`{"level":"fatal",...}` as the last line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

LINES: Final = 20
"""Lines that are kept of a process that ended."""
_LOOKED_AT: Final = 40
_LIMIT: Final = 300

_TELLING: Final = re.compile(
    r"""[EF]\d{4}\ \d\d:                        # klog
    | \{"level":"(?:error|fatal|panic|dpanic)"  # zap
    | (?:error|panic|fatal\ error):\            # cobra, the Go runtime
    | flag\ provided\ but\ not\ defined: | invalid\ value\ ".*"\ for\ flag\ """,
    re.VERBOSE | re.IGNORECASE,
)
_KLOG: Final = re.compile(r'[IWEF]\d{4} [0-9:.]+ +\d+ [^\]]*\] (?:"(?P<message>[^"]*)"(?: err="(?P<error>(?:[^"\\]|\\.)*)")?)?(?P<rest>.*)')


def last_words(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the last lines; where the telling one lies before them it takes the place of the first."""
    kept = tuple(lines[-LINES:])
    telling = _telling(lines)
    return kept if telling is None or telling in kept else (telling, *kept[1:])


def gist(lines: Sequence[str]) -> str:
    """Return the most telling line in a form for people; '' if there is none."""
    line = _telling(lines) or next((line for line in reversed(lines) if line.strip()), "")
    text = readable(line)
    return text if len(text) <= _LIMIT else f"{text[:_LIMIT]}…"


def readable(line: str) -> str:
    """Return the message of a line of klog or zap, with its error; any other line as it is."""
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
    except ValueError:  # cut, or not JSON after all
        return line
    return ": ".join(str(fields[name]) for name in ("msg", "error") if fields.get(name))


def _telling(lines: Sequence[str]) -> str | None:
    return next((line for line in reversed(lines[-_LOOKED_AT:]) if _TELLING.match(line)), None)
