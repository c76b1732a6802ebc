"""Loading image archives into the container runtimes of all machines.

An archive is untrusted input: the host only passes its bytes on, and containerd reads it inside each machine. The first
machine looks for the platforms of its images before that.
"""

from __future__ import annotations

import gzip
import inspect
import io
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from kubewright.base.errors import DocumentError, HostError
from kubewright.base.messages import quoted, reason_of
from kubewright.binaries.table import native_architecture
from kubewright.host.failures import explaining
from kubewright.local.whole.owner import groups_of
from kubewright.machines import platforms
from kubewright.machines.machine import Machine
from kubewright.machines.places import disks
from kubewright.machines.running import environment

_IMPORT: Final = ("ctr", "-n", "k8s.io", "images", "import", "--local", "--snapshotter", "overlayfs", "--discard-unpacked-layers", "-")
"""The layers of the archive are collected as garbage once they are unpacked: pods only need the unpacked files."""
_MAGIC: Final = 257
"""The place of the magic of a tar header (POSIX.1-1988 ustar, and GNU tar)."""
_GZIP: Final = b"\x1f\x8b"
_GUNZIP: Final = ("bash", "-c", 'set -o pipefail; gzip -dc | { "$@"; code=$?; cat >/dev/null; exit $code; }', "bash")
"""Runs a command in a machine with decompressed input. What the command leaves of it is read too, so that gzip fails only for a damaged archive."""
_OTHERS: Final = {b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\0": "xz", b"BZh": "bzip2"}
"""The magic of other kinds of compression, which machines have no programs for."""
_RUN_TOO: Final = {"linux/amd64": ("linux/386", "linux/x86_64"), "linux/arm64": ("linux/arm", "linux/aarch64")}
"""Other platforms whose images run on one, and other names of it (containerd/platforms v1.0: compare.go, database.go)."""
_BLOCK: Final = 512
_START: Final = 65536
"""Bytes that contain the first block of any compressed archive."""
_NOGROUP: Final = 65534
_NAMED: Final = re.compile(r"^unpacking (\S+) \(", re.MULTILINE)
_REMEDY: Final = "pass an archive; `docker save IMAGE | kubewright local load -` loads an image that Docker has"
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


@contextmanager
def archive(path: str, *, standard_input: IO[bytes], spool: Path | None = None) -> Iterator[IO[bytes]]:
    """Provide an archive as a file: the one at a path, or standard input for `-`.

    Standard input, or a pipe at the path, is copied to a named file in the directory `spool`, or, without one, to an
    unnamed file next to the machines' disks. Raises DocumentError if the archive cannot be read, or is not a tar archive,
    compressed or not; DiskFull or HostError if it cannot be copied.
    """
    with _opened(path, standard_input, spool) as file:
        _require_tar(file, "standard input" if path == "-" else path)
        yield file


def _opened(path: str, standard_input: IO[bytes], spool: Path | None) -> IO[bytes]:
    if path == "-":
        return _copied(standard_input, spool)
    file = _file(path)
    if file.seekable():
        return file
    with file:
        return _copied(file, spool)


def _file(path: str) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise DocumentError(f"cannot read {path}", detail=reason_of(error), remedy=_REMEDY) from error


def _copied(stream: IO[bytes], spool: Path | None) -> IO[bytes]:
    """Return a copy that can be read several times, also by other processes."""
    directory = disks() if spool is None else spool
    with explaining("write the archive to", directory):
        if spool is None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy: IO[bytes] = tempfile.TemporaryFile(dir=directory) if spool is None else tempfile.NamedTemporaryFile(dir=directory)  # noqa: SIM115 - the caller closes it
        shutil.copyfileobj(stream, copy)
        copy.flush()
        copy.seek(0)
    return copy


def _require_tar(file: IO[bytes], name: str) -> None:
    start = file.read(_BLOCK)
    if start.startswith(_GZIP):
        file.seek(0)
        try:
            start = gzip.GzipFile(fileobj=io.BytesIO(file.read(_START))).read(_BLOCK)
        except (OSError, EOFError, zlib.error):
            start = b""
    if program := next((program for magic, program in _OTHERS.items() if start.startswith(magic)), ""):
        raise DocumentError(
            f"{quoted(name)} is not a tar archive that machines can read: it is compressed with {program}",
            remedy=f"decompress it, for example with `{program} -dc FILE | kubewright local load -`",
        )
    if start[_MAGIC : _MAGIC + 5] != b"ustar":
        raise DocumentError(f"{quoted(name)} is not a tar archive", remedy="write one with `docker save IMAGE`, or an OCI archive")
    file.seek(0)


def load_as(user: int, machines: Sequence[Machine], path: str) -> list[str]:
    """Import the archive at a path, as `load` does. Only what the user may read is read; root might read anything.

    Raises DocumentError as `archive` does.
    """
    try:
        group = pwd.getpwuid(user).pw_gid
    except KeyError:
        group = _NOGROUP
    with tempfile.TemporaryFile(dir=disks()) as copy:
        ended = subprocess.run(
            ["cat", "--", path],
            stdin=subprocess.DEVNULL,
            stdout=copy,
            stderr=subprocess.PIPE,
            cwd="/",
            user=user,
            group=group,
            extra_groups=groups_of(user, group),
            check=False,
            env=environment(),
        )
        if ended.returncode:
            said = ended.stderr.decode(errors="replace").strip()
            raise DocumentError(f"cannot read {path}", detail=said, remedy=_REMEDY)
        copy.seek(0)
        _require_tar(copy, path)
        return load(machines, copy)


def _require_platform(machine: Machine, file: IO[bytes]) -> None:
    """Require an image that machines can run. What cannot be read is left to containerd. Raises DocumentError."""
    with _from_start(file) as content:
        argv = machine.argv("python3", "-I", "-c", inspect.getsource(platforms))
        ended = subprocess.run(argv, stdin=content, capture_output=True, check=False, env=environment())
    found = set(ended.stdout.decode(errors="replace").splitlines()) if not ended.returncode else set()
    own = f"linux/{native_architecture()}"
    if found and not found & {own, *_RUN_TOO.get(own, ())}:
        raise DocumentError(
            f"the images in the archive are for {', '.join(sorted(found))}, the machines are {own}",
            remedy=f"build or pull them for this platform, for example with `docker build --platform {own}`",
        )


def _from_start(file: IO[bytes]) -> IO[bytes]:
    """Open an open file again, with a position of its own."""
    return Path(f"/proc/self/fd/{file.fileno()}").open("rb")


def load(machines: Sequence[Machine], file: IO[bytes]) -> list[str]:
    """Import an archive into machines, at the same time; returns the names of its images. The machines decompress it.

    Raises HostError with what containerd reports, DocumentError if no image is for the platform of the machines: containerd
    loads some of those, and if none has a name: containerd ignores those.
    """
    _require_platform(machines[0], file)
    command = (*_GUNZIP, *_IMPORT) if os.pread(file.fileno(), len(_GZIP), 0) == _GZIP else _IMPORT

    def load_into(machine: Machine) -> list[str]:
        with _from_start(file) as own:
            ended = subprocess.run(machine.argv(*command), stdin=own, capture_output=True, check=False, env=environment())
        said = _ESCAPES.sub("", (ended.stdout + ended.stderr).decode(errors="replace"))
        if ended.returncode:
            raise HostError(
                f"the archive cannot be loaded into {machine.name}",
                detail=said.strip(),
                remedy="check that it is an image archive for this architecture",
            )
        return _NAMED.findall(said)

    with ThreadPoolExecutor(len(machines)) as pool:
        found = {name for names in pool.map(load_into, machines) for name in names}
    if not found:
        raise DocumentError("no image in the archive has a name", remedy="save images by their names, with `docker save NAME:TAG`")
    return sorted(found)
