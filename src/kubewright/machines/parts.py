"""The parts of which machines are made: the Debian tree, what every machine has in addition, and the store of images."""

from __future__ import annotations

import os
from pathlib import Path

from kubewright import binaries
from kubewright.base.events import Reporter, SilentReporter
from kubewright.base.level import KUBERNETES
from kubewright.base.records import dataclass
from kubewright.binaries import BinarySources
from kubewright.machines.base import ensure_base
from kubewright.machines.images import PROGRAMS, of_release
from kubewright.machines.kit import OPTIONAL, PLACES, ensure_kit, programs
from kubewright.machines.places import cache, locked, usual_modes
from kubewright.machines.store import ensure_store
from kubewright.machines.tree import providing


@dataclass(frozen=True)
class Parts:
    """The parts of machines for one Kubernetes version."""

    base: Path
    kit: Path
    store: Path


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
