"""The log format of the CRI: one line per write, `TIME STREAM TAG TEXT`, where the tag P means that the line goes on in the next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

TAIL: Final = 64 * 1024
"""Bytes at the end of a log that are looked at."""

_PARTIAL: Final = "P"


def texts(content: bytes) -> list[str]:
    """Return the lines that a container wrote, in order. What is cut off at the beginning, or is no such line, is left out."""
    return list(_joined(content.decode("utf-8", errors="replace").splitlines()))


def _joined(lines: list[str]) -> Iterator[str]:
    """Join partial lines, of stdout and stderr apart."""
    begun: dict[str, str] = {}
    for line in lines:
        fields = line.split(" ", 3)
        if len(fields) < 3 or fields[1] not in {"stdout", "stderr"}:
            continue
        _, stream, tags, *rest = fields
        text = begun.pop(stream, "") + "".join(rest)
        if tags.split(":")[0] == _PARTIAL:
            begun[stream] = text
        else:
            yield text
    yield from begun.values()
