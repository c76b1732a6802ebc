"""etcdutl, the program that makes a data directory of a snapshot: where it is, and how it is called.

It is part of etcd's releases, but not of the image registry.k8s.io/etcd.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import UsageError
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import supported
from kubewright.host.desired import Generated
from kubewright.lifecycle.machine_record import MEMBER

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter
    from kubewright.host.seam import Host
    from kubewright.lifecycle.etcd.data import DataSwap
    from kubewright.lifecycle.etcd.this_member import ThisMember

NAME: Final = "etcdutl"
WITHIN: Final = 1800.0
"""Seconds for making a data directory: the program reads and writes the whole database."""
BUMP: Final = 1_000_000_000
"""How far revisions go on after those of the snapshot: a week of 1,500 writes a second, as etcd's documentation calculates."""
_WRITES: Final = 1500


def find(host: Host, *, kubernetes: str, environment: Mapping[str, str], reporter: Reporter, clock: Clock) -> str:
    """Return the path of etcdutl: that on PATH, else one that is downloaded or built. Raises HostError, BinariesError."""
    found = host.programs.path(NAME)
    if found is not None:
        return str(found)
    from kubewright import binaries  # most machines have none

    version = _known(kubernetes)
    sources = binaries.sources_from(environment)
    return str(binaries.ensure((NAME,), version=version, sources=sources, reporter=reporter, clock=clock)[NAME].path)


def _known(version: str) -> str:
    """Return a version of Kubernetes whose etcd is known, where possible that of the machine."""
    try:
        return str(supported(version.partition("-")[0]))
    except UsageError:
        return KUBERNETES


def bump(age: float) -> int:
    """Return how far revisions have to go on, so that none that clients have seen in so many seconds comes again."""
    return max(BUMP, int(age * _WRITES))


def restored(program: str, swap: DataSwap, member: ThisMember, *, source: PurePosixPath, revisions: int, copied: bool = False) -> Generated:
    """Return the data directory of a new cluster with one member.

    `revisions` is how far they go on. All watches end, because earlier revisions count as compacted. `copied`: the source is the database of a
    member that has ended, which has no checksum.
    """
    flags = {
        "name": member.name,
        "initial-cluster": f"{member.name}={member.peer_url}",
        "initial-advertise-peer-urls": member.peer_url,
        "initial-cluster-token": swap.label,
        "bump-revision": str(revisions),
    }
    words = [*(f"--{name}={value}" for name, value in flags.items()), "--mark-compacted", *(["--skip-hash-check"] if copied else [])]
    return Generated(
        path=swap.staged,
        arguments=lambda place: [program, "snapshot", "restore", str(source), f"--data-dir={place}", *words],
        within=WITHIN,
        stand_ins=(MEMBER,),
    )
