"""Verifying a snapshot file: its size and SHA-256, its description, and, if there is an etcdutl, its readability.

etcdutl alone is not enough: `etcdutl snapshot status` (v3.6.8) reports success for a truncated file and for one with a
flipped bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.errors import DocumentError
from kubewright.base.records import dataclass
from kubewright.etcd.snapshots import Checker, Snapshot, reported
from kubewright.host.filesystem.files import Files
from kubewright.host.programs.commands import Commands
from kubewright.lifecycle.etcd import descriptions

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter

ETCDUTL: Final = "etcdutl"
WITHIN: Final = 600.0
"""Seconds for etcdutl, which reads the whole file."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The contents that etcdutl reports: the number of keys, and its own hash of the database.

    `revision` is the newest revision of a key; if the last change was a deletion that is compacted, etcd's own revision
    is higher.
    """

    revision: int
    keys: int
    hash: str
    storage_version: str


@dataclass(frozen=True, kw_only=True)
class Verified:
    """A whole snapshot. `description` is empty if there is none; `contents` is None if no etcdutl was run."""

    snapshot: Snapshot
    description: Mapping[str, Any]
    contents: Contents | None = None
    warnings: tuple[str, ...] = ()

    def as_map(self) -> dict[str, object]:
        """Return the form of -o json."""
        found = self.contents
        return {
            "size": self.snapshot.size,
            "sha256": self.snapshot.sha256,
            "revision": self.description.get("revision", found.revision if found else None),
            "keys": found.keys if found else None,
            "hash": found.hash if found else None,
            "storageVersion": found.storage_version if found else self.description.get("storageVersion"),
            "time": self.description.get("time"),
            "nodes": self.description.get("nodes"),
            "clusterID": self.description.get("clusterID"),
            "etcdVersion": self.description.get("etcdVersion"),
            "kubernetesVersion": self.description.get("kubernetesVersion"),
            "warnings": list(self.warnings),
        }


def reading(path: PurePosixPath, *, task: str, clock: Clock, reporter: Reporter) -> Iterator[bytes]:
    """Yield the content of a snapshot or backup piece by piece, and report the progress. Raises HostError."""
    files = Files()
    found = files.state(PurePosixPath(os.path.realpath(path)))
    return reported(files.pieces(path), task=task, size=found.size if found else 0, clock=clock, reporter=reporter)


def check(pieces: Iterable[bytes], *, name: str) -> Snapshot:
    """Check that a file is a complete snapshot. Raises DocumentError."""
    checker = Checker(name)
    for piece in pieces:
        checker.take(piece)
    return checker.finish()


def compare(snapshot: Snapshot, content: bytes | None, *, name: str, contents: Contents | None) -> Verified:
    """Compare a snapshot with its description, the content of the file `name`.

    Differences are warnings, because the snapshot itself is whole.
    """
    description, warnings = _description(content, name=name)
    if description and description.get("sha256") != snapshot.sha256:
        warnings, description = (*warnings, f"{name} describes another snapshot"), {}
    return Verified(snapshot=snapshot, description=description, contents=contents, warnings=tuple(warnings))


def _description(content: bytes | None, *, name: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    if content is None:
        return {}, (f"{name} does not exist, so it is unknown which cluster the snapshot belongs to",)
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    return (found, ()) if descriptions.is_valid(found) else ({}, (f"{name} is not a description of a snapshot",))


def read_with(program: PurePosixPath | str, path: PurePosixPath, *, commands: Commands) -> Contents:
    """Read a snapshot with etcdutl. Raises DocumentError with its message, HostError if it cannot be run."""
    ended = commands.run([str(program), "snapshot", "status", str(path), "--write-out=json"], within=WITHIN)
    try:
        if ended.code == 0:
            found = json.loads(ended.out)
            return Contents(
                revision=int(found["revision"]),
                keys=int(found["totalKey"]),
                hash=f"{int(found['hash']):x}",
                storage_version=str(found.get("version", "")),
            )
    except (ValueError, TypeError, KeyError):
        pass
    raise DocumentError(
        f"{program} cannot read {path}",
        detail=" ".join((ended.err or ended.out).strip().splitlines()[-1:])[:500] or f"exit code {ended.code}",
        remedy="use another snapshot, or another etcdutl with --etcdutl",
    )
