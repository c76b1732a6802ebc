"""The standard streams of a command.

The output contains names of files, answers of servers and lines of logs, which others control. Unchanged, they could
move the cursor, hide lines, or make the terminal send input that its user did not type. Therefore all output to a
terminal goes through this module: control characters that are not ours are escaped. As in `ls`, results stay unchanged
if stdout is not a terminal, because a program reads them.
"""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Iterable
from typing import TextIO

from kubewright.base.messages import ESCAPING, without_controls


class Printable:
    """A stream whose texts can only set colours of a terminal. Everything but writing is the stream's own."""

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
    """Make the standard streams accept any text, even file names that are not UTF-8, and restrict stderr and terminals to printable text.

    May be called again.
    """
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, ESCAPING), (sys.stderr, ESCAPING)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty():
        sys.stdout = Printable(sys.stdout)
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = Printable(sys.stderr)


def copy_log(chunks: Iterable[bytes]) -> None:
    """Write the log of another program to stdout, each chunk at once: as it is, or to a terminal without its control characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    for chunk in chunks:
        if isinstance(sys.stdout, Printable):
            sys.stdout.write(decoder.decode(chunk))
        else:
            sys.stdout.buffer.write(chunk)
        sys.stdout.flush()


def raw(stream: TextIO) -> TextIO:
    """Return the underlying stream, for code that moves the cursor itself."""
    return stream.raw if isinstance(stream, Printable) else stream
