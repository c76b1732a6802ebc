"""What is known about a file that was checked once, so that a later run needs to do no more than look at its size and time.

A stamp file is JSON: `{"schema": 1, "programs": {KEY: {size, mtime, sha256, version, source}}}`. A file that cannot be read as that is
taken as empty: the worst that follows is that a program is checked or fetched again.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.records import asdict, dataclass
from kubewright.base.versions import Version
from kubewright.binaries import files

SCHEMA: Final = 1


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """A file as it was when it was checked. `mtime` is in nanoseconds."""

    size: int
    mtime: int
    sha256: str
    version: str
    source: str

    def differs(self, status: os.stat_result) -> str:
        """Say how a file differs from the one that was checked; '' if it does not."""
        if status.st_size != self.size:
            return f"its size is {status.st_size}, it was {self.size}"
        return "it was written again" if status.st_mtime_ns != self.mtime else ""


def load(path: Path) -> dict[str, Stamp]:
    """Read a stamp file; empty where there is none, or none that can be read."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or not isinstance(document.get("programs"), dict):
        return {}
    return {key: stamp for key, value in document["programs"].items() if (stamp := _stamp(value)) is not None}


def save(path: Path, stamps: Mapping[str, Stamp]) -> None:
    """Write a stamp file. Raises HostError or DiskFull."""
    programs = {key: asdict(stamp) for key, stamp in sorted(stamps.items())}
    files.write(path, json.dumps({"schema": SCHEMA, "programs": programs}, indent=1).encode() + b"\n")


def unsafe(status: os.stat_result) -> str:
    """Say why a file of the cache must not be run by us: not a file, not ours or root's, or others may write it. '' if it may."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a file"
    if status.st_uid not in {0, os.geteuid()}:
        return f"it belongs to user {status.st_uid}"
    return "others may write it" if status.st_mode & 0o022 else ""


def _stamp(value: object) -> Stamp | None:
    if not isinstance(value, dict):
        return None
    numbers = [value.get(key) for key in ("size", "mtime")]
    texts = [value.get(key) for key in ("sha256", "version", "source")]
    if not all(type(number) is int for number in numbers) or not all(isinstance(text, str) for text in texts):
        return None
    try:
        Version.parse(value["version"])
    except ValueError:
        return None
    return Stamp(size=value["size"], mtime=value["mtime"], sha256=value["sha256"], version=value["version"], source=value["source"])
