"""The output of errors on a terminal."""

from __future__ import annotations

import sys
import textwrap
import traceback
from contextlib import suppress

from kubewright.base.errors import Interrupted, KubewrightError, PreflightFailed
from kubewright.base.masking import mask
from kubewright.base.messages import indented
from kubewright.cli.parsing.parser import as_called

TRACEBACK_FROM = 5
_ERROR = "error: "
MOST_LINES = 200
"""The maximum number of lines of an error's details: no one reads more, and masking them is slow."""


def write_error(error: KubewrightError, *, verbosity: int, kubeadm: bool = False, phases: bool = False) -> None:
    """Write an error to stderr: the message, indented details, the remedy; with -v 5 the traceback as well.

    `kubeadm`: the command is one of kubeadm's, whose errors have the lines that scripts look for (kubeadm v1.36:
    cmd/kubeadm/app/util/error.go, preflight/checks.go). With `phases`, the message names the phase that failed.
    """
    lines = _failed_checks(error) if kubeadm and isinstance(error, PreflightFailed) else _explained(error)
    what = next(place for place, line in enumerate(lines) if line.startswith(_ERROR))
    if phases and not isinstance(error, Interrupted):  # its message names the phase
        from kubewright.workflow.runner import phase_prefix

        lines[what] = _ERROR + phase_prefix(error) + lines[what].removeprefix(_ERROR)
    if verbosity >= TRACEBACK_FROM:
        lines.append("".join(traceback.format_exception(error)).rstrip())
    elif kubeadm and not isinstance(error, Interrupted):
        lines.append(f"To see the stack trace of this error execute with --v={TRACEBACK_FROM} or higher")
    _say(as_called("\n".join(lines)))


def _explained(error: KubewrightError) -> list[str]:
    lines = [f"{_ERROR}{indented(error.what)}"]
    if error.detail:
        lines.append(textwrap.indent(_shortened(error.detail.rstrip()), "  "))
    if error.remedy:
        lines.append(f"hint: {indented(error.remedy)}")
    return lines


def _failed_checks(error: PreflightFailed) -> list[str]:
    """Return the lines about failed checks, which come before the error."""
    return [
        "[preflight] Some fatal errors occurred:",
        textwrap.indent(_shortened(error.detail.rstrip()), "\t"),
        "[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`",
        f"{_ERROR}{indented(error.what)}",
    ]


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
