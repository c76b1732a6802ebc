"""What a test needs to run kubewright as an ordinary user: an interpreter and a library that this user can read.

If the tests run as root, the test becomes such a user. If only its owner can read the clone (because it is below
/root, or in a directory of mode 0700), the necessary files are copied.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import kubewright

NOBODY = 65534
SYSTEM_PYTHON = "/usr/bin/python3"
PROJECT = Path(__file__).parents[1] / "pyproject.toml"
LOADED = "kubewright.cli.main, kubewright.local.daemon.control_server, kubewright.local.cluster.up_operation"
"""These imports load everything that a command or a daemon needs."""


@pytest.fixture
def readable() -> Iterator[Path]:
    """Provide a directory that everyone can read; those of pytest are for their owner only."""
    with tempfile.TemporaryDirectory(prefix="kw-user-") as place:
        Path(place).chmod(0o755)
        yield Path(place)


def uid() -> int:
    """Return the user that the test becomes: nobody if we are root, otherwise the current user."""
    return NOBODY if os.geteuid() == 0 else os.geteuid()


def becoming(uid: int) -> dict[str, Any]:
    """Return the arguments that start a child as another user; empty if we already are that user."""
    return {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": []}


@cache
def python(uid: int) -> str:
    """Return an interpreter of our version that the user can run."""
    for path in (sys.executable, SYSTEM_PYTHON):
        with_version = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]!r})"
        try:
            if subprocess.run([path, "-I", "-c", with_version], check=False, cwd="/", env={}, **becoming(uid)).returncode == 0:
                return path
        except OSError:
            continue
    pytest.skip("no interpreter of this version that an ordinary user may run")


def library(uid: int, place: Path) -> str:
    """Return the value of PYTHONPATH with which the user finds kubewright: our sources, or a copy that everyone can read."""
    source = str(Path(kubewright.__file__).parents[1])
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": source}
    argv = [python(uid), "-c", f"import {LOADED}"]
    found = subprocess.run(argv, check=False, cwd="/", env=environment, stderr=subprocess.DEVNULL, **becoming(uid))
    return source if found.returncode == 0 else str(_copied(place))


def _copied(library: Path) -> Path:
    """Copy the package and the distributions that it needs."""
    shutil.copytree(Path(kubewright.__file__).parent, library / "kubewright", ignore=shutil.ignore_patterns("__pycache__"))
    for name in _needed(tomllib.loads(PROJECT.read_text())["project"]["dependencies"]):
        for file in metadata.files(name) or []:
            if ".." not in file.parts and (found := Path(str(file.locate()))).is_file():
                (library / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, library / file)
    return library


def _needed(requirements: Iterable[str], known: frozenset[str] = frozenset()) -> frozenset[str]:
    """Return the names of the required distributions, including indirect requirements."""
    for requirement in requirements:
        other = re.split(r"[^A-Za-z0-9_.-]", requirement)[0]
        if "extra ==" in requirement or other in known:
            continue
        try:
            metadata.distribution(other)
        except metadata.PackageNotFoundError:  # for another system
            continue
        known = _needed(metadata.requires(other) or [], known | {other})
    return known
