"""Directories that are emptied and stay."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.change import Action
from kubewright.base.errors import HostError
from kubewright.host.filesystem import trees
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.states import ServiceState


@pytest.fixture
def host(tmp_path):
    made = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    for name in ("etcd/member/wal/0.wal", "etcd/member/snap/db", "etcd/other"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return made


@pytest.fixture
def mounted(monkeypatch):
    """Treat a directory of this name as a mount."""

    def mount(name):
        real = trees.mount_of
        monkeypatch.setattr(
            trees, "mount_of", lambda opened: "other" if str(Path(f"/proc/self/fd/{opened}").readlink()).endswith(name) else real(opened)
        )

    return mount


def names(root):
    return sorted(str(path.relative_to(root)) for path in Path(root).rglob("*"))


def test_everything_is_removed_and_the_directory_stays(host, tmp_path):
    change = host.empty(host.layout.etcd_data)
    assert (change.target, change.action, change.reason) == (f"contents of {tmp_path / 'etcd'}", Action.DELETE, "member, other")
    assert names(tmp_path) == ["etcd"]
    assert host.empty(host.layout.etcd_data).action is Action.NONE


def test_a_missing_directory_needs_nothing(host):
    assert host.empty(host.layout.kubelet).action is Action.NONE


def test_links_are_removed_and_not_followed(host, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/f").write_text("")
    (tmp_path / "etcd/link").symlink_to(tmp_path / "precious")
    host.empty(host.layout.etcd_data)
    assert names(tmp_path) == ["etcd", "precious", "precious/f"]


def test_a_bind_mount_and_its_parents_stay_and_all_else_is_removed(host, tmp_path, mounted):
    mounted("wal")
    with pytest.raises(HostError) as refused:
        host.empty(host.layout.etcd_data)
    assert refused.value.what == f"{tmp_path / 'etcd'} is not empty"
    assert refused.value.detail.startswith(f"a file system is mounted at {tmp_path / 'etcd/member/wal'}")
    assert refused.value.remedy == f"umount {tmp_path / 'etcd/member/wal'}"
    assert names(tmp_path) == ["etcd", "etcd/member", "etcd/member/wal", "etcd/member/wal/0.wal"]


def test_a_removal_ends_at_the_first_mount(host, tmp_path, mounted):
    mounted("member")
    with pytest.raises(HostError, match="a file system is mounted"):
        host.remove(host.layout.etcd_data)
    assert (tmp_path / "etcd/member/wal/0.wal").exists()


def test_only_directories_of_the_layout_are_emptied(host, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/f").write_text("")
    for one in (host, OverlayHost(host)):
        with pytest.raises(HostError, match="is not ours"):
            one.empty(PurePosixPath(tmp_path / "home"))
    assert names(tmp_path / "home") == ["f"]


def test_an_overlay_reports_the_same_and_empties_nothing(host, tmp_path):
    before, overlay = names(tmp_path), OverlayHost(host)
    change = overlay.empty(host.layout.etcd_data)
    assert overlay.entries(host.layout.etcd_data) == []
    assert overlay.empty(host.layout.etcd_data).action is Action.NONE
    assert names(tmp_path) == before
    assert host.empty(host.layout.etcd_data) == change


class Services:
    """A service manager that records its calls."""

    def __init__(self) -> None:
        self.told = []

    def disable(self, name, /):
        self.told.append(f"disable {name}")

    def reload(self):
        self.told.append("reload")

    def state(self, name, /):
        return ServiceState(running=True)


@pytest.fixture
def units(tmp_path, monkeypatch):
    for module in ("store", "decisions"):
        monkeypatch.setattr(f"kubewright.host.{module}.UNITS", PurePosixPath(tmp_path / "system"))
    for name in ("kubelet.service", "kubelet.service.d/10-kubeadm.conf", "other.service", "more.d/a.conf", "more.d/b.conf"):
        (tmp_path / "system" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "system" / name).write_text("")
    return PurePosixPath(tmp_path / "system")


def test_units_are_removed_with_their_empty_directory(tmp_path, units):
    services = Services()
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), services=services, files=Files(durable=False), environment={})
    wanted = [units / name for name in ("kubelet.service", "kubelet.service.d/10-kubeadm.conf", "more.d/a.conf", "gone.service")]
    plan = OverlayHost(host).remove_units("kubelet", units=wanted)
    assert services.told == []
    assert host.remove_units("kubelet", units=wanted) == plan
    assert names(tmp_path / "system") == ["more.d", "more.d/b.conf", "other.service"]
    assert services.told == ["disable kubelet", "reload"]
    assert host.remove_units("kubelet", units=wanted).action is Action.NONE
    assert len(services.told) == 2


class Forgetful(Services):
    """A service manager that no longer knows the service."""

    def disable(self, name, /):
        raise HostError(f"systemd cannot disable the service {name}", detail=f"Unit file {name}.service does not exist.")


def test_a_drop_in_without_its_unit_is_removed_too(tmp_path, units):
    services = Forgetful()
    host = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), services=services, files=Files(durable=False), environment={})
    (tmp_path / "system/kubelet.service").unlink()
    assert host.remove_units("kubelet", units=[units / "kubelet.service.d/10-kubeadm.conf"])
    assert [name for name in names(tmp_path / "system") if name.startswith("kubelet")] == []
    assert services.told == ["reload"]


def test_a_unit_is_removed_after_its_drop_ins_so_that_an_interrupted_removal_can_be_completed(tmp_path, units):
    class Killed(Files):
        def remove(self, path, /, *, below):
            super().remove(path, below=below)
            raise KeyboardInterrupt

    wanted = [units / name for name in ("kubelet.service", "kubelet.service.d/10-kubeadm.conf")]
    layout = Layout.below(PurePosixPath(tmp_path))
    host = RealHost(layout=layout, services=Services(), files=Killed(durable=False), environment={})
    with pytest.raises(KeyboardInterrupt):
        host.remove_units("kubelet", units=wanted)
    assert [path.exists() for path in map(Path, wanted)] == [True, False]


def test_units_elsewhere_stay(host, units, tmp_path):
    for one in (host, OverlayHost(host)):
        with pytest.raises(HostError, match="is not ours"):
            one.remove_units("kubelet", units=[PurePosixPath(tmp_path / "etcd/other")])
