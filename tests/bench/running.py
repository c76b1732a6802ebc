"""Runs a command as a user does, and measures what it uses: time from before its start to its end, CPU, peak memory."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_KIB = 1024


class BenchmarkFailed(Exception):
    """A round that cannot be measured; the message says what happened."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A finished command. `began` is monotonic; CPU is user and system time of the command and the children it waited for."""

    began: float
    seconds: float
    cpu_seconds: float
    peak_bytes: int


class Running:
    """A running command. Its output goes to a file, so that reading it costs nothing while the clock runs."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> None:
        self._argv = list(argv)
        self._log = log
        with log.open("wb") as output:
            self.began = time.monotonic()
            self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=dict(env))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Check whether it has ended, without reaping it: `wait` asks once for what it used."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def wait(self) -> Ended:
        """Wait for the end. Raises BenchmarkFailed with its last lines if it failed."""
        _, status, used = os.wait4(self.pid, 0)
        seconds = time.monotonic() - self.began
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if self._process.returncode != 0:
            raise BenchmarkFailed(f"{' '.join(self._argv)}: exit code {self._process.returncode}\n{self.last_lines()}")
        return Ended(began=self.began, seconds=seconds, cpu_seconds=used.ru_utime + used.ru_stime, peak_bytes=used.ru_maxrss * _KIB)

    def last_lines(self, count: int = 15) -> str:
        """Return the end of its output."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-count:])

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        if self._process.returncode is None:
            self._process.kill()
            self._process.wait()


def timed(argv: Sequence[str], *, env: Mapping[str, str], log: Path) -> Ended:
    """Run a command to its end."""
    return Running(argv, env=env, log=log).wait()
