"""What is asked for and what is handed out: plain values that all sources share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubewright.base.errors import BinariesError, HostError
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.binaries.table import Family, Program

ARCHITECTURES: Final = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
"""What `uname -m` says, and what Go and the release files call it."""


@dataclass(frozen=True, kw_only=True)
class Binary:
    """A program that is there and fit for use.

    `version` is its own (`v3.6.8` for etcd), `source` says where it came from, `sha256` is that of the file when it was last read.
    """

    name: str
    path: Path
    version: str
    source: str
    sha256: str
    size: int

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return {
            "name": self.name,
            "path": str(self.path),
            "version": self.version,
            "source": self.source,
            "sha256": self.sha256,
            "size": self.size,
        }


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """Why one source does not have one program, and what would change that."""

    source: str
    reason: str
    remedy: str = ""

    @classmethod
    def of(cls, source: str, error: BinariesError) -> Refusal:
        """Turn the error of a source into its refusal."""
        return cls(source=source, reason=str(error), remedy=error.remedy)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One program in one version for one architecture."""

    program: Program
    version: Version
    kubernetes: Version
    architecture: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} linux/{self.architecture}"

    @property
    def name(self) -> str:
        return self.program.name

    def fill(self, template: str) -> str:
        """Put version, architecture and name into a template of the table."""
        return fill(template, version=self.version, architecture=self.architecture, name=self.name)


def fill(template: str, *, version: Version, architecture: str = "", name: str = "") -> str:
    """Put a version, an architecture and a name into a template of the table."""
    return template.format(
        version=version,
        number=str(version).removeprefix("v"),
        major=version.major,
        minor=version.minor,
        arch=architecture,
        name=name,
    )


def want(program: Program, *, kubernetes: Version, architecture: str) -> Wanted:
    """Say which version of a program goes with a version of Kubernetes."""
    return Wanted(program=program, version=program.family.version(kubernetes), kubernetes=kubernetes, architecture=architecture)


def by_family(wanted: tuple[Wanted, ...]) -> dict[str, tuple[Family, list[Wanted]]]:
    """Group what is wanted by family, keeping the order."""
    groups: dict[str, tuple[Family, list[Wanted]]] = {}
    for one in wanted:
        groups.setdefault(one.program.family.name, (one.program.family, []))[1].append(one)
    return groups


def native_architecture() -> str:
    """Return Go's name for this machine's architecture. Raises HostError on one that no release is made for."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        raise HostError(f"this machine is {machine}", remedy="kubewright works on linux/amd64 and linux/arm64")
    return ARCHITECTURES[machine]
