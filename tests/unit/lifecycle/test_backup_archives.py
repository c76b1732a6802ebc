"""The archive of a backup: its contents are read back, and manipulated archives are refused."""

from __future__ import annotations

import errno
import gc
import hashlib
import io
import json
import sys
import tarfile
from contextlib import nullcontext
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DocumentError
from kubewright.lifecycle.etcd import archive
from kubewright.lifecycle.etcd.archive import PART, ArchiveWriter, StoredFile

CA = StoredFile(path=PurePosixPath("/etc/kubernetes/pki/ca.key"), content=b"a key", mode=0o600)
CONF = StoredFile(path=PurePosixPath("/etc/kubernetes/admin.conf"), content=b"x" * 30_000, mode=0o640)


def database(sectors: int) -> bytes:
    pages = b"\0" * 16 + 0xED0CDAED.to_bytes(4, "little") + b"\1" * (512 * sectors - 20)
    return pages + hashlib.sha256(pages).digest()


def written(*, sectors: int = 3, files=(CA, CONF), step: int = 32_768) -> bytes:
    out: list[bytes] = []
    writer, content = ArchiveWriter(out.append), database(sectors)
    writer.begin({"node": "one"}, files)
    for start in range(0, len(content), step):
        writer.database(content[start : start + step])
    writer.finish({"revision": 7})
    return b"".join(out)


def chunks(content: bytes, *, step: int = 10_000):
    return (content[at : at + step] for at in range(0, len(content), step))


def read(content: bytes):
    return archive.read(chunks(content), name="b.tar")


@pytest.mark.parametrize("sectors", [1, PART // 512 - 1, 2 * PART // 512 + 3])
def test_everything_is_read_back_unchanged(sectors):
    found = read(written(sectors=sectors))
    parts = archive.database(chunks(written(sectors=sectors)), name="b.tar")
    assert (found.description["node"], found.etcd, found.files) == ("one", {"revision": 7}, (CA, CONF))
    assert (b"".join(parts), found.snapshot.size) == (database(sectors), 512 * sectors + 32)


def test_an_archive_is_an_ordinary_tar_file():
    with tarfile.open(fileobj=io.BytesIO(written())) as tar:
        names = [(one.name, oct(one.mode)) for one in tar]
    assert names == [
        ("backup.json", "0o600"),
        ("files/etc/kubernetes/pki/ca.key", "0o600"),
        ("files/etc/kubernetes/admin.conf", "0o640"),
        ("etcd.db.00000", "0o600"),
        ("etcd.json", "0o600"),
    ]


@pytest.mark.parametrize("fails", [True, False], ids=["a full disk", "an interruption"])
def test_nothing_is_written_for_an_archive_that_was_given_up(fails, monkeypatch):
    later, out = [], []
    monkeypatch.setattr(sys, "unraisablehook", later.append)

    def write(content):
        if fails and out:
            raise OSError(errno.ENOSPC, "No space left on device")
        out.append(content)

    writer = ArchiveWriter(write)
    with pytest.raises(OSError, match="No space left") if fails else nullcontext():
        writer.begin({"node": "one"}, (CA, CONF))
    written, fails = len(out), True
    del writer
    gc.collect()
    assert (len(out), later) == (written, [])


def made(*rows: tuple[str, bytes] | tarfile.TarInfo, files: dict[str, bytes] | None = None) -> bytes:
    """Create an archive with chosen members; the description is right for `files`."""
    digests = {path: hashlib.sha256(content).hexdigest() for path, content in (files or {}).items()}
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for row in (("backup.json", json.dumps({"format": 1, "files": digests}).encode()), *rows):
            if isinstance(row, tarfile.TarInfo):
                tar.addfile(row)
            else:
                member = tarfile.TarInfo(row[0])
                member.size = len(row[1])
                tar.addfile(member, io.BytesIO(row[1]))
    return out.getvalue()


END = (("etcd.db.00000", database(1)), ("etcd.json", b"{}"))


def _special(kind: bytes, name: str = "files/etc/x") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/shadow"
    return member


@pytest.mark.parametrize(
    "name", ["files/../etc/shadow", "files//etc/shadow", "files/etc/../../root/x", "files/./etc/x", "files/", "files/etc/x/"]
)
def test_a_name_that_leads_elsewhere_is_refused(name):
    with pytest.raises(DocumentError, match=r"b.tar is not a backup that can be used"):
        read(made((name, b"x"), *END, files={"/" + name.removeprefix("files/"): b"x", "/etc/shadow": b"x", "/etc/x": b"x"}))


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE])
def test_anything_but_plain_files_is_refused(kind):
    with pytest.raises(DocumentError, match="not a backup") as caught:
        read(made(_special(kind), *END, files={"/etc/x": b""}))
    assert "is not a plain file" in caught.value.detail


FILES = {"/etc/x": b"x"}
GOOD = ("files/etc/x", b"x")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (made(GOOD, *END, files={"/etc/x": b"y"}), "is not what backup.json says"),
        (made(GOOD, GOOD, *END, files=FILES), "is not what backup.json says"),
        (made(*END, files=FILES), "it lacks /etc/x"),
        (made(GOOD, *END), "is not what backup.json says"),
        (made(GOOD, END[0], files=FILES), "it was cut off"),
        (made(GOOD, *END, GOOD, files=FILES), "comes after its end"),
        (made(("etcd.db.00001", b""), *END), "does not belong there"),
        (made(("hello", b""), *END), "does not belong there"),
        (made(("etcd.db.00000", database(1)[:-1]), END[1]), "it was cut off"),
        (made(("etcd.db.00000", database(1)), ("etcd.json", b"[]")), "its description cannot be read"),
        (made(("etcd.db.00000", database(1)), ("etcd.json", b'{"members": 5}')), "its description cannot be read"),
        (b"", "it is not a tar archive"),
        (b"\0" * 1024, "does not begin with backup.json"),
        (b"no tar at all" * 100, "it is not a tar archive"),
    ],
)
def test_an_inconsistent_archive_is_refused(content, why):
    with pytest.raises(DocumentError) as caught:
        read(content)
    assert why in caught.value.detail


WHOLE = written()


@given(end=st.integers(0, len(WHOLE.rstrip(b"\0")) - 1))
def test_a_truncated_archive_is_refused(end):
    with pytest.raises(DocumentError):
        read(WHOLE[:end])


@given(at=st.integers(0, len(WHOLE) - 1), bit=st.integers(0, 7))
def test_any_change_of_an_archive_gives_a_proper_error_or_has_no_effect(at, bit):
    changed = WHOLE[:at] + bytes([WHOLE[at] ^ (1 << bit)]) + WHOLE[at + 1 :]
    try:
        found = read(changed)
    except DocumentError:
        return
    assert [one.content for one in found.files] == [CA.content, CONF.content]


def header(kind: bytes, size: int) -> bytes:
    """A header of extended attributes or of a long name."""
    member = tarfile.TarInfo("././@Header")
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_a_header_of_gigabytes_is_not_read(kind):
    taken = 0

    def endless():
        nonlocal taken
        yield header(kind, 1 << 40)
        while taken < 64 << 20:
            taken += PART
            yield b"\0" * PART

    with pytest.raises(DocumentError, match="not a backup that can be used"):
        archive.read(endless(), name="b.tar")
    assert taken <= 2 * PART


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME])
def test_thousands_of_headers_of_one_member_are_refused(kind):
    with pytest.raises(DocumentError, match="not a backup that can be used"):
        read((header(kind, 512) + b"\0" * 512) * 5000)
