"""Kubernetes versions, and the one table of the versions of components that belong to each."""

from __future__ import annotations

import functools
import re
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.base.level import KUBERNETES
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field

_SEMANTIC: Final = re.compile(
    r"v?(?P<major>0|[1-9]\d*)\.(?P<minor>0|[1-9]\d*)\.(?P<patch>0|[1-9]\d*)"
    r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+(?P<build>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?",
    re.ASCII,
)


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class Version:
    """A semantic version. Ordered by the rules of semver.org 2.0.0, section 11; build metadata does not count."""

    major: int
    minor: int
    patch: int
    pre: str = ""
    build: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read `v1.36.3`, with or without the `v`. Raises ValueError for anything else, including two-part versions."""
        found = _SEMANTIC.fullmatch(text)
        if found is None:
            raise ValueError(f"{quoted(text)} is not a version like v1.36.3")
        return cls(int(found["major"]), int(found["minor"]), int(found["patch"]), found["pre"] or "", found["build"] or "")

    @property
    def line(self) -> str:
        """The minor release of the version, `1.36`."""
        return f"{self.major}.{self.minor}"

    def _key(self) -> tuple[object, ...]:
        parts = self.pre.split(".") if self.pre else []
        identifiers = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)
        return (self.major, self.minor, self.patch, not self.pre, identifiers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def __str__(self) -> str:
        return f"v{self.major}.{self.minor}.{self.patch}" + (f"-{self.pre}" if self.pre else "") + (f"+{self.build}" if self.build else "")


@dataclass(frozen=True, kw_only=True)
class Release:
    """The component versions and settings that belong to one minor release of Kubernetes (kubeadm v1.36: constants)."""

    line: str
    etcd_tag: str
    coredns_tag: str
    pause_tag: str
    newest: str
    """Its newest patch release when this release of kubewright was made; `1.36` as a version means this one."""
    etcd_program: str
    """The etcd version that `kubewright binaries` provides for it."""
    proxy_mode: str = ""
    """The mode in a kube-proxy configuration that names none; '' leaves it to kube-proxy. kubeadm v1.37 writes it (its #139777)."""
    digests: dict[str, str] = field(default_factory=dict)
    """Known SHA-256 digests of downloads: `kube-apiserver v1.36.3 linux/amd64` -> hex."""


OWN: Final = Version.parse(KUBERNETES)
"""The compatibility level: in all skew rules, kubewright counts as the kubeadm of this Kubernetes version."""

OLDEST_CONTROL_PLANE: Final = Version(1, 35, 0)

# What kubeadm v1.36.3 renders for each target: one etcd tag for all of them, and its own CoreDNS and pause. If a
# later kubeadm differs for its own release, the difference is a value in that release's row.
RELEASES: Final[dict[str, Release]] = {
    release.line: release
    for release in (
        Release(line="1.35", newest="v1.35.4", etcd_tag="3.6.8-0", coredns_tag="v1.14.2", pause_tag="3.10.2", etcd_program="v3.6.8"),
        Release(line="1.36", newest=KUBERNETES, etcd_tag="3.6.8-0", coredns_tag="v1.14.2", pause_tag="3.10.2", etcd_program="v3.6.8"),
        Release(
            line="1.37",
            newest="v1.37.1",
            etcd_tag="3.6.8-0",
            coredns_tag="v1.14.2",
            pause_tag="3.10.2",
            etcd_program="v3.6.8",
            proxy_mode="iptables",
        ),
    )
}


def release_for(version: Version) -> Release:
    """Return the row for a version; a version below or above the table gets the nearest row, as in kubeadm."""
    if version.line in RELEASES:
        return RELEASES[version.line]
    rows = list(RELEASES.values())
    return rows[0] if version < Version.parse(f"{rows[0].line}.0") else rows[-1]


def supported(text: str) -> Version:
    """Read a version given by a user and require that kubewright can deploy it. `1.36` means its newest patch release.

    Raises UsageError, naming the supported versions.
    """
    lines = f"supported: {next(iter(RELEASES))} to {next(reversed(RELEASES))}, for example {KUBERNETES}"
    line = text.removeprefix("v")
    try:
        version = Version.parse(RELEASES[line].newest if line in RELEASES else text)
    except ValueError as error:
        raise UsageError(f"Kubernetes version {quoted(text)} is not a version", remedy=lines) from error
    if version.line not in RELEASES:
        raise UsageError(f"Kubernetes {version} is not supported", remedy=lines)
    return version
