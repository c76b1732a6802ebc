"""Running programs on the host (argument lists, never a shell; errors show the output), and reporting the steps that take long."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from kubewright.base.errors import HostError
from kubewright.base.events import Progress, Reporter
from kubewright.host.programs.commands import RealCommands

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where root looks for programs of the host. The PATH of a user who called `sudo env PATH=$PATH` may have directories of that user."""
_LAST = 12
"""Lines of output that an error shows."""


def environment() -> dict[str, str]:
    """Return the environment of programs of the host."""
    return {**os.environ, "PATH": PATH}


def run(*argv: str, within: float = 900, text: str = "") -> str:
    """Run a program and return its output. Raises HostError with the end of the output if it fails."""
    ended = RealCommands(environment=environment()).run(argv, within=within, text=text)
    if ended.code:
        said = (ended.err or ended.out).strip().splitlines()[-_LAST:]
        raise HostError(f"`{' '.join(argv)}` failed with exit code {ended.code}", detail="\n".join(said))
    return ended.out


def quietly(*argvs: Sequence[str]) -> None:
    """Run programs that clean up; their failures are ignored, because things may be gone already."""
    for argv in argvs:
        with suppress(HostError):
            run(*argv, within=300)


@contextmanager
def step(reporter: Reporter, what: str, *, takes: str) -> Iterator[None]:
    """Report that a step begins, and approximately how long it takes."""
    reporter.emit(Progress(task=what, done=0, text=f"this takes {takes}"))
    yield
    reporter.emit(Progress(task=what, done=1, text="done"))
