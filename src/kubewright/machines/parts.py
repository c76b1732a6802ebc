"""The parts of which machines are made: the Debian tree, what every machine has in addition, and the store of images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass
from kubewright.binaries import BinarySources
from kubewright.machines.base import ensure_base, place
from kubewright.machines.images import PROGRAMS, of_release
from kubewright.machines.kit import OPTIONAL, PLACES, ensure_kit, programs
from kubewright.machines.places import cache, locked, making, usual_modes
from kubewright.machines.store import ensure_store
from kubewright.machines.tree import providing

_FILE: Final = "parts"


@dataclass(frozen=True)
class Parts:
    """The parts of machines for one Kubernetes version."""

    base: Path
    kit: Path
    store: Path

    def remember(self, directory: Path) -> None:
        """Write down, in the directory of a group, of which kit and store its machines are made. The Debian tree has one place."""
        with making(directory / _FILE) as partial:
            partial.write_text("\n".join(map(str, (self.kit, self.store))), encoding="utf-8")

    @classmethod
    def remembered(cls, directory: Path) -> Parts | None:
        """Return the parts of a group's machines; None if they are not known, or do not all exist any more."""
        try:
            kit, store = map(Path, (directory / _FILE).read_text(encoding="utf-8").split("\n"))
        except (FileNotFoundError, ValueError):
            return None
        found = cls(place(), kit, store)
        return found if found.base.exists() and kit.exists() and store.exists() else None


@usual_modes()
def ensure_parts(*, version: str = KUBERNETES, sources: BinarySources | None = None, reporter: Reporter | None = None) -> Parts:
    """Make the shared parts unless they exist, which takes some minutes. One process makes them while others wait.

    If a source has a machine tree, its parts are taken instead of being made. Raises BinariesError, before anything is made,
    if a program of this version cannot be had. Clusters of other versions do not wait while its programs are built.
    """
    reporter, sources = reporter or SilentReporter(), sources or binaries.sources_from(os.environ)
    lock = cache() / "parts.lock"
    with locked(lock):
        providing.ensure_taken(version=version, sources=sources, reporter=reporter)
    programs((*(name for name in PLACES if name not in OPTIONAL), *PROGRAMS), version=version, sources=sources, reporter=reporter)
    with locked(lock):
        base, kit = ensure_base(reporter), ensure_kit(version=version, sources=sources, reporter=reporter)
        images = of_release(base, version=version, sources=sources)
        return Parts(base=base, kit=kit, store=ensure_store(images, key=f"{base.name} {kit.name}", reporter=reporter))
