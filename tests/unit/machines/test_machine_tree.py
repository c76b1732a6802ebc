"""Machine trees: what is packed, the same bytes twice, and archives that are refused."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import BinariesError, UsageError
from kubewright.base.events import SilentReporter
from kubewright.binaries import BinarySources, sources_from
from kubewright.machines.tree import contents, providing, unpacking
from kubewright.machines.tree.contents import Contents
from kubewright.machines.tree.unpacking import Places, unpack

sys.path.insert(0, str(Path(__file__).parents[3]))

from scripts import machine_tree

WANTED = Contents(schema=1, kubernetes="v1.36.3", architecture="amd64", base="base-0123", pause="pause-4567")
NEEDED = pytest.mark.skipif(shutil.which("zstd") is None, reason="zstd is not installed")
Entry = tuple[str, bytes, str]
"""Name, type, and content or target."""


def archive(
    *entries: Entry, described: bytes = contents.encode(WANTED), change: Callable[[tarfile.TarInfo], None] = lambda _: None
) -> bytes:
    """Return a compressed archive that begins as a machine tree does."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, kind, text in ((contents.CONTENTS, tarfile.REGTYPE, described.decode()), *entries):
            info = tarfile.TarInfo(name)
            info.type, info.uid, info.gid = kind, os.getuid(), os.getgid()
            info.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644
            data = text.encode() if kind == tarfile.REGTYPE else b""
            info.size, info.linkname = len(data), "" if data else text
            if name != contents.CONTENTS:
                change(info)
            tar.addfile(info, io.BytesIO(data))
    return compressed(stream.getvalue())


def compressed(data: bytes) -> bytes:
    return subprocess.run(["zstd", "-q", "-c"], input=data, stdout=subprocess.PIPE, check=True).stdout


def directory(name: str) -> Entry:
    return name, tarfile.DIRTYPE, ""


def file(name: str, text: str = "text") -> Entry:
    return name, tarfile.REGTYPE, text


def link(name: str, target: str) -> Entry:
    return name, tarfile.SYMTYPE, target


PARTS = (directory("base"), *(file(f"programs/{name}") for name in contents.NAMES), file("pause"))
"""The smallest machine tree."""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(base=tmp_path / "base", programs=tmp_path / "programs")


def unpacked(data: bytes, places: Places) -> None:
    source = places.base.with_name("source")
    source.write_bytes(data)
    with source.open("rb") as opened:
        unpack(opened, places, wanted=WANTED)


@NEEDED
def test_packed_files_are_unpacked_unchanged(places: Places) -> None:
    further = (directory("base/etc"), file("base/etc/hosts", "hosts"), link("base/lib", "etc/../etc"), file("licenses/one/LICENSE"))
    unpacked(archive(*PARTS, *further), places)
    assert sorted(path.relative_to(places.base).as_posix() for path in places.base.rglob("*")) == ["etc", "etc/hosts", "lib"]
    assert (places.base / "lib" / "hosts").read_text() == "hosts"
    assert sorted(path.name for path in places.programs.iterdir()) == sorted([*contents.NAMES, "pause"])


@NEEDED
@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([file("/base/x")], "is not allowed"),
        ([file("base/../../x")], "is not allowed"),
        ([file("base/./x")], "is not allowed"),
        ([directory("base/x"), link("base/x/y", "..")], ""),
        ([link("base/x", "/etc"), file("base/x/y")], "the directory of"),
        ([link("base/x", "/etc/shadow")], "leads out of the tree"),
        ([link("base/x", "../../x")], "leads out of the tree"),
        ([directory("base/d"), link("base/d/up", ".."), link("base/x", "d/up/..")], "leads out of the tree"),
        ([directory("base/x"), link("base/x", "y")], "is there twice"),
        ([link("base/x", "y"), file("base/x")], "is there twice"),
        ([file("base/x"), ("base/y", tarfile.LNKTYPE, "base/x")], "neither a directory, a file nor a symbolic link"),
        ([("base/null", tarfile.CHRTYPE, "")], "neither a directory, a file nor a symbolic link"),
        ([("base/disk", tarfile.BLKTYPE, "")], "neither a directory, a file nor a symbolic link"),
        ([("base/pipe", tarfile.FIFOTYPE, "")], "neither a directory, a file nor a symbolic link"),
        ([("base/holes", tarfile.GNUTYPE_SPARSE, "")], "neither a directory, a file nor a symbolic link"),
        ([file("base/none/x")], "the directory of"),
        ([file("programs/other")], "is not a part of a machine tree"),
        ([link("programs/other", "/etc")], "is not a part of a machine tree"),
        ([file("other")], "is not a part of a machine tree"),
    ],
)
def test_archives_that_could_harm_the_host_are_refused(entries: list[Entry], reason: str, places: Places) -> None:
    data = archive(*PARTS, *entries)
    if not reason:
        unpacked(data, places)
        return
    with pytest.raises(BinariesError, match=reason):
        unpacked(data, places)
    assert {path.name for path in places.base.parent.iterdir()} == {"base", "programs", "source"}


@NEEDED
def test_a_link_in_place_of_the_tree_or_of_a_program_is_refused(places: Places) -> None:
    with pytest.raises(BinariesError, match="neither a directory"):
        unpacked(archive(link("base", "/etc")), places)
    places.programs.rmdir()
    with pytest.raises(BinariesError, match="is not a part of a machine tree"):
        unpacked(archive(link("programs/kubelet", "/bin/sh")), places)


@NEEDED
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [("uid", 70_000, "the owner of"), ("gid", 70_000, "the owner of"), ("pax_headers", {"comment": "x"}, "extended headers")],
)
def test_unusual_headers_are_refused(name: str, value: object, reason: str, places: Places) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for entry, text in ((contents.CONTENTS, contents.encode(WANTED)), ("base", b"")):
            info = tarfile.TarInfo(entry)
            info.size = len(text)
            if not text:
                info.type = tarfile.DIRTYPE
                setattr(info, name, value)
            tar.addfile(info, io.BytesIO(text))
    with pytest.raises(BinariesError, match=reason):
        unpacked(compressed(stream.getvalue()), places)


@NEEDED
def test_the_size_of_an_archive_is_limited(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, reason in (
        ("MOST_BYTES", 30_000, "larger than 30000 bytes"),
        ("MOST_ENTRIES", 5, "more than 5 entries"),
        ("LARGEST_FILE", 3, "larger than 3 bytes"),
    ):
        with monkeypatch.context() as changed, pytest.raises(BinariesError, match=reason):
            changed.setattr(unpacking, name, value)
            unpacked(archive(*PARTS, directory("base/etc"), file("base/etc/x", "x" * 50_000)), places)
        shutil.rmtree(places.base, ignore_errors=True)
        shutil.rmtree(places.programs)


@NEEDED
def test_a_name_of_a_gigabyte_is_not_read(places: Places) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    with pytest.raises(BinariesError, match="oversized header"):
        unpacked(compressed(header.tobuf(tarfile.GNU_FORMAT)), places)


@NEEDED
def test_thousands_of_headers_of_one_entry_are_refused(places: Places) -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 512
    with pytest.raises(BinariesError, match="cannot be unpacked"):
        unpacked(compressed((header.tobuf(tarfile.GNU_FORMAT) + bytes(512)) * 5000), places)


@NEEDED
def test_a_tree_of_another_version_or_with_missing_parts_is_refused(places: Places) -> None:
    other = contents.encode(Contents(schema=1, kubernetes="v1.35.0", architecture="amd64", base="base-0123", pause="pause-4567"))
    for described, reason in ((other, 'its kubernetes is "v1.35.0"'), (b"[]", 'its schema is "None"'), (b"{", "is not JSON")):
        with pytest.raises(BinariesError, match=reason):
            unpacked(archive(*PARTS, described=described), places)
        shutil.rmtree(places.programs)
    with pytest.raises(BinariesError, match="does not contain programs/bridge"):
        unpacked(archive(*(entry for entry in PARTS if entry[0] != "programs/bridge")), places)


@NEEDED
@given(data=st.data())
def test_damaged_archives_give_a_proper_error(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    place = tmp_path_factory.mktemp("damaged")
    whole = bytearray(subprocess.run(["zstd", "-dqc"], input=archive(*PARTS), stdout=subprocess.PIPE, check=True).stdout)
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, min(len(whole), 6000) - 1))] = data.draw(st.integers(0, 255))
    cut = compressed(bytes(whole[: data.draw(st.integers(0, len(whole)))]))
    try:
        unpacked(cut, Places(base=place / "base", programs=place / "programs"))
    except BinariesError:
        pass
    finally:
        assert {path.name for path in place.iterdir()} <= {"base", "programs", "source"}
        shutil.rmtree(place)


@pytest.fixture
def debian(tmp_path: Path) -> Path:
    """A small tree as debootstrap makes it."""
    tree = tmp_path / "tree"
    texts = {
        "usr/bin/tool": "tool",
        "var/lib/dpkg/info/tool.md5sums": "0123456789abcdef  usr/bin/tool\n",
        "var/lib/dpkg/status-old": "",
        "var/log/bootstrap.log": "log",
        "var/log/journal/README": "",
        "var/cache/apt/pkgcache.bin": "",
        "etc/machine-id": "0123\n",
        "etc/shadow": "root:*:20000:0:99999:7:::\n",
        "etc/shadow-": "",
        "etc/apt/sources.list": "deb http://mirror.example bookworm main\n",
    }
    for name, text in texts.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    os.utime(tree / "usr/bin/tool", (1_700_000_000, 1_700_000_000))
    (tree / "bin").symlink_to("usr/bin")
    (tree / "etc" / "alternatives").mkdir()
    (tree / "etc" / "alternatives" / "awk").symlink_to("/usr/bin/tool")
    (tree / "dev").mkdir()
    (tree / "dev" / "fd").symlink_to("/proc/self/fd")
    return tree


@NEEDED
def test_the_same_packages_give_the_same_bytes(debian: Path, places: Places, tmp_path: Path) -> None:
    programs = {}
    for name in (*contents.NAMES, "pause"):
        programs[name] = tmp_path / f"program-{name}"
        programs[name].write_text(name)

    def written(name: str) -> bytes:
        target = tmp_path / name / "machine.tar.zst"
        target.parent.mkdir()
        digest = machine_tree.write(
            target, tree=debian, programs=programs, licenses={"go/LICENSE": b"text"}, described=contents.encode(WANTED), level=1
        )
        data = target.read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert (target.parent / "machine.tar.zst.sha256").read_text() == f"{digest}  machine.tar.zst\n"
        return data

    first = written("one")
    for path, text in (("etc/machine-id", "4567\n"), ("etc/shadow", "root:*:20001:0:99999:7:::\n"), ("var/log/bootstrap.log", "other")):
        (debian / path).write_text(text)
    (debian / "etc" / "hostname").write_text("builder\n")
    assert written("two") == first

    unpacked(first, places)
    found = sorted(path.relative_to(places.base).as_posix() for path in places.base.rglob("*") if not path.is_dir() or path.is_symlink())
    assert found == ["bin", "etc/alternatives/awk", "etc/machine-id", "etc/shadow", "usr/bin/tool", "var/lib/dpkg/info/tool.md5sums"]
    assert (places.base / "etc/machine-id").read_text() == ""
    assert (places.base / "etc/shadow").read_text() == "root:*:19675:0:99999:7:::\n"
    assert (places.base / "etc/alternatives/awk").readlink() == Path("../../usr/bin/tool")
    assert (places.base / "usr/bin/tool").stat().st_mtime == 1_700_000_000
    assert (places.base / "var/log/journal").is_dir()


def test_modules_of_a_program_are_read_as_go_prints_them() -> None:
    text = "runc: go1.26\n\tpath\tx/runc\n\tmod\tx/runc\tv1.0.0\th1:a=\n\tdep\tk8s.io/api\tv0.0.0\n\t=>\tk8s.io/api\tv0.36.3\th1:b=\n"
    assert machine_tree.modules_in(text) == [("k8s.io/api", "v0.36.3"), ("x/runc", "v1.0.0")]
    assert machine_tree.escaped("github.com/BurntSushi/toml") == "github.com/!burnt!sushi/toml"


def test_a_source_offers_a_tree(tmp_path: Path) -> None:
    sources = BinarySources(cache=tmp_path / "cache", directory=tmp_path)
    assert not providing.is_offered(sources)
    (tmp_path / contents.file_name(version="v1.36.3", architecture="amd64")).touch()
    assert providing.is_offered(sources)
    address = f"https://files.example/machine.tar.zst#sha256={'0' * 64}"
    assert providing.is_offered(sources_from({"HOME": "/h", "KUBEWRIGHT_MACHINE_TREE": address}))


@pytest.mark.parametrize(
    "address", ["http://plain.example/m#sha256=" + "0" * 64, "https://files.example/m", "https://files.example/m#sha256=00"]
)
def test_an_address_without_https_and_a_digest_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="is not an address with a digest"):
        sources_from({"HOME": "/h", "KUBEWRIGHT_MACHINE_TREE": address})


def test_a_file_without_its_digest_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    sources = BinarySources(cache=tmp_path / "cache", directory=tmp_path)
    path = tmp_path / contents.file_name(version="v1.36.3", architecture="amd64")
    path.write_bytes(b"tree")
    for text, reason in (
        (None, "No such file"),
        ("0" * 64 + "  other.tar.zst\n", "contains no SHA-256"),
        (f"{'0' * 64}  {path.name}\n", "has the wrong content"),
    ):
        if text is not None:
            path.with_name(f"{path.name}.sha256").write_text(text)
        with pytest.raises(BinariesError, match=reason):
            providing.ensure_taken(version="v1.36.3", sources=sources, reporter=SilentReporter())


@NEEDED
def test_a_refused_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    sources = BinarySources(cache=tmp_path / "cache", directory=tmp_path)
    path = tmp_path / contents.file_name(version="v1.36.3", architecture="amd64")
    described = contents.encode(contents.expected(version="v1.36.3", architecture="amd64"))
    path.write_bytes(archive(*PARTS, link("base/etc", "/etc"), described=described))
    path.with_name(f"{path.name}.sha256").write_text(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n")
    with pytest.raises(BinariesError, match="leads out of the tree"):
        providing.ensure_taken(version="v1.36.3", sources=sources, reporter=SilentReporter())
    assert [found.name for found in (tmp_path / "cache").iterdir()] == ["lock"]
    assert list((tmp_path / "xdg").rglob("*.*")) == list((tmp_path / "xdg").rglob("base*")) == []
