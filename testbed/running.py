"""Running programs on the host for the testbed: argument lists, never a shell, and errors that show the program's output."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence


class BedError(Exception):
    """The host does not allow something. The text names the problem, and what to do."""


def run(*argv: str, cwd: str | None = None, env: Mapping[str, str] | None = None, within: float = 900, data: bytes | None = None) -> str:
    """Run a program and return its output. Raises BedError with the end of the output if it fails."""
    try:
        ended = subprocess.run(argv, cwd=cwd, env=env, input=data, capture_output=True, timeout=within, check=False)
    except FileNotFoundError as error:
        raise BedError(f"{argv[0]} is not installed: `python -m testbed packages` installs what is needed") from error
    except subprocess.TimeoutExpired as error:
        raise BedError(f"{' '.join(argv[:4])} … did not end within {within:g} s") from error
    if ended.returncode:
        said = (ended.stderr or ended.stdout).decode(errors="replace").strip().splitlines()[-12:]
        raise BedError(f"{' '.join(argv)} ended with {ended.returncode}:\n" + "\n".join(said))
    return ended.stdout.decode(errors="replace")


def quietly(*argvs: Sequence[str]) -> None:
    """Run programs that clean up: what is already gone is no error."""
    for argv in argvs:
        subprocess.run(argv, capture_output=True, timeout=300, check=False)
