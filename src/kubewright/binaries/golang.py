"""The Go toolchain: finding it, requiring a version, and an environment in which a build depends on nothing that the user has set."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError
from kubewright.base.records import dataclass
from kubewright.binaries import files
from kubewright.binaries.table import Family

INSTALLED: Final = "/usr/local/go/bin/go"
"""Where go.dev's archive is unpacked, often without being on PATH."""
INSTALL: Final = "install Go {version} or later (https://go.dev/dl)"
_ANSWER: Final = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")

# Where Go keeps and finds things, and how it reaches the network: the user's business. All else that begins with GO or CGO_ changes
# what is built, and is dropped.
_KEPT: Final = frozenset(
    {
        "GOAUTH", "GOCACHE", "GOCACHEPROG", "GOENV", "GOGC", "GOINSECURE", "GOMAXPROCS", "GOMEMLIMIT", "GOMODCACHE", "GONOPROXY", "GONOSUMDB",
        "GOPATH", "GOPRIVATE", "GOPROXY", "GOROOT", "GOSUMDB", "GOTMPDIR", "GOVCS",
    }
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Go:
    """A Go toolchain that is new enough."""

    path: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return "go" + ".".join(map(str, self.version))


def find(environment: Mapping[str, str], *, need: tuple[int, int, int]) -> Go:
    """Find `go` on PATH or in its usual place. Raises BinariesError where there is none, it does not work, or it is too old."""
    wanted = ".".join(map(str, need[:2]))
    remedy = INSTALL.format(version=wanted)
    path = shutil.which("go", path=environment.get("PATH", os.defpath)) or shutil.which(INSTALLED)
    if path is None:
        raise BinariesError("there is no go on PATH", remedy=remedy)
    if os.geteuid() == 0 and (fault := files.weakness(Path(path))):
        raise BinariesError(f"{path} is not run as root: {fault}", remedy=f"see `namei -l {path}`, and let only root write there")
    answer = _ask(path, environment, remedy=remedy)
    found = _ANSWER.search(answer)
    if found is None:
        raise BinariesError(f"{path} does not say which version it is: {answer[:200]!r}", remedy=remedy)
    version = (int(found[1]), int(found[2]), int(found[3] or 0))
    if version < need:
        raise BinariesError(f"{path} is {found[0]}, go{wanted} or later is needed", remedy=remedy)
    return Go(path=path, version=version)


def _ask(path: str, environment: Mapping[str, str], *, remedy: str) -> str:
    argv = [path, "env", "GOVERSION"]
    try:
        # In the root directory, because a go.mod above the current one could ask for another toolchain.
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
    """Return the environment of `go build`. What `go env -w` has stored is overridden too, where it would change the program."""
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
