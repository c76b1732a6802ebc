"""The programs of this machine that others have installed: where they are, and which version they say they have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.host.trust import weakness

_WITHIN: Final = 10.0
"""Seconds that a program may take to tell its version."""


def find(name: str, *, environment: Mapping[str, str]) -> PurePosixPath | None:
    """Return the full path of a program on PATH, or None. Root takes none that others can change, and looks for the next one.

    Raises HostError where there are only such ones.
    """
    import shutil  # with its compression modules as much to load as all of ours

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
            detail="whoever can change a program decides what runs as root",
            remedy=f"see `namei -l {path}`; let only root write there, or take that directory out of PATH",
        )
    return None


class RealPrograms:
    """The programs on PATH. Implements `host.seam.Programs`."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def path(self, name: str, /) -> PurePosixPath | None:
        return find(name, environment=self._environment)

    def version(self, name: str, /) -> str:
        found = self.path(name)
        if found is None:
            raise HostError(f"{name} is not installed", remedy=f"install {name}, or see that it is on PATH")
        from kubewright.host.commands import RealCommands  # few commands run programs

        ended = RealCommands(environment=self._environment).run([str(found), "--version"], within=_WITHIN)
        if ended.code:
            raise HostError(
                f"{found} does not tell its version",
                detail=f"exit code {ended.code}: {' '.join(ended.err.strip().splitlines()[-1:])}",
                remedy=f"see what `{found} --version` says",
            )
        return ended.out.strip()
