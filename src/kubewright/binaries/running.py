"""Asking a program for its version, and the checks that come before: the last step before a binary is trusted."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.versions import Version
from kubewright.binaries import elf
from kubewright.binaries.table import Tolerance
from kubewright.binaries.wanted import Wanted, native_architecture

_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
ANSWER_LIMIT: Final = 20.0
"""Seconds within which a program has to say its version: generous, because it may be read from a slow disk for the first time."""


def check(path: Path, wanted: Wanted, *, scripts: bool = False, tolerance: Tolerance = Tolerance.EXACT) -> Version:
    """Require a program that can be used, and return the version that it says it is.

    Looks at the kind of file, its mode and its ELF header, then runs it to ask for its version (not when it is for another architecture
    than this machine's: then the wanted version is returned). `scripts` accepts files that begin with `#!`.
    Raises BinariesError, naming what was found and what was expected.
    """
    try:
        status, header = path.stat(), _head(path)
    except OSError as error:
        raise BinariesError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise BinariesError(f"{path} is not a file")
    if not os.access(path, os.X_OK):
        raise BinariesError(f"{path} is not executable", remedy=f"chmod +x {path}")
    check_architecture(header, wanted, path=path, scripts=scripts)
    if wanted.architecture != native_architecture():
        return wanted.version
    return check_version(ask_version(path, wanted), wanted, path=path, tolerance=tolerance)


def check_architecture(header: bytes, wanted: Wanted, *, path: Path, scripts: bool = False) -> None:
    """Require the first bytes of a program for the wanted architecture. Raises BinariesError, naming both."""
    if scripts and elf.is_script(header):
        return
    remedy = f"put {wanted.name} for linux/{wanted.architecture} there"
    try:
        found = elf.machine(header)
    except ValueError as error:
        raise BinariesError(f"{path} is {error}, not a program for linux/{wanted.architecture}", remedy=remedy) from error
    if found != wanted.architecture:
        raise BinariesError(f"{path} is a program for {found}; this needs {wanted.architecture}", remedy=remedy)


def check_version(found: Version, wanted: Wanted, *, path: Path, tolerance: Tolerance) -> Version:
    """Require a version that is near enough to the wanted one. Raises BinariesError, naming both."""
    fits = {
        Tolerance.EXACT: found == wanted.version,
        Tolerance.LINE: found.line == wanted.version.line,
        Tolerance.ANY: True,
    }[tolerance]
    if not fits:
        raise BinariesError(
            f"{path} is {wanted.name} {found}, {tolerance.value} {wanted.version} is wanted",
            remedy=f"--kubernetes-version {found}" if wanted.version == wanted.kubernetes else f"put {wanted.name} {wanted.version} there",
        )
    return found


def ask_version(path: Path, wanted: Wanted) -> Version:
    """Run a program to ask for its version. Raises BinariesError with its own words where it does not answer with one."""
    import subprocess

    argv = [str(path), *wanted.program.version_arguments]
    try:
        answer = subprocess.run(
            argv,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=ANSWER_LIMIT,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        )
    except OSError as error:
        raise BinariesError(f"{path} cannot be run: {error.strerror}", remedy=_cannot_run(error, path)) from error
    except subprocess.TimeoutExpired as error:
        raise BinariesError(f"{path} did not say its version within {ANSWER_LIMIT:.0f} s", remedy=_damaged(path)) from error
    text = answer.stdout.decode(errors="replace")
    found = _VERSION.search(text)
    if answer.returncode or found is None:
        raise BinariesError(
            f"`{' '.join(argv)}` did not answer with a version", detail=_last_words(text, answer.returncode), remedy=_damaged(path)
        )
    return Version.parse(found[1])


def _damaged(path: Path) -> str:
    return f"put {path.name} there again: the file is damaged, or is not what its name says"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(elf.HEADER_LENGTH)


def _cannot_run(error: OSError, path: Path) -> str:
    if isinstance(error, PermissionError):
        return f"the file system of {path.parent} may be mounted noexec: use another directory"
    if isinstance(error, FileNotFoundError):
        return f"the interpreter or loader that {path} names is not on this machine"
    return ""


def _last_words(text: str, code: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join([f"exit status {code}", *lines[-5:]])
