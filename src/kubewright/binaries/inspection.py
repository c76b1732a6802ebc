"""Checks whether a file is a usable program: its type, mode, architecture, and the version that it reports."""

from __future__ import annotations

import os
import re
import stat
import struct
import subprocess
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.versions import Version
from kubewright.binaries.table import Tolerance, Wanted, native_architecture

HEADER_LENGTH: Final = 20
MACHINES: Final = {
    3: "386",
    8: "mips",
    20: "ppc",
    21: "ppc64le",
    22: "s390x",
    40: "arm",
    62: "amd64",
    183: "arm64",
    243: "riscv64",
    258: "loong64",
}
_BYTE_ORDERS: Final = {1: "<", 2: ">"}
_EXECUTABLE_TYPES: Final = frozenset({2, 3})  # ET_EXEC, and ET_DYN for position-independent programs

_VERSION: Final = re.compile(r"(?<![\w.])v?(\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?)")
ANSWER_LIMIT: Final = 20.0
"""Seconds within which a program must report its version: generous, because it may be read from a slow disk for the first time."""


def elf_machine(header: bytes) -> str:
    """Return Go's name of a program's architecture.

    `header` is at least the first 20 bytes of the file. Raises ValueError that describes another kind of file.
    """
    if header[:4] != b"\x7fELF":
        raise ValueError(_not_elf(header))
    order = _BYTE_ORDERS.get(header[5]) if len(header) >= HEADER_LENGTH else None
    if order is None:
        raise ValueError("a damaged ELF file")
    kind, number = struct.unpack_from(f"{order}HH", header, 16)
    if kind not in _EXECUTABLE_TYPES:
        raise ValueError(f"an ELF file that is not a program (type {kind})")
    return MACHINES.get(number, f"ELF machine {number}")


def is_script(header: bytes) -> bool:
    """Return whether the file begins with `#!`: it has no architecture."""
    return header[:2] == b"#!"


def _not_elf(header: bytes) -> str:
    if not header:
        return "an empty file"
    if is_script(header):
        return "a script"
    if header[:2] == b"MZ":
        return "a Windows program"
    if header[:4] in {b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"}:
        return "a macOS program"
    return "not an ELF program"


def check_program(
    path: Path, wanted: Wanted, *, scripts: bool = False, tolerance: Tolerance = Tolerance.EXACT, flag: bool = False
) -> Version:
    """Require a usable program, and return the version that it reports.

    Checks the file's type, mode and ELF header, then runs it to request its version (unless it is for another
    architecture than this machine's: then the wanted version is returned). `scripts` accepts files that begin with
    `#!`; `flag` is that of `check_version`.
    Raises BinariesError with what was found and what was expected.
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
    found = ask_version(path, wanted)
    if str(found) == wanted.program.family.reports:
        return wanted.version
    return check_version(found, wanted, path=path, tolerance=tolerance, flag=flag)


def check_architecture(header: bytes, wanted: Wanted, *, path: Path, scripts: bool = False) -> None:
    """Require the first bytes of a program for the wanted architecture. Raises BinariesError, naming both."""
    if scripts and is_script(header):
        return
    remedy = f"put {wanted.name} for linux/{wanted.architecture} there"
    try:
        found = elf_machine(header)
    except ValueError as error:
        raise BinariesError(f"{path} is {error}, not a program for linux/{wanted.architecture}", remedy=remedy) from error
    if found != wanted.architecture:
        raise BinariesError(f"{path} is a program for {found}; {wanted.architecture} is needed", remedy=remedy)


def check_version(found: Version, wanted: Wanted, *, path: Path, tolerance: Tolerance, flag: bool = False) -> Version:
    """Require a version that is close enough to the wanted one. Raises BinariesError, naming both.

    `flag`: the user may choose another version with --kubernetes-version.
    """
    fits = {
        Tolerance.EXACT: found == wanted.version,
        Tolerance.LINE: found.line == wanted.version.line,
        Tolerance.ANY: True,
    }[tolerance]
    if not fits:
        raise BinariesError(
            f"{path} is {wanted.name} {found}, {tolerance.value} {wanted.version} is wanted",
            remedy=f"--kubernetes-version {found}"
            if flag and wanted.version == wanted.kubernetes
            else f"put {wanted.name} {wanted.version} there",
        )
    return found


def ask_version(path: Path, wanted: Wanted) -> Version:
    """Run a program to get its version. Raises BinariesError with its output if that contains no version."""
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
        raise BinariesError(f"{path} did not report its version within {ANSWER_LIMIT:.0f} s", remedy=_damaged(path)) from error
    text = answer.stdout.decode(errors="replace")
    found = _VERSION.search(text)
    if answer.returncode or found is None:
        raise BinariesError(
            f"`{' '.join(argv)}` did not print a version", detail=_last_words(text, answer.returncode), remedy=_damaged(path)
        )
    return Version.parse(found[1])


def _damaged(path: Path) -> str:
    return f"replace {path.name}: the file is damaged, or is another program"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEADER_LENGTH)


def _cannot_run(error: OSError, path: Path) -> str:
    if isinstance(error, PermissionError):
        return f"the file system of {path.parent} may be mounted noexec: use another directory"
    if isinstance(error, FileNotFoundError):
        return f"the interpreter or loader of {path} does not exist on this machine"
    return ""


def _last_words(text: str, code: int) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return "\n".join([f"exit status {code}", *lines[-5:]])
