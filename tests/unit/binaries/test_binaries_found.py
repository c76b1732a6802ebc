"""Finding programs: the user's directory, the cache, and the stamps with which a warm start costs one stat per program."""

from __future__ import annotations

import io
import json
import os
import shutil
from pathlib import Path

import binaries_programs as programs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright import binaries
from kubewright.base.errors import BinariesError, HostError
from kubewright.base.records import replace
from kubewright.base.versions import Version
from kubewright.binaries import Binary, BinarySources, inspection
from kubewright.binaries import cache as stamps
from kubewright.binaries.cache import Cache
from kubewright.binaries.providing import wanted_programs
from kubewright.binaries.settings import CACHE_VARIABLE


def want(*names: str, version: str = "v1.36.3", architecture: str = programs.NATIVE):
    return wanted_programs(names, version=version, architecture=architecture)


@pytest.fixture
def chosen(tmp_path: Path) -> Path:
    """A directory with all default programs."""
    for name in binaries.DEFAULT:
        programs.put(tmp_path / "chosen", name, programs.program(name))
    return tmp_path / "chosen"


def sources(tmp_path: Path, directory: Path | None = None) -> BinarySources:
    return BinarySources(cache=tmp_path / "cache", directory=directory, allow_download=False, allow_build=False)


def ensure(tmp_path: Path, directory: Path | None = None, names: tuple[str, ...] = ("kubectl",)) -> dict[str, Binary]:
    return binaries.ensure(names, version="v1.36.3", sources=sources(tmp_path, directory))


def install(tmp_path: Path, *names: str) -> Cache:
    cache = Cache(tmp_path / "cache")
    for one in want(*names):
        cache.install(one, programs.put(tmp_path / "cache" / "work-1", one.name, programs.program(one.name)), source="test")
    return cache


# The user's directory


def test_programs_of_the_user_directory_are_used_in_place(tmp_path, chosen):
    found = ensure(tmp_path, chosen, binaries.DEFAULT)
    assert list(found) == list(binaries.DEFAULT)
    assert [binary.path for binary in found.values()] == [chosen / name for name in binaries.DEFAULT]
    assert {binary.source for binary in found.values()} == {f"directory {chosen}"}
    assert found["etcd"].version == "v3.6.8"


def test_a_known_program_is_not_run_again(tmp_path, chosen, monkeypatch):
    first = ensure(tmp_path, chosen, binaries.DEFAULT)
    monkeypatch.setattr(inspection, "check_program", lambda *_, **__: pytest.fail("was checked again"))
    assert ensure(tmp_path, chosen, binaries.DEFAULT) == first


def test_a_program_that_was_replaced_is_checked_again(tmp_path, chosen):
    first = ensure(tmp_path, chosen)
    programs.put(chosen, "kubectl", programs.elf_program("Client Version: v1.36.3 built by me"))
    second = ensure(tmp_path, chosen)
    assert second["kubectl"].sha256 != first["kubectl"].sha256


def test_the_directory_works_without_a_writable_cache(tmp_path, chosen):
    (tmp_path / "cache").write_text("a file is in the way")
    assert len(ensure(tmp_path, chosen, binaries.DEFAULT)) == 5


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.chmod(0o644), "is not executable"),
        (lambda path: path.write_bytes(b""), "is an empty file, not a program for linux"),
        (lambda path: path.write_bytes(b"\x7fELF\x02"), "is a damaged ELF file"),
        (lambda path: path.write_bytes(b"MZ\x90\x00" * 9), "is a Windows program"),
        (lambda path: path.write_bytes(b"\xcf\xfa\xed\xfe" * 9), "is a macOS program"),
        (lambda path: path.write_bytes(b"hello world, not a program"), "is not an ELF program"),
        (lambda path: path.write_bytes(programs.program("kubectl", architecture=programs.FOREIGN)), f"is a program for {programs.FOREIGN}"),
        (
            lambda path: path.write_bytes(programs.elf_program("Client Version: v1.36.2")),
            r"is kubectl v1\.36\.2, exactly v1\.36\.3 is wanted",
        ),
        (lambda path: path.write_bytes(programs.elf_program("hello")), "did not print a version"),
        (lambda path: path.write_text("#!/bin/sh\necho no such flag >&2\nexit 3\n"), "did not print a version"),
        (lambda path: path.write_text("#!/no/such/interpreter\n"), "cannot be run"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read|is not a file"),
    ],
)
def test_an_unusable_program_in_the_user_directory_is_an_error(tmp_path, chosen, spoil, words):
    spoil(chosen / "kubectl")
    with pytest.raises(BinariesError, match=words) as caught:
        ensure(tmp_path, chosen)
    assert str(chosen / "kubectl") in str(caught.value)


def test_the_last_output_of_an_unusable_program_is_shown(tmp_path, chosen):
    (chosen / "kubectl").write_text("#!/bin/sh\necho no such flag >&2\nexit 3\n")
    with pytest.raises(BinariesError) as caught:
        ensure(tmp_path, chosen)
    assert caught.value.detail == "exit status 3\nno such flag"


def test_a_script_in_the_user_directory_may_wrap_a_program(tmp_path, chosen):
    (chosen / "kubectl").write_text("#!/bin/sh\necho Client Version: v1.36.3\n")
    assert ensure(tmp_path, chosen)["kubectl"].version == "v1.36.3"


@pytest.mark.parametrize(("answer", "fits"), [("etcd Version: 3.6.5", True), ("etcd Version: 3.5.21", False)])
def test_etcd_may_be_another_patch_release(tmp_path, chosen, answer, fits):
    programs.put(chosen, "etcd", programs.elf_program(answer))
    if fits:
        assert ensure(tmp_path, chosen, ("etcd",))["etcd"].version == "v3.6.5"
    else:
        with pytest.raises(BinariesError, match=r"of the same minor release as v3\.6\.8 is wanted"):
            ensure(tmp_path, chosen, ("etcd",))


@pytest.mark.parametrize(
    ("flag", "remedy"), [("kubernetes-version", "--kubernetes-version v1.36.3"), ("binaries-dir", "put kubectl v1.36.2 there")]
)
def test_a_known_program_does_not_fit_another_version(tmp_path, chosen, flag, remedy):
    ensure(tmp_path, chosen)
    with pytest.raises(BinariesError, match=r"exactly v1\.36\.2 is wanted") as caught:
        binaries.locate(("kubectl",), version="v1.36.2", sources=replace(sources(tmp_path, chosen), flags=frozenset({flag})))
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("flag", "named"), [("binaries-dir", "--binaries-dir or KUBEWRIGHT_BINARIES_DIR"), ("output", "KUBEWRIGHT_BINARIES_DIR")]
)
def test_a_hint_names_flags_only_if_the_command_has_them(tmp_path, flag, named):
    nothing = replace(sources(tmp_path, None), flags=frozenset({flag}))
    with pytest.raises(BinariesError) as missing:
        binaries.ensure(("kubelet",), version="v1.36.3", sources=nothing)
    assert missing.value.remedy.endswith(f"provide a directory that contains them ({named})")
    with pytest.raises(BinariesError) as nowhere:
        binaries.ensure(("kubelet",), version="v1.36.3", sources=replace(nothing, directory=tmp_path / "nowhere"))
    assert nowhere.value.remedy == f"correct {named}"


def test_a_program_for_another_architecture_is_not_run(tmp_path, chosen):
    programs.put(chosen, "kubectl", programs.program("kubectl", architecture=programs.FOREIGN))
    found = binaries.ensure(("kubectl",), version="v1.36.3", sources=sources(tmp_path, chosen), architecture=programs.FOREIGN)
    assert found["kubectl"].version == "v1.36.3"


def test_a_directory_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(BinariesError, match="does not exist") as caught:
        ensure(tmp_path, tmp_path / "typo")
    assert caught.value.remedy == "correct KUBEWRIGHT_BINARIES_DIR"


def test_programs_missing_in_the_directory_come_from_the_cache(tmp_path, chosen):
    install(tmp_path, "kubeadm")
    found = ensure(tmp_path, chosen, ("kubectl", "kubeadm"))
    assert {name: binary.path.parent.name for name, binary in found.items()} == {"kubectl": "chosen", "kubeadm": programs.NATIVE}


# The cache


def test_the_cache_returns_installed_programs(tmp_path):
    install(tmp_path, "kubectl", "etcd")
    found = ensure(tmp_path, names=("kubectl", "etcd"))
    assert found["etcd"].path == tmp_path / "cache" / "v1.36.3" / programs.NATIVE / "etcd"
    assert found["etcd"].path.stat().st_mode & 0o777 == 0o755
    assert found["etcd"].source == "test"


def test_wireguard_go_has_the_version_of_its_module_regardless_of_its_output(tmp_path):
    install(tmp_path, "wireguard-go")
    found = ensure(tmp_path, names=("wireguard-go",))["wireguard-go"]
    assert found.version == "v0.0.0-20260522210424-ecfc5a8d5446"


def test_the_missing_download_of_wireguard_go_is_explained(tmp_path):
    given = BinarySources(cache=tmp_path / "cache", directory=None, allow_download=True, allow_build=False)
    with pytest.raises(BinariesError, match="no binary is available for wireguard-go") as told:
        binaries.ensure(("wireguard-go",), version="v1.36.3", sources=given)
    assert "download: released as source only" in told.value.detail


def test_a_warm_start_stats_each_program_once(tmp_path, monkeypatch):
    install(tmp_path, *binaries.DEFAULT)
    looks: list[str] = []
    original = Path.stat

    def stat(self: Path, **options: object) -> os.stat_result:
        looks.append(self.name)
        return original(self, **options)

    monkeypatch.setattr(Path, "stat", stat)
    opened: list[str] = []
    monkeypatch.setattr(Path, "open", lambda self, **_: opened.append(self.name) or io.FileIO(str(self)))
    monkeypatch.setattr(inspection, "check_program", lambda *_, **__: pytest.fail("was run"))
    found = binaries.locate(version="v1.36.3", sources=sources(tmp_path))
    assert len(found.found) == 5
    assert sorted(looks) == sorted(binaries.DEFAULT)
    assert opened == ["stamps.json"]


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "No such file"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "its size is"),
        (lambda path: os.utime(path, ns=(1, 1)), "it was modified"),
        (lambda path: path.chmod(0o777), "others may write to it"),
        (lambda path: (path.rename(path.parent / "other"), path.symlink_to("other")), "it is not a regular file"),
        (lambda path: (path.parent / "stamps.json").unlink(), "not in "),
        (lambda path: (path.parent / "stamps.json").write_text('{"schema": 1, "programs": {"kub'), "not in "),
    ],
)
def test_a_file_that_differs_from_the_installed_one_is_not_used(tmp_path, spoil, words):
    install(tmp_path, "kubectl")
    spoil(tmp_path / "cache" / "v1.36.3" / programs.NATIVE / "kubectl")
    with pytest.raises(BinariesError, match=words) as caught:
        ensure(tmp_path)
    assert "download: not allowed" in caught.value.detail
    assert "build: not allowed" in caught.value.detail


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_not_used(tmp_path):
    install(tmp_path, "kubectl")
    os.chown(tmp_path / "cache" / "v1.36.3" / programs.NATIVE / "kubectl", 12345, 12345)
    with pytest.raises(BinariesError, match="it belongs to user 12345"):
        ensure(tmp_path)


LEVELS = ("cache", "cache/v1.36.3", f"cache/v1.36.3/{programs.NATIVE}", ".")


@pytest.mark.parametrize("level", LEVELS)
def test_a_cache_whose_directories_others_may_write_is_neither_used_nor_filled(tmp_path, level):
    place = tmp_path / "place"
    install(place, "kubectl")
    assert list(ensure(place)) == ["kubectl"]
    (place / level).chmod(0o757)
    words = f"others may write to {(place / level).resolve()} (mode 0757)"
    with pytest.raises(BinariesError) as caught:
        ensure(place)
    assert words in caught.value.detail
    with pytest.raises(HostError) as refused:
        install(place, "etcd")
    assert words in str(refused.value)
    assert CACHE_VARIABLE in refused.value.remedy
    if level in {"cache", "."}:
        allowed = BinarySources(cache=place / "cache", allow_build=False)
        with pytest.raises(HostError, match="is not used: others may write"):
            binaries.ensure(("kubectl",), version="v1.36.3", sources=allowed, fetcher=None)
    assert not list((place / "cache").glob("v1.36.3/*/etcd"))


@pytest.mark.skipif(os.geteuid() != 0, reason="others may do as they like with what they run as themselves")
@pytest.mark.parametrize("level", [".", "etcd"])
def test_root_runs_nothing_from_a_directory_that_others_can_change(tmp_path, chosen, level):
    assert list(ensure(tmp_path, chosen, ("etcd",))) == ["etcd"]
    (chosen / level).chmod(0o777)
    with pytest.raises(BinariesError, match="is not run: others may write to"):
        ensure(tmp_path, chosen, ("etcd",))


def test_another_version_of_etcd_in_the_stamps_is_not_used(tmp_path):
    install(tmp_path, "etcd")
    path = tmp_path / "cache" / "v1.36.3" / programs.NATIVE / "stamps.json"
    path.write_text(path.read_text().replace("v3.6.8", "v3.6.7"))
    with pytest.raises(BinariesError, match=r"etcd is v3\.6\.7"):
        ensure(tmp_path, names=("etcd",))


def test_a_script_is_never_installed(tmp_path):
    [one] = want("kubectl")
    path = programs.put(tmp_path / "cache" / "work-1", "kubectl", b"#!/bin/sh\necho v1.36.3\n")
    with pytest.raises(BinariesError, match="is a script"):
        Cache(tmp_path / "cache").install(one, path, source="test")


def test_directories_are_not_writable_by_others_with_any_umask(tmp_path):
    (tmp_path / "deep" / "cache").mkdir(parents=True, mode=0o755)  # the user's own; nothing is written where others may write
    before = os.umask(0)
    try:
        install(tmp_path / "deep", "kubectl")
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o022 for path in (tmp_path / "deep" / "cache" / "v1.36.3").rglob("*")}
    assert modes == {0}


def test_a_cache_of_one_machine_serves_another_as_its_directory(tmp_path):
    install(tmp_path, "kubectl", "etcd")
    shutil.copytree(tmp_path / "cache" / "v1.36.3" / programs.NATIVE, tmp_path / "usb")
    assert ensure(tmp_path / "new", tmp_path / "usb", ("kubectl", "etcd"))["etcd"].source == f"directory {tmp_path / 'usb'}"


# Verifying and listing


def test_verify_reads_every_program_again(tmp_path):
    install(tmp_path, "kubectl", "etcd")
    path = tmp_path / "cache" / "v1.36.3" / programs.NATIVE / "kubectl"
    before = path.stat()
    path.write_bytes(path.read_bytes()[:-2] + b"!\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    results = binaries.verify(version="v1.36.3", sources=sources(tmp_path))
    assert [(result.binary.name, bool(result.fault)) for result in results] == [("etcd", False), ("kubectl", True)]
    assert "its SHA-256 is" in results[1].fault


def test_verify_names_what_is_missing(tmp_path):
    with pytest.raises(BinariesError, match="not there: kubectl"):
        binaries.verify(("kubectl",), version="v1.36.3", sources=sources(tmp_path))


def test_the_listing_has_a_row_for_every_program(tmp_path, chosen):
    install(tmp_path, "kubeadm")
    (chosen / "etcd").chmod(0o600)
    rows = {row.name: row for row in binaries.listing(version="v1.36.3", sources=sources(tmp_path, chosen))}
    assert list(rows) == list(binaries.PROGRAMS)
    assert rows["kubeadm"].binary is not None
    assert rows["kubeadm"].as_map()["present"] is True
    assert rows["runc"].as_map() == {
        "name": "runc", "family": "runc", "version": "v1.5.2", "default": False, "present": False, "reason": rows["runc"].reason,
    }  # fmt: skip
    assert "is not executable" in rows["etcd"].reason


def test_locate_says_why_something_is_missing(tmp_path, chosen):
    (chosen / "kubectl").unlink()
    located = binaries.locate(("kubectl", "etcd"), version="v1.36.3", sources=sources(tmp_path, chosen))
    assert list(located.found) == ["etcd"]
    assert [refusal.source for refusal in located.missing["kubectl"]] == ["directory", "cache"]


# Parsers


@given(st.binary(max_size=40) | st.binary(max_size=40).map(lambda tail: b"\x7fELF\x02\x01" + tail))
def test_any_header_gives_an_architecture_or_an_error(header):
    try:
        answer = inspection.elf_machine(header)
    except ValueError as error:
        answer = str(error)
    assert answer


@pytest.mark.parametrize("architecture", ["amd64", "arm64"])
def test_both_architectures_are_recognised(architecture):
    assert inspection.elf_machine(programs.program("etcd", architecture=architecture)[: inspection.HEADER_LENGTH]) == architecture


def test_the_byte_order_of_the_header_is_respected():
    assert inspection.elf_machine(b"\x7fELF\x02\x02" + bytes(10) + b"\x00\x02\x00\x16") == "s390x"


def test_a_library_is_not_a_program():
    with pytest.raises(ValueError, match="type 1"):
        inspection.elf_machine(b"\x7fELF\x02\x01" + bytes(10) + b"\x01\x00\x3e\x00")


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
    st.sampled_from(["schema", "programs", "etcd", "size", "mtime", "sha256", "version", "source"]), inner, max_size=5), max_leaves=12)  # fmt: skip


@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=30))
def test_any_stamp_file_can_be_read(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any-stamps.json"
    path.write_bytes(content)
    assert all(Version.parse(stamp.version) for stamp in stamps.load_records(path).values())


def test_stamps_survive_a_round_trip(tmp_path):
    stamp = stamps.FileRecord(size=3, mtime=4, sha256="ab", version="v1.2.3", source="ü")
    stamps.save_records(tmp_path / "s", {"etcd": stamp})
    assert stamps.load_records(tmp_path / "s") == {"etcd": stamp}
    assert len(list(tmp_path.iterdir())) == 1
