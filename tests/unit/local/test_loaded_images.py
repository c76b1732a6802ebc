"""`local load` with machines whose container runtime is a script: what it gets, and what users are told."""

from __future__ import annotations

import gzip
import io
import shlex
from pathlib import Path
from typing import Any, Final

import pytest

from kubewright.base.errors import DocumentError, HostError
from kubewright.local.whole import images

ARCHIVE: Final = bytes(300_000)
UNPACKED: Final = "echo 'unpacking docker.io/library/app:dev (sha256:0123)...done'"


class FakeMachine:
    """A machine in which `ctr` is a script that keeps its standard input."""

    name = "dev-control-plane"

    def __init__(self, directory: Path, script: str = f"cat > $received; {UNPACKED}") -> None:
        self.received, self._ctr = directory / "received", directory / "ctr"
        self._ctr.write_text(f"#!/bin/sh\nreceived={shlex.quote(str(self.received))}\n{script}\n")
        self._ctr.chmod(0o755)

    def argv(self, *command: str) -> list[str]:
        return [str(self._ctr) if word == "ctr" else word for word in command]


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


@pytest.mark.parametrize(("magic", "program"), [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91AY", "bzip2")])
def test_other_kinds_of_compression_are_refused_with_the_command_that_undoes_them(tmp_path: Path, magic: bytes, program: str) -> None:
    (tmp_path / "app.tar").write_bytes(magic + bytes(600))
    with (
        pytest.raises(DocumentError, match=f"is not a tar archive that machines can read: it is compressed with {program}") as caught,
        images.archive(str(tmp_path / "app.tar"), standard_input=io.BytesIO()),
    ):
        pass
    assert f"`{program} -dc FILE | kubewright local load -`" in caught.value.remedy
