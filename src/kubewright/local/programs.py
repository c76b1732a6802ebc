"""The programs of a cluster: the required ones, and kubectl, without which a cluster still works."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from kubewright import binaries
from kubewright.base.clock import Clock
from kubewright.base.errors import BinariesError, KubewrightError
from kubewright.base.events import Reporter, Warned
from kubewright.binaries import BinarySources

COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""The components of a control plane: each is a static pod and the program of its name."""
KUBECTL: Final = "kubectl"
PYTHON: Final = "python3"
"""The interpreter of our own components, in their manifests."""


def components(version: str, *, sources: BinarySources, reporter: Reporter, clock: Clock, with_kubectl: bool) -> dict[str, Path]:
    """Return the paths of the control plane's programs by name, fetching missing ones. Raises BinariesError.

    If something must be fetched anyway, kubectl is included: one build creates all.
    """
    located = binaries.locate(COMPONENTS, version=version, sources=sources)
    if located.missing:
        wanted = (*COMPONENTS, KUBECTL) if with_kubectl else COMPONENTS
        try:
            binaries.ensure(wanted, version=version, sources=sources, reporter=reporter, clock=clock)
        except BinariesError:
            if binaries.locate(COMPONENTS, version=version, sources=sources).missing:
                raise
        located = binaries.locate(COMPONENTS, version=version, sources=sources)
    return {name: binary.path for name, binary in located.found.items()}


def bring_kubectl(version: str, *, sources: BinarySources, reporter: Reporter, clock: Clock) -> None:
    """Fetch kubectl for a cluster that is already up, and report why if that fails. Does nothing if it exists.

    A directory that the user gave is a deliberate choice: missing programs are not downloaded or built for minutes, and
    the user may have another kubectl.
    """
    fetch = f"`kubewright binaries fetch {KUBECTL}` gets one"
    try:
        if not binaries.locate((KUBECTL,), version=version, sources=sources).missing:
            return
        if sources.directory is None:
            binaries.ensure((KUBECTL,), version=version, sources=sources, reporter=reporter, clock=clock)
        elif shutil.which(KUBECTL) is None:
            reporter.emit(Warned(text=f"{KUBECTL} is neither in {sources.directory} nor in the cache; {fetch}"))
    except KubewrightError as error:
        detail = "".join(f"\n  {line}" for line in error.detail.splitlines())
        reporter.emit(Warned(text=f"the cluster is up, but {KUBECTL} is not available: {error.what}; {fetch}{detail}"))


def find_kubectl(version: str, *, sources: BinarySources) -> Path | None:
    """Return the path of kubectl, None if there is no suitable one."""
    try:
        found = binaries.locate((KUBECTL,), version=version, sources=sources).found.get(KUBECTL)
    except BinariesError:  # there is one of another version, for example
        return None
    return found.path if found is not None else None
