"""Taking the parts of machines from a machine tree, if a source has one: the user's directory, the cache, or a download.

Its contents are put where locally made parts are, so that nothing else depends on their origin.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kubewright import binaries
from kubewright.base.clock import SystemClock
from kubewright.base.errors import BinariesError
from kubewright.base.events import Reporter
from kubewright.binaries import BinarySources, files
from kubewright.binaries.artifacts import digest_in
from kubewright.binaries.cache import Cache
from kubewright.binaries.fetching import download
from kubewright.binaries.providing import wanted_programs
from kubewright.binaries.table import native_architecture
from kubewright.machines import base, images
from kubewright.machines.running import step
from kubewright.machines.tree import contents, unpacking

_LARGEST_DIGEST_FILE: Final = 4096


def is_offered(sources: BinarySources) -> bool:
    """Return whether a source may have a machine tree, for any version of Kubernetes."""
    pattern = contents.file_name(version="*", architecture=native_architecture())
    roots = (sources.directory, *sources.cache.glob("*/*"))
    return bool(sources.machine_tree) or any(True for root in roots if root is not None for _ in root.glob(pattern))


def ensure_taken(*, version: str, sources: BinarySources, reporter: Reporter) -> None:
    """Take the missing parts from a machine tree, if a source has one. The caller holds the lock of the parts.

    Raises BinariesError for a file without a digest, with another one, or with contents that are refused; HostError, DiskFull.
    """
    if not _is_any_missing(version, sources):
        return
    with _opened(version, sources, reporter) as found:
        if found is None:
            return
        name, archive = found
        with step(reporter, "unpacking the parts of the machines", takes="about 20 seconds"):
            _install(archive, version=version, sources=sources, reporter=reporter, source=f"machine tree {name}")


def _is_any_missing(version: str, sources: BinarySources) -> bool:
    located = binaries.locate(contents.NAMES, version=version, sources=sources)
    return bool(located.missing) or not base.place().exists() or not images.pause_place().exists()


@contextmanager
def _opened(version: str, sources: BinarySources, reporter: Reporter) -> Iterator[tuple[str, IO[bytes]] | None]:
    """Provide the file of the first source that has one, with its address, after verifying its digest."""
    name = contents.file_name(version=version, architecture=native_architecture())
    roots = (sources.directory, sources.cache / version / native_architecture())
    path = next((root / name for root in roots if root is not None and (root / name).exists()), None)
    if path is not None:
        with _verified(path, _digest_of(path)) as archive:
            yield str(path), archive
    elif sources.machine_tree and sources.allow_download:
        url, _, digest = sources.machine_tree.partition("#sha256=")
        clock = SystemClock()
        with files.cache_lock(sources.cache, task="fetching the machine tree", wait=True, clock=clock, reporter=reporter):
            path = download(
                url, sha256=digest, label="machine tree", sources=sources, environment=os.environ, reporter=reporter, clock=clock
            )
        try:
            with path.open("rb") as archive:
                yield url, archive
        finally:
            path.unlink(missing_ok=True)
    else:
        yield None


def _digest_of(path: Path) -> str:
    """Read the digest that `make machine-tree` has written next to a file."""
    digest_file = path.with_name(path.name + contents.DIGEST_SUFFIX)
    try:
        with digest_file.open("rb") as file:
            text = file.read(_LARGEST_DIGEST_FILE)
        return digest_in(text.decode("ascii", errors="replace"), file_name=path.name)
    except OSError as error:
        raise BinariesError(f"the digest of {path} cannot be read: {digest_file}: {error.strerror}", remedy="copy both files") from error
    except ValueError as error:
        raise BinariesError(f"{digest_file} {error}", remedy="copy both files again") from error


@contextmanager
def _verified(path: Path, expected: str) -> Iterator[IO[bytes]]:
    """Provide the opened file whose SHA-256 was verified, from its beginning, even if another file is at the path by then."""
    if os.geteuid() == 0 and (fault := files.weakness(path)):
        raise BinariesError(f"{path} is not used: {fault}", remedy=f"see `namei -l {path}`, and allow only root to write there")
    with path.open("rb") as archive:
        found = hashlib.file_digest(archive, "sha256").hexdigest()
        if found != expected:
            raise BinariesError(
                f"{path} has the wrong content: its SHA-256 is {found}, expected {expected}", remedy="copy it again, and its digest"
            )
        archive.seek(0)
        yield archive


def _install(archive: IO[bytes], *, version: str, sources: BinarySources, reporter: Reporter, source: str) -> None:
    """Unpack everything, and install what is missing: programs into the cache of binaries, which checks them."""
    place = base.place()
    partial = place.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.parent.mkdir(parents=True, exist_ok=True)
    wanted = contents.expected(version=version, architecture=native_architecture())
    clock = SystemClock()
    try:
        with files.cache_lock(sources.cache, task="unpacking the machine tree", wait=True, clock=clock, reporter=reporter):
            files.remove_stale(sources.cache)
            with files.work_directory(sources.cache) as work:
                places = unpacking.Places(base=partial, programs=work / contents.PROGRAMS)
                unpacking.unpack(archive, places, wanted=wanted)
                _install_programs(places.programs, Cache(sources.cache), version=version, source=source)
                _install_pause(places.programs / contents.PAUSE)
        if not place.exists():
            partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _install_programs(unpacked: Path, cache: Cache, *, version: str, source: str) -> None:
    for program in wanted_programs(contents.NAMES, version=version):
        if isinstance(cache.find(program), binaries.Refusal):
            cache.install(program, unpacked / program.name, source=source)


def _install_pause(finished: Path) -> None:
    place = images.pause_place()
    partial = place.with_suffix(".partial")
    shutil.copyfile(finished, partial)
    partial.chmod(0o755)
    partial.replace(place)
