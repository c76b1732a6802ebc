"""Registries and proxies of whole machines: what containerd gets. Pure parts; tests/machines has a real registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.change import Action
from kubewright.base.clock import FakeClock
from kubewright.base.errors import UsageError
from kubewright.base.events import RecordingReporter, SilentReporter, Warned
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.binaries import BinarySources
from kubewright.local import mounts, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import members, registries, up
from kubewright.machines.machine import Bind
from kubewright.machines.network import Network
from kubewright.machines.parts import Parts

NETWORK = Network(bridge="kwab12", ranges=("172.31.7.0/24",), services=("10.96.0.0/12",))
CLUSTER = ClusterRecord(
    name="dev", id="0" * 32, machines=(LocalMachineRecord(name="dev-control-plane", address="172.31.7.11"),), kind=record.MACHINES
)
INSIDE = "localhost,127.0.0.0/8,.svc,.cluster.local,.kubewright.internal,10.244.0.0/16,10.96.0.0/12,172.31.7.0/24"


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, {}),
        ({"NO_PROXY": "example.com"}, {}),
        ({"HTTP_PROXY": ""}, {}),
        ({"https_proxy": "proxy.example.com:3128"}, {"HTTPS_PROXY": "http://proxy.example.com:3128", "NO_PROXY": INSIDE}),
        (
            {"HTTP_PROXY": "http://u:p%25@10.0.0.1:80", "http_proxy": "http://other:1", "no_proxy": " corp, .svc,"},
            {"HTTP_PROXY": "http://u:p%25@10.0.0.1:80", "NO_PROXY": f"corp,.svc,{INSIDE.replace('.svc,', '')}"},
        ),
    ],
)
def test_the_proxies_of_the_host_are_completed_with_addresses_of_the_cluster(environment: dict[str, str], found: dict[str, str]) -> None:
    assert registries.proxy_variables(environment, NETWORK) == found


@given(st.dictionaries(st.sampled_from(["HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"]), st.text(max_size=30)))
def test_any_other_text_is_refused_without_showing_it(environment: dict[str, str]) -> None:
    try:
        registries.proxy_variables(environment, NETWORK)
    except UsageError as error:
        assert "is not the URL of an http or https proxy" in error.what


def test_proxies_are_a_private_file_that_an_environment_without_proxies_keeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    paths, reporter = ClusterPaths(tmp_path / "dev"), RecordingReporter()
    registries.write_proxies(paths, NETWORK, {}, reporter=reporter)
    assert registries.shared(paths) == {}
    registries.write_proxies(paths, NETWORK, {"HTTP_PROXY": "http://u:p%40w@127.0.0.1:3128"}, reporter=reporter)
    (file,) = registries.shared(paths).values()
    assert file.read_text().splitlines()[:2] == ["[Service]", 'Environment="HTTP_PROXY=http://u:p%%40w@127.0.0.1:3128"']
    assert file.stat().st_mode & 0o777 == 0o600
    assert [event.text for event in reporter.events if isinstance(event, Warned)] == [
        "HTTP_PROXY is a loopback address of this host, which machines cannot reach"
    ]
    before = file.read_text()
    registries.write_proxies(paths, NETWORK, {}, reporter=reporter)
    assert file.read_text() == before


class FakeMachine:
    """A machine that runs, with what is mounted in it."""

    def __init__(self, mounted: dict[str, str]) -> None:
        self._mounted = mounted

    def bind(self, one: Bind) -> bool:
        added = one.target not in self._mounted
        self._mounted.setdefault(one.target, str(one.source))
        return added

    def unbind(self, target: str) -> bool:
        return self._mounted.pop(target, None) is not None


def test_machines_see_the_directory_of_the_user(tmp_path: Path) -> None:
    cluster = replace(CLUSTER, registry_config=str(tmp_path / "certs.d"))
    with pytest.raises(UsageError, match="is not a directory"):
        registries.require_directory(cluster)
    (tmp_path / "certs.d").mkdir()
    registries.require_directory(cluster)
    registries.require_directory(CLUSTER)
    assert members.binds(cluster) == (Bind(source=tmp_path / "certs.d", target="/etc/containerd/certs.d", read_only=True),)
    assert members.binds(CLUSTER) == ()


def test_another_directory_replaces_the_former_one_and_none_removes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = {"/etc/containerd/certs.d": "/etc/old"}
    monkeypatch.setattr(members, "machine_of", lambda *_: FakeMachine(mounted))
    former = replace(CLUSTER, registry_config="/etc/old")
    gone, made = Action.DELETE, Action.CREATE
    for directory, actions, now in ((None, [], "/etc/old"), ("/etc/new", [gone, made], "/etc/new"), ("", [gone], None)):
        wanted = members.with_binds(former, UpOptions(registry_config=directory))
        changes = members.ensure_mounts(ClusterPaths(Path("/dev")), wanted, ["dev-control-plane"], former=former)
        assert [change.action for change in changes] == actions
        assert mounted.get("/etc/containerd/certs.d") == now
        former = wanted


def test_what_a_killed_up_has_mounted_is_unmounted_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounted = {"/mnt/kept": "/srv/kept", "/mnt/moved": "/srv/old"}
    monkeypatch.setattr(members, "machine_of", lambda *_: FakeMachine(mounted))
    first = replace(CLUSTER, mounts=("/srv/kept:/mnt/kept", "/srv/old:/mnt/moved"))

    def killed(former: ClusterRecord, *given: str, registry: str | None = None) -> ClusterRecord:
        """Mount what an `up` wants, and return the record that it leaves when it is killed then."""
        wanted = members.with_binds(former, UpOptions(mounts=mounts.parse_all(given), registry_config=registry))
        record.save(members.while_changing(wanted, former), tmp_path / "cluster.json")
        members.ensure_mounts(ClusterPaths(Path("/dev")), wanted, ["dev-control-plane"], former=former)
        found = record.load(tmp_path / "cluster.json")
        assert found is not None
        return found

    left = killed(first, "/srv/kept:/mnt/kept", "/srv/new:/mnt/moved")
    left = killed(left, "/srv/kept:/mnt/kept", "/srv/more:/mnt/more", registry="/etc/new")
    assert mounted.keys() == {"/mnt/kept", "/mnt/more", "/etc/containerd/certs.d"}
    assert (left.mounts, left.registry_config) == (first.mounts, "")
    changes = members.ensure_mounts(ClusterPaths(Path("/dev")), left, ["dev-control-plane"], former=left)
    assert mounted == {"/mnt/kept": "/srv/kept", "/mnt/moved": "/srv/old"}
    assert [(change.target.split()[1], change.action) for change in changes] == [
        ("/etc/containerd/certs.d", Action.DELETE),
        ("/mnt/more", Action.DELETE),
        ("/mnt/moved", Action.CREATE),
    ]


def test_what_was_made_before_a_proxy_is_refused_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, done = ClusterPaths(tmp_path / "dev"), list[str]()
    network = Network(bridge="kw01234567", ranges=("172.30.0.0/24",))
    monkeypatch.setattr(up.preflight, "require", lambda _: None)
    monkeypatch.setattr(up, "ensure_parts", lambda **_: Parts(base=tmp_path, kit=tmp_path, store=tmp_path))
    monkeypatch.setattr(up, "disks", lambda: tmp_path / "kubewright" / "machines")

    def claim_network(*_: object) -> Network:
        done.append("claimed")
        return network

    monkeypatch.setattr(members, "claim_network", claim_network)
    monkeypatch.setattr(members, "directory", lambda _: tmp_path / "disks")
    monkeypatch.setattr(up, "sweep", lambda _: done.append("swept"))
    monkeypatch.setenv("HTTPS_PROXY", "socks5://192.0.2.1:1080")
    sources = BinarySources(cache=tmp_path / "cache")
    with pytest.raises(UsageError, match="HTTPS_PROXY"):
        up.up(paths, UpOptions(machines=True), sources=sources, reporter=SilentReporter(), clock=FakeClock(), random=SystemRandom())
    assert done == ["claimed", "swept"]


@pytest.mark.parametrize("is_complete", [False, True])
def test_an_interruption_removes_machines_only_until_their_cluster_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_complete: bool
) -> None:
    paths, done = ClusterPaths(tmp_path), list[str]()
    monkeypatch.setattr(up, "sweep", lambda _: done.append("swept"))
    with pytest.raises(KeyboardInterrupt), up._undone_on_failure(paths):
        record.save(replace(CLUSTER, made=is_complete), paths.record)
        raise KeyboardInterrupt
    assert done == ([] if is_complete else ["swept"])
