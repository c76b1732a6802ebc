"""What the processes of a cluster carry, as its state directory has it."""

from __future__ import annotations

from kubewright.base.errors import HostError
from kubewright.host.processes import Identity, RealProcesses
from kubewright.local import record
from kubewright.local.places import Places
from kubewright.local.supervisor.identities import Mark


def of(places: Places) -> Mark:
    """Return the mark of a cluster: without an id where its record is lost, or cannot be read, and any process of its directory is its own."""
    try:
        found = record.load(places.record)
    except HostError:
        found = None
    return Mark(directory=str(places.root), id=found.id if found is not None else "")


def processes(places: Places) -> list[Identity]:
    """Find every living process of a cluster, its daemon included."""
    mark = of(places)
    return RealProcesses().marked(mark.variables, shared=mark.shared)
