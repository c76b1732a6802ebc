"""Logging with the standard library, in klog's levels and line format, on standard error. Secrets are masked."""

from __future__ import annotations

import logging
import os
import sys
from datetime import datetime
from typing import Final, TextIO

from kubewright.base.masking import Masker
from kubewright.base.messages import indented

ROOT: Final = "kubewright"
_LETTERS: Final = ((logging.CRITICAL, "F"), (logging.ERROR, "E"), (logging.WARNING, "W"))
_MOST_VERBOSE: Final = 10


def level_of(verbosity: int) -> int:
    """Return the standard level of a klog verbosity: 0 shows warnings, 1 is INFO, 5 is DEBUG; the others are in between, or below."""
    if verbosity <= 0:
        return logging.WARNING
    return {1: logging.INFO, 2: 18, 3: 16, 4: 14, 5: logging.DEBUG}.get(verbosity, max(1, logging.DEBUG - (verbosity - 5)))


def verbose(logger: logging.Logger, verbosity: int, message: str, *values: object) -> None:
    """Log at a klog verbosity. The message is a %-format, as everywhere in `logging`."""
    logger.log(level_of(verbosity), message, *values, stacklevel=2)


class KlogFormatter(logging.Formatter):
    """Writes `I0102 15:04:05.000000    1234 file.py:12] message`, in local time, like klog.

    A traceback is included from -v 5 on, and always for a record that requests it (`extra={"traceback": True}`).
    Further lines of a record are indented, so that no text in it can imitate another record.
    """

    def __init__(self, *, masker: Masker, tracebacks: bool) -> None:
        super().__init__()
        self._masker = masker
        self._tracebacks = tracebacks

    def format(self, record: logging.LogRecord) -> str:
        letter = next((letter for level, letter in _LETTERS if record.levelno >= level), "I")
        moment = datetime.fromtimestamp(record.created).astimezone()
        head = f"{letter}{moment:%m%d %H:%M:%S.%f} {record.process or os.getpid():7d} {record.filename}:{record.lineno}] "
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            shown = self._tracebacks or getattr(record, "traceback", False)
            text += "\n" + self.formatException(record.exc_info) if shown else f": {record.exc_info[1]}"
        return self._masker(head + indented(text))


def configure(verbosity: int = 0, *, stream: TextIO | None = None, masker: Masker | None = None) -> None:
    """Write our log lines of this verbosity to a stream, standard error by default. May be called again: the last call counts."""
    logger = logging.getLogger(ROOT)
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(KlogFormatter(masker=masker or Masker(), tracebacks=verbosity >= 5))
    for old in list(logger.handlers):
        logger.removeHandler(old)
    logger.addHandler(handler)
    logger.setLevel(level_of(min(verbosity, _MOST_VERBOSE)))
    logger.propagate = False
