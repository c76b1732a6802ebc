"""Renewing the certificates of a control plane (spec/kubeadm.md 10.1)."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from datetime import datetime

from kubewright.base.clock import Clock
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass
from kubewright.lifecycle.certs.places import Places
from kubewright.lifecycle.certs.rows import Renewable
from kubewright.pki import renewal, store
from kubewright.pki.ensure import Sources
from kubewright.pki.keys import KeyPool
from kubewright.pki.renewal import Terms


class Result(enum.Enum):
    """What became of one row."""

    RENEWED = "renewed"
    MISSING = "missing"
    EXTERNAL = "externally managed"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One row and what became of it."""

    row: Renewable
    result: Result

    @property
    def text(self) -> str:
        """The line that kubeadm prints; scripts look for its long name."""
        long_name = self.row.long_name
        return {
            Result.RENEWED: f"{long_name} renewed",
            Result.MISSING: f"MISSING! {long_name}",
            Result.EXTERNAL: f"Detected external {self.row.authority.base}, {long_name} can't be renewed",
        }[self.result]

    def as_map(self) -> dict[str, object]:
        """Return the machine-readable form."""
        return {"name": self.row.name, "result": self.result.value}


def renew(
    places: Places, rows: Sequence[Renewable], *, terms: Terms, clock: Clock, random: Random, started: datetime | None = None
) -> Iterator[Outcome]:
    """Renew the rows in their order, whatever time is left; keys are made ahead in threads. Nothing happens until the result is walked.

    Raises CertificateError at the first file that cannot be read, or whose authority is missing; rows before it are renewed by then.
    """
    with KeyPool() as keys:
        sources = Sources(clock, random, keys, started or clock.now())
        for row in rows:
            if places.read(row) is not None and not _external(places, row):
                keys.reserve(terms.algorithm)
        for row in rows:
            yield Outcome(row=row, result=_renew(places, row, terms, sources))


def _external(places: Places, row: Renewable) -> bool:
    return store.require_authority(places.certificates, row.authority.base, wanted=row.name).key is None


def _renew(places: Places, row: Renewable, terms: Terms, sources: Sources) -> Result:
    if places.read(row) is None:
        return Result.MISSING
    authority = store.require_authority(places.certificates, row.authority.base, wanted=row.name)
    if authority.key is None:
        return Result.EXTERNAL
    if row.base:
        renewal.renew_pair(places.certificates, row.base, authority, terms=terms, sources=sources)
    else:
        renewal.renew_kubeconfig(places.kubeconfigs, row.file, authority, terms=terms, sources=sources)
    return Result.RENEWED
