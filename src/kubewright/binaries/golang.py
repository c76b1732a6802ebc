"""The tools of a build: the Go toolchain, an environment that is independent of the user's settings, and the module directories.

A module directory contains a go.mod and a go.sum and is part of this package. It is named FAMILY-LINE
(`kubernetes-1.36`); its go.mod names every program as a tool and pins one version of the family, and its go.sum the
hash of every required module. Another version can be built only if it has a directory.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.binaries import files
from kubewright.binaries.table import Family

INSTALLED: Final = "/usr/local/go/bin/go"
"""The directory where go.dev's archive is unpacked, often without being on PATH."""
INSTALL: Final = "install Go {version} or later (https://go.dev/dl)"
_ANSWER: Final = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")

# Variables for Go's directories and its network access are the user's to set. All others that begin with GO or CGO_
# change
# the result of the build, and are dropped.
_KEPT: Final = frozenset(
    {
        "GOAUTH", "GOCACHE", "GOCACHEPROG", "GOENV", "GOGC", "GOINSECURE", "GOMAXPROCS", "GOMEMLIMIT", "GOMODCACHE", "GONOPROXY", "GONOSUMDB",
        "GOPATH", "GOPRIVATE", "GOPROXY", "GOROOT", "GOSUMDB", "GOTMPDIR", "GOVCS",
    }
)  # fmt: skip

MODULES: Final = Path(__file__).parent / "modules"
MODULE_FILES: Final = ("go.mod", "go.sum")
_GO: Final = re.compile(r"^go (\d+)\.(\d+)(?:\.(\d+))?", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Go:
    """A Go toolchain that is new enough."""

    path: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return "go" + ".".join(map(str, self.version))


def find_go(environment: Mapping[str, str], *, need: tuple[int, int, int]) -> Go:
    """Find `go` on PATH or in its usual place.

    Raises BinariesError if there is none, it does not work, or it is too old.
    """
    wanted = ".".join(map(str, need[:2]))
    remedy = INSTALL.format(version=wanted)
    path = shutil.which("go", path=environment.get("PATH", os.defpath)) or shutil.which(INSTALLED)
    if path is None:
        raise BinariesError("go is not on PATH", remedy=remedy)
    if os.geteuid() == 0 and (fault := files.weakness(Path(path))):
        raise BinariesError(f"{path} is not run as root: {fault}", remedy=f"see `namei -l {path}`, and allow only root to write there")
    answer = _ask(path, environment, remedy=remedy)
    found = _ANSWER.search(answer)
    if found is None:
        raise BinariesError(f"{path} does not report its version: {quoted(answer[:200])}", remedy=remedy)
    version = (int(found[1]), int(found[2]), int(found[3] or 0))
    if version < need:
        raise BinariesError(f"{path} is {found[0]}, go{wanted} or later is needed", remedy=remedy)
    return Go(path=path, version=version)


def _ask(path: str, environment: Mapping[str, str], *, remedy: str) -> str:
    argv = [path, "env", "GOVERSION"]
    try:
        # In the root directory, because a go.mod above the current one could select another toolchain.
        answer = subprocess.run(
            argv,
            cwd="/",
            env={**cleaned(environment), "GOTOOLCHAIN": "local"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=30,
        )
    except OSError as error:
        raise BinariesError(f"{path} cannot be run: {error.strerror}", remedy=remedy) from error
    except subprocess.TimeoutExpired as error:
        raise BinariesError(f"`{' '.join(argv)}` did not answer within 30 s", remedy=remedy) from error
    if answer.returncode:
        words = answer.stderr.decode(errors="replace").strip()
        raise BinariesError(f"`{' '.join(argv)}` failed with exit status {answer.returncode}", detail=words[-500:], remedy=remedy)
    return answer.stdout.decode(errors="replace").strip()


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that change what Go builds."""
    return {name: value for name, value in environment.items() if name in _KEPT or not name.startswith(("GO", "CGO_"))}


def build_environment(environment: Mapping[str, str], *, family: Family, architecture: str, offline: bool) -> dict[str, str]:
    """Return the environment of `go build`.

    Settings of `go env -w` that would change the program are overridden too.
    """
    return {
        **cleaned(environment),
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GO111MODULE": "on",
        "GOWORK": "off",
        "GOOS": "linux",
        "GOARCH": architecture,
        "GOAMD64": "v1",
        "GOARM64": "v8.0",
        "CGO_ENABLED": "1" if family.cgo else "0",
        **({"GOPROXY": "off"} if offline else {}),
    }


@dataclass(frozen=True, kw_only=True)
class Module:
    """A module directory: what it builds, and the oldest Go that can build it."""

    path: Path
    version: Version
    go: tuple[int, int, int]

    def copy_to(self, directory: Path) -> Path:
        """Copy go.mod and go.sum below a directory and return their directory: the package itself may be read-only."""
        target = directory / self.path.name
        files.make_directory(target)
        for name in MODULE_FILES:
            with files.writing(target):
                shutil.copyfile(self.path / name, target / name)
        return target


def find_module(family: Family, version: Version, *, root: Path = MODULES) -> Module:
    """Return the module directory that builds a version of a family.

    Raises BinariesError that lists the available versions.
    """
    there = available_modules(family, root=root)
    for module in there:
        if module.version == version:
            return module
    listed = ", ".join(str(module.version) for module in there) or "none"
    raise BinariesError(f"only these versions of {family.name} can be built: {listed}", remedy=f"choose one of them, or provide {version}")


def available_modules(family: Family, *, root: Path = MODULES) -> list[Module]:
    """Return all module directories of a family, by version."""
    found = [module for path in root.glob(f"{family.name}-*") if (module := _read(path, family)) is not None]
    return sorted(found, key=lambda module: module.version)


def _read(path: Path, family: Family) -> Module | None:
    try:
        text = (path / MODULE_FILES[0]).read_text(encoding="utf-8")
    except OSError:
        return None
    pinned = re.search(rf"^\s*(?:require )?{re.escape(family.module)} (v\S+)", text, re.MULTILINE)
    go = _GO.search(text)
    if pinned is None or go is None:
        return None
    return Module(path=path, version=Version.parse(pinned[1]), go=(int(go[1]), int(go[2]), int(go[3] or 0)))
