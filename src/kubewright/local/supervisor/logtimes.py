"""When a log line was written, as far as the line says. Pure. Children write to their log files themselves, so nothing else knows.

klog lines (`I0102 15:04:05.123456 ...`) have neither year nor zone: components run with TZ=UTC, and the latest year is meant that is not
in the future.
etcd's JSON lines have `"ts":"2026-01-02T15:04:05.123456Z"`; zap writes `+0000` there as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_KLOG: Final = re.compile(rb"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
_JSON: Final = re.compile(rb'\{"[^\n]{0,80}?"ts":"([0-9T:.+\-]{19,35}Z?)"')
_DAY: Final = timedelta(days=1)


def time_of(line: bytes, *, now: datetime) -> datetime | None:
    """Return a line's time, aware; None if it carries none that can be read."""
    try:
        if match := _KLOG.match(line):
            month, day, hour, minute, second, micro = (int(part) for part in match.groups())
            return _latest(now, month, day, hour, minute, second, micro)
        if match := _JSON.match(line):
            found = datetime.fromisoformat(match[1].decode("ascii"))
            return found if found.tzinfo is not None else None
    except ValueError:
        return None
    return None


def _latest(now: datetime, month: int, day: int, hour: int, minute: int, second: int, micro: int) -> datetime:
    """Put a date without a year into this year, or into the last one where it lies more than a day ahead."""
    for year in (now.year + 1, now.year, now.year - 1):
        try:
            found = datetime(year, month, day, hour, minute, second, micro, tzinfo=UTC)
        except ValueError:  # the 29th of February
            continue
        if found <= now + _DAY:
            return found
    raise ValueError("no such day")
