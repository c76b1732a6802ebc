"""The mounts below a directory, from the kernel's table, and what may be unmounted."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.filesystem import mounts
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost

KUBELET = PurePosixPath("/var/lib/kubelet")
ESCAPED = b" \t\n\\#"
NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & set(b"/\0") and name not in {b".", b".."}).map(os.fsdecode)
"""File names: bytes, in any encoding."""
PATHS = st.lists(NAMES, min_size=1, max_size=4).map(lambda names: PurePosixPath("/", *names))


def line(path: PurePosixPath) -> bytes:
    """One line of the table, escaped as the kernel does."""
    escaped = b"".join(b"\\%03o" % one if one in ESCAPED else bytes([one]) for one in os.fsencode(path))
    return b"tmpfs %s tmpfs rw,relatime 0 0\n" % escaped


@given(PATHS)
def test_a_path_is_read_as_it_was_escaped(path):
    assert mounts.mount_points(line(path)) == [path]


def test_an_escape_stands_for_a_byte_and_not_for_a_character():
    (found,) = mounts.mount_points(b"tmpfs /a/caf\\303\\251\\040\xe9 tmpfs rw 0 0\n")
    assert os.fsencode(found) == b"/a/caf\xc3\xa9 \xe9"


@given(st.lists(PATHS, max_size=6))
def test_every_line_is_one_mount_in_the_order_of_the_table(paths):
    assert mounts.mount_points(b"".join(map(line, paths))) == paths


@given(st.binary(max_size=200))
def test_a_missing_table_is_an_error(table):
    assert all(path.is_relative_to(KUBELET) for path in mounts.below(table, KUBELET))


def test_only_mounts_below_the_directory_count():
    table = b"".join(line(PurePosixPath(path)) for path in ("/var/lib/kubelet", "/var/lib/kubelet2/a", "/var/lib/kubelet/b", "/c"))
    assert mounts.below(table, KUBELET) == [KUBELET / "b"]


def test_mounts_outside_of_the_directory_are_not_unmounted():
    for path in (KUBELET, PurePosixPath("/home"), PurePosixPath("/var/lib/kubelet2")):
        with pytest.raises(HostError) as refused:
            mounts.decide_unmount([path], path, allowed=KUBELET)
        assert refused.value.what == f"{path} is not ours to unmount"


def test_a_path_that_is_not_mounted_needs_nothing():
    assert mounts.decide_unmount([], KUBELET / "a", allowed=KUBELET).action is Action.NONE
    assert mounts.decide_unmount([KUBELET / "a"], KUBELET / "a", allowed=KUBELET).action is Action.DELETE


def test_a_path_without_a_mount_is_reported(tmp_path):
    if os.geteuid() == 0:
        assert mounts.unmount(PurePosixPath(tmp_path), flags=["UMOUNT_NOFOLLOW"]) is False
    assert mounts.unmount(PurePosixPath(tmp_path / "gone"), flags=[]) is False or os.geteuid()


def test_the_flags_are_those_that_a_configuration_may_name():
    assert {name: getattr(os, name, number) for name, number in mounts.FLAGS.items()} == {
        "MNT_FORCE": 1,
        "MNT_DETACH": 2,
        "MNT_EXPIRE": 4,
        "UMOUNT_NOFOLLOW": 8,
    }


class Mounted(RealHost):
    """A machine with simulated mounts."""

    table: tuple[str, ...] = ()

    def mounts(self, directory, /):
        return [directory / name for name in self.table]


def test_an_overlay_unmounts_nothing_and_remembers_how_often(tmp_path):
    base = Mounted(layout=Layout.below(PurePosixPath(tmp_path)), environment={})
    base.table = ("a", "b", "a")
    kubelet, host = base.layout.kubelet, OverlayHost(base)
    assert host.unmount(kubelet / "a").action is Action.DELETE
    assert host.mounts(kubelet) == [kubelet / "a", kubelet / "b"]
    assert host.unmount(kubelet / "a").action is Action.DELETE
    assert host.unmount(kubelet / "a").action is Action.NONE
    assert host.mounts(kubelet) == [kubelet / "b"]
    assert base.mounts(kubelet) == [kubelet / "a", kubelet / "b", kubelet / "a"]


def test_mounts_of_this_machine_are_read(tmp_path):
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={})
    assert host.mounts(PurePosixPath(tmp_path)) == []
    assert PurePosixPath("/proc") in host.mounts(PurePosixPath("/"))
    Path(tmp_path / "link").symlink_to("/")
    assert PurePosixPath("/proc") in host.mounts(PurePosixPath(tmp_path / "link"))
