"""Running a program of this machine to its end: the one way in which the Host asks other programs. Argument lists only, no shell."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from typing import Protocol

from kubewright.base.errors import HostError
from kubewright.base.records import dataclass
from kubewright.host.programs import find


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a program ended, and what it wrote."""

    code: int
    out: str = ""
    err: str = ""


class Commands(Protocol):
    """Runs programs."""

    def run(self, argv: Sequence[str], /, *, within: float, text: str = "") -> Ended:
        """Run a program that reads a text. Raises HostError if it cannot be started, or has not ended within so many seconds."""
        ...


class RealCommands:
    """Runs programs of this machine with an environment: PATH says where they are."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)

    def run(self, argv: Sequence[str], /, *, within: float, text: str = "") -> Ended:
        try:
            ended = subprocess.run(
                list(argv),
                executable=self._executable(argv[0]),
                capture_output=True,
                timeout=within,
                check=False,
                input=text.encode(),
                env={**self._environment, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired as error:
            raise HostError(
                f"`{' '.join(argv)}` did not end within {within:g} s", remedy="run it by hand to see what it waits for"
            ) from error
        except OSError as error:
            raise HostError(
                f"{argv[0]} cannot be run", detail=error.strerror or str(error), remedy=f"install {argv[0]}, or see that it is on PATH"
            ) from error
        return Ended(code=ended.returncode, out=_text(ended.stdout), err=_text(ended.stderr))

    def _executable(self, name: str) -> str | None:
        """Return what stands for a name, None to leave the search to the system, which then says that there is nothing."""
        found = None if "/" in name else find(name, environment=self._environment)
        return None if found is None else str(found)


def _text(content: bytes) -> str:
    return content.decode("utf-8", errors="replace")
