"""The Go modules that programs are built from: directories with a go.mod and a go.sum, part of this package.

A directory is named FAMILY-LINE (`kubernetes-1.36`); its go.mod names every program as a tool and pins one version of the family, and
its go.sum the hash of every module that is needed. Another version can be built only where there is a directory for it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.binaries import files
from kubewright.binaries.table import Family

MODULES: Final = Path(__file__).parent / "modules"
FILES: Final = ("go.mod", "go.sum")
_GO: Final = re.compile(r"^go (\d+)\.(\d+)(?:\.(\d+))?", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Module:
    """One module directory: what it builds, and the oldest Go that can build it."""

    path: Path
    version: Version
    go: tuple[int, int, int]

    def copy_to(self, directory: Path) -> Path:
        """Copy go.mod and go.sum below a directory and return where they are: the package itself may be read-only."""
        target = directory / self.path.name
        files.make_directory(target)
        for name in FILES:
            with files.writing(target):
                shutil.copyfile(self.path / name, target / name)
        return target


def find(family: Family, version: Version, *, root: Path = MODULES) -> Module:
    """Return the module directory that builds a version of a family. Raises BinariesError, naming the versions that there are."""
    there = available(family, root=root)
    for module in there:
        if module.version == version:
            return module
    listed = ", ".join(str(module.version) for module in there) or "none"
    raise BinariesError(f"only these versions of {family.name} can be built: {listed}", remedy=f"choose one of them, or provide {version}")


def available(family: Family, *, root: Path = MODULES) -> list[Module]:
    """Return all module directories of a family, by version."""
    found = [module for path in root.glob(f"{family.name}-*") if (module := _read(path, family)) is not None]
    return sorted(found, key=lambda module: module.version)


def _read(path: Path, family: Family) -> Module | None:
    try:
        text = (path / FILES[0]).read_text(encoding="utf-8")
    except OSError:
        return None
    pinned = re.search(rf"^\s*(?:require )?{re.escape(family.module)} (v\S+)", text, re.MULTILINE)
    go = _GO.search(text)
    if pinned is None or go is None:
        return None
    return Module(path=path, version=Version.parse(pinned[1]), go=(int(go[1]), int(go[2]), int(go[3] or 0)))
