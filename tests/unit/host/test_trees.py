"""Trees that pods could leave: deep ones, long paths, names of any bytes, directories that are moved while they are processed."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import stat
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parts
from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError
from kubewright.host.desired import Ownership
from kubewright.host.filesystem import trees
from kubewright.host.filesystem.files import Files
from kubewright.host.filesystem.trees import Work, remove_tree
from kubewright.host.real import RealHost

DEEP = 1200
NAME = "n" * 100
"""This many levels of such names are 120 kB of path, which no system call accepts, and more than Python's stack of 1000 calls."""


def nest(top: Path, depth: int, *, name: str = NAME) -> None:
    """Nest directories with a file in each, as a process does that changes into each directory that it has created."""
    here = os.open(top, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here))
        above, here = here, os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=here)
        os.close(above)
    os.close(os.open("last", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=here))
    os.close(here)


@pytest.fixture
def host(tmp_path):
    """A machine below a directory that is removed after the test, however deep it is."""
    made = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    (tmp_path / "kubelet").mkdir()
    yield made
    remove_tree(made.layout.kubelet)


@pytest.fixture
def few_descriptors():
    """Limit this process to twenty more descriptors than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + 20, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_below(directory: Path) -> list[str]:
    """The files that this process has open there; threads of other tests have other files open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # closed in the meantime
            found.append(str(link.readlink()))
    assert len(found) >= 3
    return [target for target in found if target.startswith(str(directory))]


@pytest.mark.usefixtures("few_descriptors")
def test_a_tree_of_many_levels_is_emptied(host, tmp_path):
    nest(tmp_path / "kubelet", DEEP)
    host.empty(host.layout.kubelet)
    assert list((tmp_path / "kubelet").iterdir()) == []
    assert open_below(tmp_path) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
@pytest.mark.usefixtures("few_descriptors")
def test_a_tree_of_many_levels_changes_its_owner(host, tmp_path):
    nest(tmp_path / "kubelet", DEEP)
    host.files.own(Ownership(path=host.layout.kubelet, owner=4321, group=4321, recursive=True))
    found = [os.lstat(tmp_path / "kubelet" / name) for name in ("", "file", NAME, f"{NAME}/file", "/".join([NAME] * 30))]
    assert [(one.st_uid, one.st_gid) for one in found] == [(4321, 4321)] * 5


def test_failures_deep_in_a_tree_are_reported_with_a_readable_path(host, tmp_path, monkeypatch):
    nest(tmp_path / "kubelet", DEEP)
    (tmp_path / "kubelet/other").write_text("")
    removed, real = [], os.unlink

    def unlink(name, *, dir_fd):
        removed.append(name)
        if name == "last":
            raise PermissionError(1, "Operation not permitted")
        real(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(HostError) as refused:
        host.empty(host.layout.kubelet)
    monkeypatch.undo()
    assert len(refused.value.detail) < 2000
    assert refused.value.detail.startswith(f"cannot remove {tmp_path}/kubelet/{NAME}/{NAME}")
    assert len(removed) == DEEP + 2
    assert [path.name for path in (tmp_path / "kubelet").iterdir()] == [NAME]


def test_many_remaining_files_are_counted_and_few_are_named(host, tmp_path, monkeypatch):
    for number in range(50):
        (tmp_path / f"kubelet/{number:02}").write_text("")

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(HostError) as refused:
        host.empty(host.layout.kubelet)
    monkeypatch.undo()
    lines = refused.value.detail.splitlines()
    assert (len(lines), lines[-1]) == (9, "and 42 more")
    assert lines[0] == f"cannot remove {tmp_path}/kubelet/00: the file system is read-only"


def walk(top: Path, *, leaf) -> tuple[bool, list[str]]:
    """Visit the entries of a directory; `leaf` is called before a file is removed."""
    told: list[str] = []
    opened = os.open(top, os.O_RDONLY | os.O_DIRECTORY)

    def unlink(parent: int, name: str) -> None:
        leaf(name)
        os.unlink(name, dir_fd=parent)

    work = Work(doing="remove", leaf=unlink, directory=lambda parent, name: os.rmdir(name, dir_fd=parent), one_mount=True)
    try:
        done = [
            trees.visit(opened, name, PurePosixPath(top / name), work=work, failed=lambda error: told.append(str(error)))
            for name in trees.names(opened)
        ]
    finally:
        os.close(opened)
    return all(done), told


@pytest.mark.parametrize("depth", [1, 5, 40])
def test_a_moved_directory_does_not_lead_outside(tmp_path, depth):
    """Its `..` is then another directory: nothing in that is removed, and the rest of the tree still is."""
    top, elsewhere = tmp_path / "top", tmp_path / "elsewhere"
    for path in (top / "a", elsewhere / "precious", top / "z"):
        path.mkdir(parents=True)
    (elsewhere / "precious/file").write_text("")
    (top / "z/file").write_text("")
    nest(top / "a", depth, name="d")

    def move(name: str) -> None:
        if name == "last":
            (top / "a/d").rename(elsewhere / "d")

    done, told = walk(top, leaf=move)
    assert (elsewhere / "precious/file").exists()
    assert not (top / "z").exists()
    if depth > trees._HELD:
        assert (done, len(told)) == (False, 1)
        assert "was moved by another process during the removal" in told[0]
    else:
        assert (top.exists(), list(top.iterdir())) == (True, [])


def test_a_directory_that_becomes_a_link_is_not_followed(tmp_path):
    top, precious = tmp_path / "top", tmp_path / "precious"
    for path in (top / "a", top / "b", precious):
        path.mkdir(parents=True)
        (path / "file").write_text("")

    def swap(_: str) -> None:
        if (top / "b").is_dir() and not (top / "b").is_symlink():
            shutil.move(top / "b", tmp_path / "away")
            (top / "b").symlink_to(precious)

    done, told = walk(top, leaf=swap)
    assert (done, told) == (True, [])
    assert [path.name for path in precious.iterdir()] == ["file"]
    assert list(top.iterdir()) == []


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o100, 0o500])
def test_an_inaccessible_directory_is_reported_and_the_rest_removed(tmp_path, mode):
    top = tmp_path / "top"
    for name in ("a/shut/file", "a/z", "b/file"):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("")
    (top / "a/shut").chmod(mode)
    done, told = walk(top, leaf=lambda _: None)
    (top / "a/shut").chmod(stat.S_IRWXU) if (top / "a/shut").exists() else None
    left = sorted(str(path.relative_to(top)) for path in top.rglob("*"))
    if os.geteuid() == 0:
        assert (done, told, left) == (True, [], [])
    else:
        assert (done, left) == (False, ["a", "a/shut", "a/shut/file"])
        assert len(told) == 1
        assert "not allowed as user" in told[0]


TREES = st.recursive(
    st.sampled_from(["file", "link", "fifo"]),
    lambda below: st.dictionaries(
        st.binary(min_size=1, max_size=4).filter(lambda raw: not set(raw) & set(b"/\0") and raw not in {b".", b".."}), below, max_size=3
    ),
    max_leaves=20,
)


def build(top: Path, tree: object, precious: Path) -> None:
    if isinstance(tree, dict):
        top.mkdir()
        for name, below in tree.items():
            build(top / os.fsdecode(name), below, precious)
    elif tree == "file":
        top.write_text("")
    elif tree == "link":
        top.symlink_to(precious)
    else:
        os.mkfifo(top)


@settings(max_examples=parts.given(60))
@given(TREES)
def test_any_tree_is_removed_completely_and_nothing_else(tmp_path_factory, tree):
    tmp_path = tmp_path_factory.mktemp("tree")
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/file").write_text("")
    (tmp_path / "kubelet").mkdir()
    build(tmp_path / "kubelet/top", tree, tmp_path / "precious")
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    host.empty(host.layout.kubelet)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kubelet", "precious"]
