"""The programs of this machine that others have installed: where they are, and which version they say they have."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError

_WITHIN: Final = 10.0
"""Seconds that a program may take to tell its version."""


class RealPrograms:
    """The programs on PATH. Implements `host.seam.Programs`."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def path(self, name: str, /) -> PurePosixPath | None:
        import shutil  # with its compression modules as much to load as all of ours

        found = shutil.which(name, path=self._environment.get("PATH", os.defpath))
        return None if found is None else PurePosixPath(found)

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
