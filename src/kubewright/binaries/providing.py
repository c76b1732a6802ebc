"""Provides the component binaries of a Kubernetes version: found, downloaded, or built.

The sources are tried in a fixed order: the user's directory, the cache, a download, a build. Each reports why it does
not have a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import BinariesError
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.records import dataclass
from kubewright.base.versions import supported
from kubewright.binaries import table
from kubewright.binaries.lookup import Located, Lookup
from kubewright.binaries.settings import BinarySources
from kubewright.binaries.table import Binary, Wanted, native_architecture, want

if TYPE_CHECKING:
    from kubewright.binaries.download import Fetcher


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A binary whose file was read again. `fault` is '' if it is unchanged, otherwise what is wrong with it."""

    binary: Binary
    fault: str = ""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A row of `binaries list`. `binary` is None if it is missing; `reason` then says why."""

    name: str
    family: str
    version: str
    default: bool
    binary: Binary | None = None
    reason: str = ""

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        there = {"path": str(self.binary.path), "source": self.binary.source, "size": self.binary.size} if self.binary else {}
        return {
            "name": self.name,
            "family": self.family,
            "version": self.binary.version if self.binary else self.version,
            "default": self.default,
            "present": self.binary is not None,
            **there,
            **({"reason": self.reason} if self.reason else {}),
        }


def wanted_programs(names: Iterable[str], *, version: str, architecture: str = "") -> tuple[Wanted, ...]:
    """Return the programs and versions that some names denote. Raises UsageError for an unknown name or version."""
    kubernetes = supported(version)
    chosen = architecture or native_architecture()
    return tuple(want(program, kubernetes=kubernetes, architecture=chosen) for program in table.programs(names))


def locate(names: Sequence[str] = table.DEFAULT, *, version: str, sources: BinarySources, architecture: str = "") -> Located:
    """Look up programs without fetching anything: one stat each once they are known.

    Raises BinariesError if the user's directory does not exist or contains an unusable program.
    """
    return Lookup(sources).locate(wanted_programs(names, version=version, architecture=architecture))


def ensure(
    names: Sequence[str] = table.DEFAULT,
    *,
    version: str,
    sources: BinarySources,
    reporter: Reporter | None = None,
    clock: Clock | None = None,
    architecture: str = "",
    wait: bool = True,
    environment: Mapping[str, str] | None = None,
    fetcher: Fetcher | None = None,
) -> dict[str, Binary]:
    """Return programs by name, fetching missing ones. A second call changes nothing.

    `version` is that of Kubernetes; etcd's and the others' follow from it. Without `wait`, Locked is raised while
    another kubewright fetches. `environment` is used for Go and the choice of a proxy; by default it is the process's
    own. `fetcher` performs the downloads instead of `kubewright.http`.
    Raises BinariesError with the reason of each source for each missing program; DiskFull and HostError if the cache
    cannot be written.
    """
    wanted = wanted_programs(names, version=version, architecture=architecture)
    shelf = Lookup(sources)
    located = shelf.locate(wanted)
    if located.missing:
        from kubewright.binaries.fetching import Fetching

        fetching = Fetching(
            shelf,
            sources=sources,
            environment=os.environ if environment is None else environment,
            reporter=reporter or SilentReporter(),
            clock=clock or SystemClock(),
            fetcher=fetcher,
        )
        located = fetching.fetch(wanted, wait=wait)
    return {one.name: located.found[one.name] for one in wanted}


def only_built(names: Sequence[str], *, version: str, sources: BinarySources) -> list[str]:
    """Return the missing programs that nothing but a build can provide. Raises as `locate` does."""
    missing = locate(names, version=version, sources=sources).missing if sources.allow_build else ()
    return [name for name in missing if not (sources.allow_download and table.PROGRAMS[name].family.download)]


def verify(names: Sequence[str] = (), *, version: str, sources: BinarySources, architecture: str = "") -> list[Verified]:
    """Read every program again and compare its SHA-256 with the one recorded when it was checked.

    Without names, all existing ones. Raises BinariesError if a named one is missing.
    """
    from kubewright.binaries.cache import rehash

    located = locate(names or tuple(table.PROGRAMS), version=version, sources=sources, architecture=architecture)
    if names and located.missing:
        raise BinariesError(
            f"not there: {', '.join(located.missing)}",
            detail="\n".join(refusal.reason for refusals in located.missing.values() for refusal in refusals),
            remedy="kubewright binaries fetch",
        )
    results = []
    for binary in located.found.values():
        now = rehash(binary)
        fault = "" if now.sha256 == binary.sha256 else f"its SHA-256 is {now.sha256}, it was {binary.sha256}"
        results.append(Verified(binary=binary, fault=fault))
    return results


def listing(*, version: str, sources: BinarySources, architecture: str = "") -> list[Listed]:
    """Return one row for every program of the table, present or not, in its order."""
    rows = []
    shelf = Lookup(sources)
    for one in wanted_programs(table.PROGRAMS, version=version, architecture=architecture):
        try:
            found = shelf.find(one)
            reason = "" if isinstance(found, Binary) else "; ".join(refusal.reason for refusal in found)
        except BinariesError as error:
            found, reason = (), str(error)
        rows.append(
            Listed(
                name=one.name,
                family=one.program.family.name,
                version=str(one.version),
                default=one.program.default,
                binary=found if isinstance(found, Binary) else None,
                reason=reason,
            )
        )
    return rows
