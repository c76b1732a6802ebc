"""etcdutl, which makes a data directory from a snapshot: finding it, its arguments, and the ID of the new cluster.

It is part of etcd's releases, but not of the image registry.k8s.io/etcd.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import CheckFailed, UsageError
from kubewright.base.level import KUBERNETES
from kubewright.base.versions import supported
from kubewright.etcd import learners
from kubewright.host.desired import Generated
from kubewright.lifecycle.machine_record import MEMBER
from kubewright.lifecycle.steps.component_versions import core

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter
    from kubewright.host.seam import Host
    from kubewright.lifecycle.etcd.data import DataSwap
    from kubewright.lifecycle.etcd.this_member import ThisMember

NAME: Final = "etcdutl"
WITHIN: Final = 1800.0
"""Seconds for making a data directory: etcdutl reads and writes the whole database."""
BUMP: Final = 1_000_000_000
"""The minimum increase of revisions: a week of 1,500 writes per second, as in etcd's documentation."""
_WRITES: Final = 1500


def find(host: Host, *, kubernetes: str, environment: Mapping[str, str], reporter: Reporter, clock: Clock) -> str:
    """Return the path of etcdutl: the one on PATH, else one that is downloaded or built.

    Raises HostError, BinariesError.
    """
    found = host.programs.path(NAME)
    if found is not None:
        return str(found)
    from kubewright import binaries  # most machines have none

    version = _known(kubernetes)
    sources = binaries.sources_from(environment)
    return str(binaries.ensure((NAME,), version=version, sources=sources, reporter=reporter, clock=clock)[NAME].path)


def require_minor_of(etcd: str, host: Host, program: str) -> None:
    """Require an etcdutl of the minor release of an etcd, which has to read the directory that it makes.

    Raises CheckFailed for another one, and HostError if it cannot be run.
    """
    found = core(host.programs.version(program, "version").partition(": ")[2])
    if etcd and found.rpartition(".")[0] != etcd.rpartition(".")[0]:
        raise CheckFailed(
            f"{program} is not of the minor release of this machine's etcd",
            detail=f"it is {found or 'of an unknown version'}, and etcd is {etcd}",
            remedy=f"pass etcdutl {etcd} with --etcdutl",
        )


def _known(version: str) -> str:
    """Return a version of Kubernetes whose etcd is known: that of the machine, if it is supported."""
    try:
        return str(supported(version.partition("-")[0]))
    except UsageError:
        return KUBERNETES


def bump(age: float) -> int:
    """Return the increase of revisions that avoids those that clients have seen in the last `age` seconds."""
    return max(BUMP, int(age * _WRITES))


def restored(program: str, swap: DataSwap, member: ThisMember, *, source: PurePosixPath, revisions: int, copied: bool = False) -> Generated:
    """Return the data directory of a new cluster with one member.

    Revisions increase by `revisions`; earlier ones count as compacted, so that all watches end. `copied`: the source is
    the database of a stopped member, which has no checksum.
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


def cluster_id(member: ThisMember, *, token: str) -> int:
    """Return the ID of the cluster that etcdutl makes with this member and token.

    The ID of a member is the beginning of the SHA-1 of its peer URLs and the token, that of a cluster of the IDs of its
    first members (etcd v3.6, server/etcdserver/api/membership: computeMemberID, genID).
    """
    first = learners.identifier(f"{member.peer_url}{token}".encode())
    return learners.identifier(first.to_bytes(8, "big"))
