"""The programs of this machine: finding them, running them to completion, and their versions.

Argument lists only, no shell.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Protocol

from kubewright.base.deadlines import left
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.filesystem.paths import weakness

_WITHIN: Final = 60.0
"""Seconds that a program may take to print its version: a kubelet took more than ten on a machine with a load of 50 per core."""


def find(name: str, *, environment: Mapping[str, str]) -> PurePosixPath | None:
    """Return the full path of a program on PATH, or None. Root skips programs that others can change.

    Raises HostError if there are only such programs.
    """
    import shutil  # with its compression modules, it takes as long to load as all of our modules

    faults: dict[PurePosixPath, str] = {}
    for directory in environment.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which(name, path=directory or os.curdir)
        if found is None:
            continue
        path = PurePosixPath(os.path.abspath(found))  # noqa: PTH100 - no link is followed here
        fault = weakness(path) if os.geteuid() == 0 else ""
        if not fault:
            return path
        faults.setdefault(path, fault)
    for path, fault in faults.items():
        raise HostError(
            f"{path} is not run: {fault}",
            detail="anyone who can change a program decides what runs as root",
            remedy=f"see `namei -l {path}`; allow only root to write there, or remove that directory from PATH",
        )
    return None


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The exit code and output of a program."""

    code: int
    out: str = ""
    err: str = ""


class Commands(Protocol):
    """Runs programs."""

    def run(self, argv: Sequence[str], /, *, within: float, text: str = "") -> Ended:
        """Run a program with a text as standard input.

        Raises HostError if it cannot be started, or does not exit within `within` seconds or by a deadline.
        """
        ...


class RealCommands:
    """Runs programs of this machine with an environment, whose PATH is searched."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def run(self, argv: Sequence[str], /, *, within: float, text: str = "") -> Ended:
        import subprocess  # few commands run programs

        bound = within
        try:
            bound = left(within) or within
            ended = subprocess.run(
                list(argv),
                executable=self._executable(argv[0]),
                capture_output=True,
                timeout=bound,
                check=False,
                input=text.encode(),
                env={**self._environment, "LC_ALL": "C"},
            )
        except (subprocess.TimeoutExpired, TimeoutError) as error:
            raise HostError(
                f"`{' '.join(argv)}` did not end within {bound:.3g} s", remedy="run it manually to see what it is waiting for"
            ) from error
        except OSError as error:
            raise HostError(
                f"{argv[0]} cannot be run",
                detail=error.strerror or str(error),
                remedy=f"install {argv[0]}, or make sure that it is on PATH",
            ) from error
        return Ended(code=ended.returncode, out=_text(ended.stdout), err=_text(ended.stderr))

    def _executable(self, name: str) -> str | None:
        """Return the path of a program, or None to leave the search to the system, which then reports that it does not exist."""
        found = None if "/" in name else find(name, environment=self._environment)
        return None if found is None else str(found)


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")


class RealPrograms:
    """The programs on PATH. Implements `host.readers.Programs`."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def path(self, name: str, /) -> PurePosixPath | None:
        return find(name, environment=self._environment)

    def version(self, name: str, /, argument: str = "--version") -> str:
        found = self.path(name)
        if found is None:
            raise HostError(f"{name} is not installed", remedy=f"install {name}, or make sure that it is on PATH")
        ended = RealCommands(environment=self._environment).run([str(found), argument], within=_WITHIN)
        if ended.code:
            raise HostError(
                f"{found} does not report its version",
                detail=f"exit code {ended.code}: {' '.join(ended.err.strip().splitlines()[-1:])}",
                remedy=f"see what `{found} {argument}` says",
            )
        return ended.out.strip()
