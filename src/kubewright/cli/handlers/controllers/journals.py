"""The journal of decisions about certificate requests: a file, or standard output."""

from __future__ import annotations

import logging
import sys
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.cli.parsing.inputs import STANDARD_INPUT, absolute
from kubewright.controllers.serving.journal import Write
from kubewright.host.filesystem.files import Files

_log = logging.getLogger(__name__)
_MODE: Final = 0o600


def appender(given: str, *, files: Files) -> Write:
    """Return the function that appends a line: `-` is standard output, '' nothing, everything else a file.

    An empty line adds nothing. The function raises HostError for a file that cannot be written.
    """
    if not given:
        return lambda _: None
    if given == STANDARD_INPUT:
        return _print
    path = PurePosixPath(absolute(given))
    return lambda line: files.append(path, f"{line}\n".encode() if line else b"", mode=_MODE)


def writer(given: str, *, files: Files) -> Write:
    """Return the same function for a daemon: if a line cannot be written, this is logged and work continues."""
    append = appender(given, files=files)

    def write(line: str) -> None:
        try:
            append(line)
        except HostError as error:
            _log.error("a decision is not in the journal: %s: %s", error, line)

    return write


def _print(line: str) -> None:
    if line:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
