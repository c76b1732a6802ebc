"""The record of a local cluster, its directories, and its name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import ConfigurationChanged, HostError, UsageError
from kubewright.base.records import asdict, replace
from kubewright.controllers.options import CONTROLLERS, SERVING_APPROVING
from kubewright.local import flags, record
from kubewright.local.paths import ClusterPaths, cluster_paths, state_directory
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.manifests.controllers import NAME

MACHINE = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
CLUSTER = ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,), nodes=2, kubernetes_version="v1.36.3", config="a: 1\n", made=True)


def test_a_record_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    assert record.load(path) is None
    record.save(CLUSTER, path)
    assert record.load(path) == CLUSTER
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[]", "null", "{}", '{"machines": 7}', '{"machines": [{}]}', '{"machines": [], "colour": 1}', "\x00"]
)
def test_an_invalid_record_is_reported_with_a_hint(tmp_path: Path, text: str) -> None:
    path = tmp_path / "one" / "cluster.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(HostError) as caught:
        record.load(path)
    assert str(path) in caught.value.what
    assert "kubewright down --name one" in caught.value.remedy


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*asdict(CLUSTER), *asdict(MACHINE), "x"]), inner),
)


@given(_JSON | st.dictionaries(st.sampled_from(list(asdict(CLUSTER))), _JSON).map(lambda found: {**asdict(CLUSTER), **found}))
def test_any_json_is_a_record_or_refused(tmp_path_factory: pytest.TempPathFactory, found: object) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(found))
    try:
        loaded = record.load(path)
    except HostError as error:
        assert error.remedy
    else:
        assert loaded is not None
        assert [machine.address for machine in loaded.machines]
        assert loaded.control_plane.addresses.ports.api_server
        assert all(name.startswith(loaded.name) for name in loaded.workers[:3])


@pytest.mark.parametrize(
    ("config", "same"),
    [
        (None, True),
        ("a: 1\n", True),
        ("# a comment\na:   1\n", True),
        ("a: 2\n", False),
        ("", False),
        ("a: [", False),
        ("a: 1\n---\nb: 1\n", False),
    ],
)
def test_a_configuration_is_compared_by_meaning(config: str | None, same: bool) -> None:
    if same:
        record.require_same(CLUSTER, kubernetes_version=None, config=config)
        return
    with pytest.raises(ConfigurationChanged) as caught:
        record.require_same(CLUSTER, kubernetes_version=None, config=config)
    assert caught.value.detail.startswith("---")
    assert "kubewright down --name one" in caught.value.remedy


def test_another_version_is_refused_by_name() -> None:
    record.require_same(CLUSTER, kubernetes_version="v1.36.3", config=None)
    with pytest.raises(ConfigurationChanged, match=r"^cluster \"one\" runs Kubernetes v1\.36\.3, not v1\.35\.4"):
        record.require_same(CLUSTER, kubernetes_version="v1.35.4", config=None)


def test_a_token_in_a_configuration_is_not_shown_in_the_difference() -> None:
    secret = replace(CLUSTER, config="bootstrapTokens:\n- token: abcdef.0123456789abcdef\n")
    with pytest.raises(ConfigurationChanged) as caught:
        record.require_same(secret, kubernetes_version=None, config="bootstrapTokens:\n- token: abcdef.fedcba9876543210\n")
    assert "0123456789abcdef" not in caught.value.detail
    assert "fedcba9876543210" not in caught.value.detail


THREE = replace(
    CLUSTER,
    machines=(
        MACHINE,
        LocalMachineRecord(name="one-control-plane-2", address="127.0.0.12"),
        LocalMachineRecord(name="one-control-plane-3", address="127.0.0.13"),
    ),
)


def test_control_planes_are_numbered_from_two_and_the_first_one_stays() -> None:
    assert record.first_name("one") == CLUSTER.control_plane.name == "one-control-plane"
    assert CLUSTER.free_name() == "one-control-plane-2"
    assert THREE.free_name() == "one-control-plane-4"
    assert [machine.name for machine in THREE.further] == ["one-control-plane-2", "one-control-plane-3"]
    assert (CLUSTER.alone, CLUSTER.total) == (True, 3)
    assert (THREE.alone, THREE.total) == (False, 5)
    assert THREE.machine("one-control-plane-3") == THREE.machines[2]
    assert THREE.machine("one-worker-1") is None


@pytest.mark.parametrize(("wanted", "leaving"), [(1, ["3", "2"]), (2, ["3"]), (3, []), (7, [])])
def test_the_last_control_planes_leave_first(wanted: int, leaving: list[str]) -> None:
    found = THREE.shrunk(wanted)
    assert [machine.name.rpartition("-")[2] for machine in found.leaving] == leaving
    assert found.total == 1 + min(wanted, 3) - 1 + THREE.nodes
    assert not found.alone, "those that leave are still there"
    settled = found.settled()
    assert len(settled.machines) == min(wanted, 3)
    assert settled.alone == (wanted == 1)
    assert settled.leaving == ()


def test_a_leaving_machine_keeps_its_name_until_it_is_removed(tmp_path: Path) -> None:
    found = THREE.shrunk(2)
    assert found.free_name() == "one-control-plane-4"
    assert found.shrunk(3) == found, "it is not called back"
    record.save(found, tmp_path / "cluster.json")
    assert record.load(tmp_path / "cluster.json") == found
    assert found.settled().free_name() == "one-control-plane-3"


def test_members_of_etcd_are_known_by_their_addresses() -> None:
    assert THREE.machines[1].etcd_client_url == "https://127.0.0.12:2379"
    assert THREE.machines[1].etcd_peer_url == "https://127.0.0.12:2380"


def test_a_record_of_an_earlier_format_is_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "one" / "cluster.json"
    path.parent.mkdir()
    old = asdict(CLUSTER) | {"format": 1}
    for machine in old["machines"]:
        del machine["leaving"]
    path.write_text(json.dumps(old))
    with pytest.raises(HostError, match="does not describe a cluster of this version") as caught:
        record.load(path)
    assert "format 1" in caught.value.detail
    assert "kubewright down --name one" in caught.value.remedy


@pytest.mark.parametrize(
    "machines",
    [
        [],
        [{**asdict(MACHINE), "leaving": True}],
        [asdict(MACHINE), asdict(MACHINE)],
        [asdict(MACHINE), {**asdict(MACHINE), "name": "x", "role": "worker"}],
    ],
)
def test_impossible_sets_of_machines_are_refused(tmp_path: Path, machines: list[object]) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(asdict(CLUSTER) | {"machines": machines}))
    with pytest.raises(HostError, match="does not describe"):
        record.load(path)


def test_flags_for_a_single_control_plane_are_left_out_if_there_are_several() -> None:
    alone, several = (
        {
            (row.component, name): value
            for row in flags.CHANGED_FLAGS
            for name, value in flags.overrides(row.component, MACHINE.addresses, alone=is_alone).items()
        }
        for is_alone in (True, False)
    )
    assert {name for _, name in alone.keys() - several.keys()} == {"election-timeout", "heartbeat-interval", "leader-elect"}
    assert several.keys() - alone.keys() == {("etcd", "strict-reconfig-check")}
    assert len(alone) == len(flags.rows(alone=True)) == len(flags.CHANGED_FLAGS) - 2
    assert len(several) == len(flags.rows(alone=False)) == len(flags.CHANGED_FLAGS) - 5


def test_kube_controller_manager_does_not_run_controllers_that_we_run() -> None:
    ours = flags.overrides("kube-controller-manager", MACHINE.addresses, alone=True, own_controllers=True)
    stock = flags.overrides("kube-controller-manager", MACHINE.addresses, alone=True)
    assert ours.items() - stock.items() == {("controllers", "*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner")}
    assert {f"-{row.alias}" for row in CONTROLLERS if row.name != SERVING_APPROVING} == set(ours["controllers"].split(",")[1:])
    assert flags.START_AFTER[NAME] == ("kube-apiserver",)


def test_controllers_cannot_be_changed_later() -> None:
    assert not CLUSTER.own_controllers
    record.require_same(CLUSTER, kubernetes_version=None, config=None, controllers="kube-controller-manager")
    with pytest.raises(ConfigurationChanged, match="has the controllers of kube-controller-manager, not kubewright"):
        record.require_same(CLUSTER, kubernetes_version=None, config=None, controllers="kubewright")


def test_workers_are_named_after_their_cluster() -> None:
    assert CLUSTER.workers == ("one-worker-1", "one-worker-2")
    assert CLUSTER.scaled(0).workers == ()
    names = {"one-worker-1": True, "one-worker-77": True, "one-control-plane": False, "two-worker-1": False, "one-worker-": False}
    assert {name: CLUSTER.is_worker(name) for name in names} == names


@pytest.mark.parametrize("name", ["default", "a", "0", "a-b-9", "x" * 40])
def test_valid_host_names_are_accepted(name: str, tmp_path: Path) -> None:
    assert cluster_paths(name, state_dir=str(tmp_path)) == ClusterPaths(tmp_path / name)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a/b", "..", "a b", "a\n", "ä", "x" * 41])
def test_invalid_host_names_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        cluster_paths(name)
    assert "up to 40 lower-case letters" in caught.value.remedy


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/home/me"}, "/home/me/.local/state/kubewright/clusters"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "/state"}, "/state/kubewright/clusters"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": "relative"}, "/home/me/.local/state/kubewright/clusters"),
        ({"HOME": "/home/me", "XDG_STATE_HOME": ""}, "/home/me/.local/state/kubewright/clusters"),
    ],
)
def test_clusters_are_stored_below_the_state_home(environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(state_directory()) == expected
    assert str(state_directory("/given")) == "/given"
    assert str(state_directory("here")) == str(Path.cwd() / "here")
    assert str(state_directory("~no-such-user/x")) == str(Path.cwd() / "~no-such-user/x")


def test_a_user_without_an_account_or_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in containers with any user id."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4294967294)
    with pytest.raises(UsageError, match="no home directory is known") as caught:
        state_directory()
    assert caught.value.remedy == "set HOME or XDG_STATE_HOME, or pass --state-dir"
