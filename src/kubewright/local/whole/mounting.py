"""The directories of the host that machines see: running ones get them at once, others when they start."""

from __future__ import annotations

from collections.abc import Collection

from kubewright.base.change import Action, Change
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import members


def wanted(cluster: ClusterRecord, options: UpOptions) -> tuple[str, ...]:
    """Return the mounts of a cluster after an `up`; given ones replace all former ones."""
    return cluster.mounts if options.mounts is None else tuple(map(str, options.mounts))


def ensure(paths: ClusterPaths, cluster: ClusterRecord, names: Collection[str], *, former: ClusterRecord) -> list[Change]:
    """Mount the directories of the cluster in these running machines, and unmount former ones. Raises HostError."""
    desired = members.binds(cluster)
    gone = [bind for bind in members.binds(former) if bind not in desired]
    changes = []
    for name in names if desired or gone else ():
        machine = members.machine_of(paths, cluster, name)
        removed = [bind for bind in gone if machine.unbind(bind.target)]  # first: another directory may take its place
        added = [bind for bind in desired if machine.bind(bind)]
        changes += [Change(target=f"mount {bind.target} of {name}", action=Action.DELETE) for bind in removed]
        changes += [Change(target=f"mount {bind.target} of {name}", action=Action.CREATE) for bind in added]
    return changes
