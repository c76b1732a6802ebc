"""This kubewright in machines: the directories of the host that they see, read-only, and the command that starts it there.

Either the archive from which it runs (docs/decisions/0016-one-archive.md), or its modules and their virtual
environment; then the Python of the machines' Debian has to be of the same version. Where it is not at the same path,
such as in images of Python, machines run the modules with their own. The paths in machines do not depend on those of
the host: a clone may be below /tmp or /root, and machines have their own.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.records import dataclass, field

TREE_PYTHON: Final = (3, 11)
"""The Python of the machines' tree: Debian bookworm."""
_TREE_PYTHON_PATH: Final = "/usr/bin/python3.11"
_ARCHIVE: Final = "/opt/kubewright/archive"
_PYTHON: Final = "/opt/kubewright/python"
_PACKAGES: Final = "/opt/kubewright/packages"
_SOURCE: Final = "/opt/kubewright/source"


@dataclass(frozen=True, kw_only=True)
class Program:
    """The program as machines have it: paths in a machine with the host's directories there, and the words that call it."""

    shared: Mapping[str, Path]
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def from_environment() -> Program:
    """Return the program as it runs from a virtual environment.

    With its environment, an interpreter finds kubewright and writes nothing to our sources.
    """
    return Program(
        shared={_PYTHON: Path(sys.prefix), _SOURCE: Path(__file__).parents[2]},
        argv=(f"{_PYTHON}/bin/python", "-m", "kubewright"),
        environment={"PYTHONPATH": _SOURCE, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def from_packages(packages: Path) -> Program:
    """Return the program as the Python of machines runs it, with the packages of another one of the same version."""
    return Program(
        shared={_PACKAGES: packages, _SOURCE: Path(__file__).parents[2]},
        argv=(_TREE_PYTHON_PATH, "-m", "kubewright"),
        environment={"PYTHONPATH": f"{_SOURCE}:{_PACKAGES}", "PYTHONDONTWRITEBYTECODE": "1"},
    )


def from_archive(root: Path) -> Program:
    """Return the program as it runs from an unpacked archive."""
    return Program(shared={_ARCHIVE: root}, argv=(f"{_ARCHIVE}/bin/kubewright",))


def own() -> Program:
    """Return this program, in the form in which it runs here."""
    root = archive_of(sys.executable)
    if root is not None:
        return from_archive(root)
    has_environment = sys.prefix != sys.base_prefix and os.path.realpath(sys.executable) == _TREE_PYTHON_PATH
    return from_environment() if has_environment else from_packages(Path(sysconfig.get_path("purelib")))


def archive_of(executable: str) -> Path | None:
    """Return the directory of the archive to which an interpreter belongs, None if it is another one."""
    path = Path(executable)
    root = path.parent.parent
    return root if path.parent.name == "libexec" and (root / "share" / "CONTENTS").is_file() else None


def unfit() -> str:
    """Return why machines cannot run this program, '' if they can."""
    if archive_of(sys.executable) is not None or sys.version_info[:2] == TREE_PYTHON:
        return ""
    return f"this kubewright runs on Python {sys.version_info[0]}.{sys.version_info[1]}, the machines have 3.11"
