"""The standard streams of a command.

What is printed holds names of files, answers of servers and lines of logs, which others choose. Printed as they are, they could move the
cursor, hide lines, or write to the terminal what its user did not type. So this is the one way to a terminal: control characters that are
not ours are escaped. As `ls` does it, results stay as they are where stdout is no terminal: a program reads them there.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable
from typing import TextIO

from kubewright.base.messages import ESCAPING, without_controls


class Printable:
    """A stream whose texts cannot do more to a terminal than colour it. Everything but writing is the stream's own."""

    def __init__(self, raw: TextIO) -> None:
        self.raw = raw

    def write(self, text: str, /) -> int:
        self.raw.write(without_controls(text))
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:
        return getattr(self.raw, name)


def secure() -> None:
    """Make the standard streams take any text, also names of files that are no UTF-8, and stderr and a terminal printable text only.

    May be called again.
    """
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, ESCAPING), (sys.stderr, ESCAPING)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = Printable(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = Printable(sys.stderr)


def raw(stream: TextIO) -> TextIO:
    """Return the stream below, for what moves the cursor itself."""
    return stream.raw if isinstance(stream, Printable) else stream
