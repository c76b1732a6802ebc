"""Running a long child process, line by line, so that it never outlives us and its last words are kept."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError

TICK: Final = 1.0
"""Seconds without a line after which `idle` is called."""
LONGEST_SILENCE: Final = 1800
"""Ticks without a line after which the child is given up: linking the largest program takes one minute on a slow machine."""
KEPT_LINES: Final = 200


class Child:
    """One run of a program whose output (both streams, merged) is read line by line.

    The child has a process group of its own, which is killed when we stop early. Should we be killed, the pipe breaks and ends the child
    at its next line; nothing that it still writes is used.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
        self._argv = list(argv)
        self._cwd = cwd
        self._environment = dict(environment)
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)

    def run(self, *, line: Callable[[str], None], idle: Callable[[], None] = lambda: None) -> int:
        """Run to the end and return the exit status, negative for a signal.

        Raises BinariesError where it cannot be started or falls silent for too long.
        """
        try:
            process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise BinariesError(f"{self._argv[0]} cannot be run: {error.strerror}") from error
        try:
            self._read(process, line=line, idle=idle)
            return process.wait()
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _read(self, process: subprocess.Popen[bytes], *, line: Callable[[str], None], idle: Callable[[], None]) -> None:
        assert process.stdout is not None
        descriptor, rest, silence = process.stdout.fileno(), b"", 0
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(TICK):
                    silence += 1
                    if silence > LONGEST_SILENCE:
                        raise BinariesError(f"`{' '.join(self._argv[:2])}` said nothing for {LONGEST_SILENCE * TICK:.0f} s")
                    idle()
                    continue
                silence = 0
                data = os.read(descriptor, 65536)
                *whole, rest = (rest + data).split(b"\n")
                for one in [*whole, *([rest] if rest and not data else [])]:
                    text = one.decode(errors="replace")
                    self.lines.append(text)
                    line(text)
                if not data:
                    return
