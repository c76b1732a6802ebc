"""Clusters whose files another user can change: what root does for them must stay within what that user may do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kubewright.apis.kubeconfig.documents import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, HostError, UsageError, ValidationError
from kubewright.base.events import SilentReporter
from kubewright.base.records import replace
from kubewright.cli.main import main
from kubewright.kube.credentials import ClientCertificate
from kubewright.local import record
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.cluster.down import down
from kubewright.local.cluster.kubeconfig import target, use
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole import endpoints, entering, images, machines, members, owner, preflight
from kubewright.local.whole.services.programs import Program
from kubewright.machines import base, places, running
from kubewright.machines.machine import Machine
from kubewright.machines.places import MachinePlaces
from other_user import NOBODY, readable

__all__ = ["readable"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root acts for other users")
FIRST = LocalMachineRecord(name="dev-control-plane", address="172.30.4.11")
CLUSTER = ClusterRecord(name="dev", id="0" * 32, machines=(FIRST,), kind=record.MACHINES, made=True)
CERTIFICATE = EmbeddedCertificate(certificate_pem=b"certificate", key_pem=b"key")
HOSTILE: dict[str, dict[str, Any]] = {
    "a file as the token": {"user": {"tokenFile": "/etc/hostname"}},
    "a file as the key": {"user": {"client-certificate": "/etc/hostname", "client-key": "/etc/hostname"}},
    "a program": {"user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "id", "interactiveMode": "Never"}}},
    "a file as the CA": {"cluster": {"certificate-authority": "/etc/hostname"}},
    "no verification": {"cluster": {"insecure-skip-tls-verify": True}},
}


def kubeconfig(changes: dict[str, dict[str, Any]]) -> str:
    """The administrator's kubeconfig, with other fields instead of its own where there are changes."""
    body: Any = kubeconfig_document(
        server="https://172.30.4.11:6443", cluster_name="dev", user="admin", credentials=CERTIFICATE, ca_pem=b"ca"
    )
    if "user" in changes:
        body["users"][0]["user"] = changes["user"]
    if "cluster" in changes:
        body["clusters"][0]["cluster"] = {"server": "https://172.30.4.11:6443", **changes["cluster"]}
    return yaml.dump(body)


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_the_owners_kubeconfig_cannot_make_root_read_files_or_skip_verification(tmp_path: Path, changes: dict[str, dict[str, Any]]) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    admin = paths.admin_kubeconfig(FIRST.name)
    admin.parent.mkdir(parents=True)
    record.save(CLUSTER, paths.record)
    admin.write_text(kubeconfig({}))
    assert endpoints.access(paths, CLUSTER).identity == ClientCertificate(cert_pem=b"certificate", key_pem=b"key")
    assert LocalCluster("dev", state_dir=tmp_path).access.identity == ClientCertificate(cert_pem=b"certificate", key_pem=b"key")
    admin.write_text(kubeconfig(changes))
    with pytest.raises(ValidationError):
        endpoints.access(paths, CLUSTER)
    with pytest.raises(ValidationError):
        _ = LocalCluster("dev", state_dir=tmp_path).access


def given_away(*places: Path) -> None:
    for place in places:
        os.chown(place, NOBODY, NOBODY, follow_symlinks=False)


def of_another_user(readable: Path) -> ClusterPaths:
    """A cluster of processes in the home directory of another user."""
    paths = ClusterPaths(readable / "home" / "clusters" / "dev")
    paths.root.mkdir(parents=True)
    record.save(replace(CLUSTER, kind=record.PROCESSES), paths.record)
    given_away(readable / "home", paths.root.parent, paths.root, paths.record)
    return paths


@needs_root
def test_down_as_root_removes_nothing_that_the_owner_may_not_remove(readable: Path) -> None:
    victim = readable / "victim"
    (victim / "conf").mkdir(parents=True)
    (victim / "passwd").write_text("root")
    paths = of_another_user(readable)
    paths.machines.symlink_to(victim)
    given_away(paths.machines)
    with pytest.raises(HostError, match="not allowed as user"):
        down(paths, keep_data=True)
    assert sorted(path.name for path in victim.iterdir()) == ["conf", "passwd"]
    assert os.geteuid() == 0


@needs_root
def test_down_as_root_removes_a_cluster_of_another_user(readable: Path) -> None:
    paths = of_another_user(readable)
    assert down(paths).existed
    assert not paths.root.exists()
    assert (os.geteuid(), os.getegid()) == (0, 0)


@needs_root
def test_down_as_root_reports_a_directory_that_its_owner_cannot_reach(readable: Path) -> None:
    paths = of_another_user(readable)
    os.chown(paths.root.parent, 0, 0)
    paths.root.parent.chmod(0o700)
    with pytest.raises(HostError, match=f"cannot be reached by its owner, user {NOBODY}"):
        down(paths)
    assert paths.record.exists()


@needs_root
def test_files_of_another_user_are_accessed_without_the_groups_of_root(readable: Path) -> None:
    before = os.getgroups()
    os.setgroups([0, 4])
    try:
        with owner.acting_as(owner.Owner(uid=NOBODY, gid=NOBODY, home=readable)):
            assert not {0, 4} & {*os.getgroups(), os.getegid()}
        assert sorted(os.getgroups()) == [0, 4]
    finally:
        os.setgroups(before)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "../../etc"},
        {"name": "dev", "machines": (replace(FIRST, name="../../../etc"),)},
        {"name": "dev", "machines": (FIRST, replace(FIRST, name="dev-control-plane-2/../../x", leaving=True))},
        {"name": "dev", "machines": (replace(FIRST, name="dev-worker-1"),)},
    ],
)
def test_a_record_whose_names_could_be_other_paths_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = tmp_path / "dev" / "cluster.json"
    record.save(replace(CLUSTER, **changes), path)
    with pytest.raises(HostError, match="does not describe a cluster"):
        record.load(path)


@needs_root
@pytest.mark.parametrize(("variable", "place"), [("XDG_CACHE_HOME", places.cache), ("XDG_STATE_HOME", places.disks)])
def test_root_makes_no_machines_in_directories_of_others(
    readable: Path, monkeypatch: pytest.MonkeyPatch, variable: str, place: Any
) -> None:
    home = readable / "home"
    home.mkdir()
    monkeypatch.setenv(variable, str(home))
    assert place().is_relative_to(home)
    given_away(home)
    with pytest.raises(HostError, match=f"is not used: {home} belongs to user"):
        place()
    os.chown(home, 0, 0)
    home.chmod(0o777)
    with pytest.raises(HostError, match="others may write to"):
        place()


def test_down_does_not_remove_a_directory_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "home" / "ann").mkdir(parents=True)
    paths = ClusterPaths(tmp_path / "home")
    with pytest.raises(HostError, match="is not the directory of a cluster"):
        down(paths)
    assert [path.name for path in paths.root.iterdir()] == ["ann"]
    (tmp_path / "home" / "ann").rmdir()
    assert down(paths).existed
    assert not paths.root.exists()


def test_programs_of_the_host_are_not_searched_where_the_caller_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    ran = tmp_path / "ran"
    for name in ("nsenter", "sh", "env", "cat", "tail", "true"):
        program = tmp_path / "bin" / name
        program.write_text(f'#!/bin/sh\necho "{name}" >>{ran}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    machine = Machine("m", group="kw-none", places=MachinePlaces(tmp_path / "m"), lower=(), namespace="", address="")
    assert machine.run("true", check=False).code != 0  # it does not run
    with machine.start("true", stderr=subprocess.DEVNULL) as process:
        assert process.wait() != 0
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    places.disks().mkdir(parents=True)
    with pytest.raises(DocumentError, match="cannot read"):
        images.load_as(os.geteuid(), [], str(tmp_path / "none"))
    assert list(entering.output(ClusterPaths(tmp_path / "dev"), Program())) == []  # the daemon has no log
    assert not ran.exists()


def test_a_shell_in_a_machine_is_started_with_programs_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/home/ann/bin")
    assert running.environment() == {**os.environ, "PATH": running.PATH}
    assert "/home" not in running.PATH


@pytest.mark.parametrize(("address", "forced"), [("", False), ("https://deb.example/debian", False), ("http://deb.example/debian", True)])
def test_packages_are_verified_if_they_come_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str, forced: bool
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ran: list[tuple[str, ...]] = []

    def run(*argv: str, **_: object) -> str:
        ran.append(argv)
        raise HostError("no")

    monkeypatch.setattr(base, "run", run)
    monkeypatch.setattr(base, "mirror", lambda: address)
    with pytest.raises(HostError):
        base.ensure_base(SilentReporter())
    [argv] = ran
    assert ("--force-check-gpg" in argv) is forced


@needs_root
def test_a_directory_that_we_may_not_enter_has_no_clusters_for_us(readable: Path) -> None:
    closed = readable / "closed"
    (closed / "clusters").mkdir(parents=True)
    closed.chmod(0o700)
    with owner.acting_as(owner.Owner(uid=NOBODY, gid=NOBODY, home=readable)):
        assert owner.visible(str(closed / "clusters")) == []
        assert owner.paths_of("dev", state_dir=str(closed / "clusters")).root == closed / "clusters" / "dev"


@needs_root
def test_disks_that_would_not_be_found_are_not_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    paths.root.mkdir(mode=0o700)
    made = replace(CLUSTER, disks="/a b/kubewright/machines")
    record.save(made, paths.record)
    for command in (lambda: down(paths), lambda: down(paths, keep_data=True), lambda: machines.kill(paths, FIRST.name)):
        with pytest.raises(HostError, match=f'the disks of cluster "dev" are in {made.disks}, not in ') as caught:
            command()
        assert "`sudo env XDG_STATE_HOME='/a b' kubewright down --name dev`" in caught.value.remedy
    assert record.load(paths.record) == made
    monkeypatch.setattr(members, "disks", lambda: Path("/a b/kubewright/machines"))
    members.require_disks(made)
    monkeypatch.setattr(members, "disks", lambda: Path("/other/kubewright/machines"))
    members.require_disks(replace(made, disks=""))  # of an earlier version
    for broken in ("machines", "kubewright/machines", "/kubewright", "/a/kubewright/machines/x"):
        record.save(replace(made, disks=broken), paths.record)
        with pytest.raises(HostError, match="does not describe a cluster"):
            record.load(paths.record)


@needs_root
def test_the_checks_of_a_host_do_not_fail_on_the_cache_of_another_user(readable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (readable / "private").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(readable / "private"))
    with owner.acting_as(owner.Owner(uid=NOBODY, gid=NOBODY, home=readable)):
        subject = preflight.this_host()
    assert (subject.user, subject.has_tree) == (NOBODY, False)


@needs_root
def test_a_home_directory_of_another_user_is_a_finding_of_the_checks(readable: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(readable, NOBODY, NOBODY)
    monkeypatch.setenv("XDG_CACHE_HOME", str(readable))
    errors = [found for name, found in preflight.examine().errors if name == "storage"]
    assert [("is not used" in found.text, "run `sudo` without -E" in found.remedy) for found in errors] == [(True, True)]


@needs_root
def test_a_kubeconfig_that_cannot_be_reached_is_reported(readable: Path) -> None:
    (readable / "home" / ".kube").mkdir(mode=0o700, parents=True)
    paths = ClusterPaths(readable / "clusters" / "dev")
    with owner.acting_as(owner.Owner(uid=NOBODY, gid=NOBODY, home=readable)):
        path = target({"HOME": str(readable / "home")}, clusters=paths.root.parent)
        assert path == readable / "home" / ".kube" / "config"
        with pytest.raises(UsageError, match='there is no cluster "dev"'):
            use(paths, path)


@needs_root
def test_root_does_not_use_a_cluster_of_another_user(readable: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = ClusterPaths(readable / "clusters" / "dev")
    paths.root.mkdir(mode=0o700, parents=True)
    record.save(CLUSTER, paths.record)
    given_away(paths.root.parent, paths.root)
    assert main(["local", "use", "dev", "--state-dir", str(paths.root.parent), "--kubeconfig", str(readable / "config")]) == 2
    said = capsys.readouterr().err
    assert f'cluster "dev" belongs to user {NOBODY}, not to root' in said
    assert "local use dev` as this user, without sudo" in said
    assert [path.name for path in paths.root.iterdir()] == ["cluster.json"]
