"""How errors look on a terminal."""

from __future__ import annotations

import sys
import textwrap
import traceback
from contextlib import suppress

from kubewright.base.errors import KubewrightError
from kubewright.base.masking import mask
from kubewright.base.messages import indented
from kubewright.cli.parsing.parser import as_called

TRACEBACK_FROM = 5
MOST_LINES = 200
"""Of the evidence of an error: so much is read by nobody, and slow to mask."""


def write_error(error: KubewrightError, *, verbosity: int) -> None:
    """Write an error to stderr: what, the evidence indented, the remedy; with -v 5 the traceback as well."""
    lines = [f"error: {indented(error.what)}"]
    if error.detail:
        lines.append(textwrap.indent(_shortened(error.detail.rstrip()), "  "))
    if error.remedy:
        lines.append(f"hint: {indented(error.remedy)}")
    if verbosity >= TRACEBACK_FROM:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    _say(as_called("\n".join(lines)))


def _shortened(detail: str) -> str:
    """Cut a list that nobody reads to its end."""
    lines = detail.split("\n")
    if len(lines) <= MOST_LINES:
        return detail
    return "\n".join((*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines"))


def write_bug(error: Exception, *, verbosity: int) -> None:
    """Write an error that is not one of ours: it is a bug, and the user can only report it."""
    lines = [f"error: internal error: {type(error).__name__}: {indented(str(error))}"]
    if verbosity >= TRACEBACK_FROM:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    lines.append("this is a bug in kubewright; please report it with the output of the same command with -v 5")
    _say("\n".join(lines))


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal is closed, the disk full: the exit code is all that is left to say
        sys.stderr.write(mask(text) + "\n")
        sys.stderr.flush()
