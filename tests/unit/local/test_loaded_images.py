"""`local load` with machines whose container runtime is a script: what it gets, and what users are told."""

from __future__ import annotations

import gzip
import io
import resource
import shlex
import sys
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from kubewright.base.errors import DocumentError, HostError
from kubewright.binaries.table import native_architecture
from kubewright.local.whole import images
from kubewright.machines import oci, platforms

ARCHIVE: Final = bytes(300_000)
OWN: Final = f"linux/{native_architecture()}"
UNPACKED: Final = "echo 'unpacking docker.io/library/app:dev (sha256:0123)...done'"


class FakeMachine:
    """A machine in which `ctr` is a script that keeps its standard input."""

    name = "dev-control-plane"

    def __init__(self, directory: Path, script: str = f"cat > $received; {UNPACKED}") -> None:
        self.received, self._ctr = directory / "received", directory / "ctr"
        self._ctr.write_text(f"#!/bin/sh\nreceived={shlex.quote(str(self.received))}\n{script}\n")
        self._ctr.chmod(0o755)

    def argv(self, *command: str) -> list[str]:
        programs = {"ctr": str(self._ctr), "python3": sys.executable}
        return [programs.get(word, word) for word in command]


def image_archive(path: Path, *named: str, more: bytes = b"") -> Path:
    """Write an archive with the configurations of images for these platforms, as an OCI archive has them, and a further file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for number, (system, _, architecture) in enumerate(platform.partition("/") for platform in named):
            oci.add(archive, f"blobs/sha256/{number}", oci.encode({"architecture": architecture, "os": system, "rootfs": {}}))
        oci.add(archive, "index.json", more or oci.encode({"manifests": [{"platform": {"architecture": "amd64", "os": "linux"}}]}))
    path.write_bytes(made.getvalue() if path.suffix == ".tar" else gzip.compress(made.getvalue()))
    return path


def load(machine: Any, path: Path) -> list[str]:
    with path.open("rb") as file:
        return images.load([machine], file)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_machines_get_an_archive_without_its_compression(tmp_path: Path, compress: Any) -> None:
    (tmp_path / "app.tar").write_bytes(compress(ARCHIVE))
    machine = FakeMachine(tmp_path)
    assert load(machine, tmp_path / "app.tar") == ["docker.io/library/app:dev"]
    assert machine.received.read_bytes() == ARCHIVE


def test_a_runtime_need_not_read_what_follows_the_last_file(tmp_path: Path) -> None:
    (tmp_path / "app.tar.gz").write_bytes(gzip.compress(ARCHIVE))
    machine = FakeMachine(tmp_path, f"head -c 512 > $received; {UNPACKED}")
    assert load(machine, tmp_path / "app.tar.gz") == ["docker.io/library/app:dev"]


@pytest.mark.parametrize(
    ("script", "end", "said"),
    [("echo 'ctr: unrecognized image format' >&2; exit 1", None, "unrecognized"), ("cat > $received", -9, "gzip")],
)
def test_what_is_wrong_with_a_compressed_archive_is_reported(tmp_path: Path, script: str, end: int | None, said: str) -> None:
    (tmp_path / "app.tar.gz").write_bytes(gzip.compress(ARCHIVE)[:end])
    with pytest.raises(HostError, match="cannot be loaded into dev-control-plane") as caught:
        load(FakeMachine(tmp_path, script), tmp_path / "app.tar.gz")
    assert said in caught.value.detail


def test_an_archive_whose_images_have_no_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "app.tar").write_bytes(ARCHIVE)
    with pytest.raises(DocumentError, match="no image in the archive has a name") as caught:
        load(FakeMachine(tmp_path, "cat > $received"), tmp_path / "app.tar")
    assert "`docker save NAME:TAG`" in caught.value.remedy


@pytest.mark.parametrize("suffix", [".tar", ".gz"])
def test_images_for_other_platforms_only_are_refused_before_they_are_loaded(tmp_path: Path, suffix: str) -> None:
    machine = FakeMachine(tmp_path)
    path = image_archive((tmp_path / "app").with_suffix(suffix), "linux/arm64", "windows/amd64")
    with pytest.raises(DocumentError, match=f"for linux/arm64, windows/amd64, the machines are {OWN}") as caught:
        load(machine, path)
    assert f"--platform {OWN}" in caught.value.remedy
    assert not machine.received.exists()


@pytest.mark.parametrize(
    ("named", "more"),
    [
        ((OWN,), b""),
        (("linux/arm64", "linux/s390x", OWN), b""),
        (("linux/arm64", f"/{OWN.partition('/')[2]}"), b""),
        ((), b""),
        (("unknown/unknown", "linux/"), b""),
        (("linux/arm64\x1b[2J",), b""),
        ((), b'{"architecture": "s390x"}'),
        ((), b'{"rootfs": {}, "architecture": ["s390x"]}'),
        ((), b"{" * 100_000),
        ((), b'{"a":' * 100_000),
        ((), b'{"rootfs": {}, "architecture": "s390x", "fill": "' + b" " * 4_200_000 + b'"}'),
    ],
    ids=[
        "ours",
        "several",
        "without a system",
        "none",
        "no platform",
        "no name of a platform",
        "no image",
        "a list",
        "no JSON",
        "deep JSON",
        "large JSON",
    ],
)
def test_other_archives_are_left_to_the_container_runtime(tmp_path: Path, named: tuple[str, ...], more: bytes) -> None:
    path = image_archive(tmp_path / "app.tar", *named, more=more)
    assert load(FakeMachine(tmp_path), path) == ["docker.io/library/app:dev"]


def test_images_of_32_bits_are_loaded(tmp_path: Path) -> None:
    smaller = {"linux/amd64": "linux/386", "linux/arm64": "linux/arm"}[OWN]
    assert load(FakeMachine(tmp_path), image_archive(tmp_path / "app.tar", smaller)) == ["docker.io/library/app:dev"]


def test_a_huge_header_in_an_archive_takes_no_memory(tmp_path: Path) -> None:
    huge = tarfile.TarInfo("header")
    huge.type, huge.size = tarfile.XHDTYPE, 4 << 30
    with gzip.open(tmp_path / "app.tar.gz", "wb", compresslevel=1) as file:
        file.write(huge.tobuf())
        for _ in range(300):
            file.write(bytes(1 << 20))
    started = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    assert load(FakeMachine(tmp_path, f"head -c 1 > $received; {UNPACKED}"), tmp_path / "app.tar.gz") == ["docker.io/library/app:dev"]
    assert max(started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) - started <= platforms._MEMORY >> 10


def test_a_compressed_archive_without_a_start_is_refused_at_once(tmp_path: Path) -> None:
    name = b"\x1f\x8b\x08\x08" + bytes(6) + b"n" * (1 << 26)  # the name of the file in it does not end
    (tmp_path / "app.tar.gz").write_bytes(name)
    reads = list[int]()

    class Counted(io.FileIO):
        def read(self, size: int = -1, /) -> bytes:
            reads.append(size)
            return super().read(size)

    with Counted(tmp_path / "app.tar.gz") as file, pytest.raises(DocumentError, match="is not a tar archive"):
        images._require_tar(file, "app.tar.gz")
    assert sum(reads) <= 1 << 17


@pytest.mark.parametrize(("magic", "program"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91AY", "bzip2")])
def test_other_kinds_of_compression_are_refused_with_the_command_that_undoes_them(tmp_path: Path, magic: bytes, program: str) -> None:
    (tmp_path / "app.tar").write_bytes(magic + bytes(600))
    with (
        pytest.raises(DocumentError, match=f"is not a tar archive that machines can read: it is compressed with {program}") as caught,
        images.archive(str(tmp_path / "app.tar"), standard_input=io.BytesIO()),
    ):
        pass
    assert f"`{program} -dc FILE | kubewright local load -`" in caught.value.remedy
