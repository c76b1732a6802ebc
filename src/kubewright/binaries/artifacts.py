"""The files of a release that are downloaded: single programs, or archives with several."""

from __future__ import annotations

import posixpath
import re
import shutil
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from kubewright.base.errors import BinariesError
from kubewright.base.records import dataclass
from kubewright.base.versions import release_for
from kubewright.binaries import files
from kubewright.binaries.table import Wanted

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

LARGEST: Final = 1 << 30
"""In bytes: no program and no archive of the table is half as large."""
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """One file of a release, and the programs that are needed from it."""

    label: str
    url: str
    checksum_url: str
    pinned: str
    """Its SHA-256 if the version table has it, else ''."""
    programs: tuple[Wanted, ...]

    @property
    def is_archive(self) -> bool:
        return bool(self.programs[0].program.member)

    def at(self, mirror: str) -> str:
        """Return its address at a mirror: the primary's host and path below the mirror's own address."""
        parts = urlsplit(self.url)
        return f"{mirror}/{parts.netloc}{parts.path}"


def artifacts(wanted: Iterable[Wanted]) -> list[Artifact]:
    """Return the files to download for some programs, each file once.

    None for programs that are available only as source.
    """
    by_url: dict[str, list[Wanted]] = {}
    for one in wanted:
        if not one.program.family.download:
            continue
        by_url.setdefault(one.fill(one.program.family.download), []).append(one)
    return [_artifact(url, group) for url, group in by_url.items()]


def _artifact(url: str, group: list[Wanted]) -> Artifact:
    first = group[0]
    name = first.program.family.name if first.program.member else first.name
    label = f"{name} {first.version} linux/{first.architecture}"
    return Artifact(
        label=label,
        url=url,
        checksum_url=first.fill(first.program.family.checksum),
        pinned=release_for(first.kubernetes).digests.get(label, ""),
        programs=tuple(group),
    )


def digest_in(text: str, *, file_name: str) -> str:
    """Find the SHA-256 of a file in a checksum file, in lower case.

    Reads a bare digest (dl.k8s.io), or lines of `sha256sum`, of which the one with this file's base name counts.
    Raises ValueError if there is none, or several that differ.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    found = {fields[0].lower() for fields in lines if _HEX.fullmatch(fields[0]) and _names(fields, file_name)}
    if len(lines) == 1 and len(lines[0]) == 1 and _HEX.fullmatch(lines[0][0]):
        found = {lines[0][0].lower()}
    if len(found) != 1:
        raise ValueError(f"contains {'no' if not found else 'more than one'} SHA-256 of {file_name}")
    return found.pop()


def _names(fields: list[str], file_name: str) -> bool:
    return len(fields) == 2 and posixpath.basename(fields[1].removeprefix("*")) == file_name


def _copy(tar: TarFile, member: TarInfo, path: Path) -> None:
    content = tar.extractfile(member)
    assert content is not None  # it is, for regular files
    with path.open("wb") as target:
        shutil.copyfileobj(content, target, files.CHUNK)


def extract(archive: Path, artifact: Artifact, *, into: Path) -> dict[str, Path]:
    """Extract the wanted programs from a .tar.gz whose digest was verified, and return their paths by name.

    Only the named members are read, and only if they are regular files. Raises BinariesError if one is missing.
    """
    import gzip
    import tarfile

    members = {posixpath.normpath(one.fill(one.program.member)): one.name for one in artifact.programs}
    found: dict[str, Path] = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = members.get(posixpath.normpath(member.name))
                if name is not None and member.isfile() and member.size <= LARGEST:
                    found[name] = into / name
                    _copy(tar, member, found[name])
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BinariesError(f"{artifact.label} is not a readable archive: {error}") from error
    except OSError as error:
        raise files.host_error(error, into) from error
    if missing := [name for name in members.values() if name not in found]:
        raise BinariesError(f"{artifact.label} does not contain {', '.join(missing)}")
    return found
