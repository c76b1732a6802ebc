"""Who else could change a path: each directory and link on the way counts."""

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busy import HANGS
from kubewright.base.errors import HostError
from kubewright.host.filesystem.paths import weakness
from kubewright.host.programs.commands import RealCommands, RealPrograms

NOBODY = 65534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away, and is refused programs")


@pytest.fixture
def tree(tmp_path):
    """A program three directories deep, and a link to it from elsewhere."""
    (tmp_path / "a/b/c").mkdir(parents=True)
    program = tmp_path / "a/b/c/kubelet"
    program.write_text("#!/bin/sh\necho ok\n")
    program.chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links/kubelet").symlink_to("../a/there/kubelet")
    (tmp_path / "a/there").symlink_to(tmp_path / "a/b/c")
    return tmp_path


def at(path: Path) -> PurePosixPath:
    return PurePosixPath(path)


def test_paths_that_only_root_and_we_can_change_are_safe(tree):
    assert weakness(at(tree / "a/b/c/kubelet")) == ""
    assert weakness(at(tree / "links/kubelet")) == ""
    assert weakness(at(tree / "nothing/here")) == ""


@pytest.mark.parametrize("way", ["a/b/c/kubelet", "links/kubelet"])
@pytest.mark.parametrize(("spoilt", "mode"), [("a", 0o777), ("a/b", 0o757), ("a/b/c", 0o722), ("a/b/c/kubelet", 0o757), ("a/b/c", 0o2775)])
def test_one_directory_that_others_may_write_is_unsafe(tree, way, spoilt, mode):
    if mode & 0o020 and not mode & 0o002:
        os.chown(tree / spoilt, -1, 12) if os.geteuid() == 0 else pytest.skip("only root can give groups away")
    (tree / spoilt).chmod(mode)
    assert weakness(at(tree / way)) == f"others may write to {tree / spoilt} (mode {mode:04o})"


def test_in_a_sticky_directory_only_the_owner_of_an_entry_counts(tree):
    (tree / "a/b").chmod(0o1777)
    assert weakness(at(tree / "a/b/c/kubelet")) == ""
    assert weakness(at(tree / "a/b")) == f"others may write to {tree / 'a/b'} (mode 1777)"


@needs_root
@pytest.mark.parametrize("theirs", ["a", "a/b/c", "a/b/c/kubelet", "links/kubelet", "a/there", "links"])
def test_paths_of_other_users_are_reported(tree, theirs):
    os.chown(tree / theirs, NOBODY, NOBODY, follow_symlinks=False)
    assert weakness(at(tree / "links/kubelet")) == f"{tree / theirs} belongs to user {NOBODY}"


def test_the_private_group_of_the_owner_is_safe(tree):
    (tree / "a").chmod(0o775)
    os.chown(tree / "a", -1, (tree / "a").stat().st_uid)
    assert weakness(at(tree / "a/b/c/kubelet")) == ""


def test_links_in_a_circle_end(tree):
    (tree / "x").symlink_to("y")
    (tree / "y").symlink_to("x")
    with pytest.raises(OSError, match="symbolic links"):
        weakness(at(tree / "x/kubelet"))


@given(steps=st.lists(st.sampled_from(["a", "b", "c", "..", ".", "there", "up"]), max_size=8))
def test_any_path_resolves_as_in_the_kernel(tmp_path_factory, steps):
    """If others may write to one directory, this is reported exactly if the kernel passes through it."""
    base = tmp_path_factory.mktemp("way")
    (base / "a/b/c").mkdir(parents=True)
    (base / "a/there").symlink_to(base / "a/b")
    (base / "a/b/up").symlink_to("../../a")
    (base / "a/b").chmod(0o777)
    passed = [Path(os.path.realpath(base / "a" / "/".join(steps[:count]))) for count in range(len(steps) + 1)]
    through = any(one == base / "a/b" or base / "a/b" in one.parents for one in passed) or "there" in steps
    if all(one.exists() and one.is_relative_to(base) for one in passed):
        assert bool(weakness(PurePosixPath(f"{base}/a/{'/'.join(steps)}"))) == through


@needs_root
def test_root_runs_no_program_that_others_can_change(tree):
    (tree / "a/b").chmod(0o777)
    programs = RealPrograms(environment={"PATH": f"{tree}/links"})
    with pytest.raises(HostError) as refused:
        programs.path("kubelet")
    assert refused.value.what == f"{tree}/links/kubelet is not run: others may write to {tree}/a/b (mode 0777)"
    assert "PATH" in refused.value.remedy
    with pytest.raises(HostError, match="is not run: others may write"):
        programs.version("kubelet")
    with pytest.raises(HostError, match="is not run: others may write"):
        RealCommands(environment={"PATH": f"{tree}/links"}).run(["kubelet"], within=HANGS)


@needs_root
def test_a_safe_program_later_on_path_is_used(tree):
    (tree / "loose").mkdir()
    (tree / "loose").chmod(0o777)
    (tree / "loose/kubelet").symlink_to("../a/b/c/kubelet")
    path = f"{tree}/loose:{tree}/links"
    assert RealPrograms(environment={"PATH": path}).path("kubelet") == at(tree / "links/kubelet")
    assert RealCommands(environment={"PATH": path}).run(["kubelet"], within=HANGS).out == "ok\n"


def test_a_program_is_reported_by_its_full_path(tree, monkeypatch):
    monkeypatch.chdir(tree / "a/b")
    assert RealPrograms(environment={"PATH": "c"}).path("kubelet") == at(tree / "a/b/c/kubelet")
    assert RealPrograms(environment={"PATH": f"{tree}/nowhere:{tree}"}).path("kubelet") is None
