"""The output of errors on a terminal."""

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
"""The maximum number of lines of an error's details: no one reads more, and masking them is slow."""


def write_error(error: KubewrightError, *, verbosity: int) -> None:
    """Write an error to stderr: the message, indented details, the remedy; with -v 5 the traceback as well."""
    lines = [f"error: {indented(error.what)}"]
    if error.detail:
        lines.append(textwrap.indent(_shortened(error.detail.rstrip()), "  "))
    if error.remedy:
        lines.append(f"hint: {indented(error.remedy)}")
    if verbosity >= TRACEBACK_FROM:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    _say(as_called("\n".join(lines)))


def _shortened(detail: str) -> str:
    """Shorten a long list."""
    lines = detail.split("\n")
    if len(lines) <= MOST_LINES:
        return detail
    return "\n".join((*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} more lines"))


def write_bug(error: Exception, *, verbosity: int) -> None:
    """Write an unexpected error: it is a bug, and the user can only report it."""
    lines = [f"error: internal error: {type(error).__name__}: {indented(str(error))}"]
    if verbosity >= TRACEBACK_FROM:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    lines.append("this is a bug in kubewright; please report it with the output of the same command with -v 5")
    _say("\n".join(lines))


def _say(text: str) -> None:
    with suppress(OSError):  # the terminal is closed, the disk full: only the exit code is left
        sys.stderr.write(mask(text) + "\n")
        sys.stderr.flush()
