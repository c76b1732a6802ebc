"""What a local cluster is: its record, its places, its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import ConfigurationChanged, HostError, UsageError
from kubewright.base.records import asdict, replace
from kubewright.local import record
from kubewright.local.places import Places, places, state_directory
from kubewright.local.record import ClusterRecord, Machine

MACHINE = Machine(name="one-control-plane", address="127.0.0.11")
CLUSTER = ClusterRecord(name="one", machines=(MACHINE,), nodes=2, kubernetes_version="v1.36.3", config="a: 1\n", made=True)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    assert record.load(path) is None
    record.save(CLUSTER, path)
    assert record.load(path) == CLUSTER
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["", "{", "7", "[]", "null", "{}", '{"machines": 7}', '{"machines": [{}]}', '{"machines": [], "colour": 1}', "\x00"]
)
def test_a_record_that_is_none_is_named_with_the_way_out(tmp_path: Path, text: str) -> None:
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
    with pytest.raises(ConfigurationChanged, match=r"'one' runs Kubernetes v1\.36\.3, not v1\.35\.4"):
        record.require_same(CLUSTER, kubernetes_version="v1.35.4", config=None)


def test_a_token_in_a_configuration_does_not_show_in_the_difference() -> None:
    secret = replace(CLUSTER, config="bootstrapTokens:\n- token: abcdef.0123456789abcdef\n")
    with pytest.raises(ConfigurationChanged) as caught:
        record.require_same(secret, kubernetes_version=None, config="bootstrapTokens:\n- token: abcdef.fedcba9876543210\n")
    assert "0123456789abcdef" not in caught.value.detail
    assert "fedcba9876543210" not in caught.value.detail


def test_workers_are_named_after_their_cluster() -> None:
    assert CLUSTER.workers == ("one-worker-1", "one-worker-2")
    assert CLUSTER.scaled(0).workers == ()
    names = {"one-worker-1": True, "one-worker-77": True, "one-control-plane": False, "two-worker-1": False, "one-worker-": False}
    assert {name: CLUSTER.is_worker(name) for name in names} == names


@pytest.mark.parametrize("name", ["default", "a", "0", "a-b-9", "x" * 40])
def test_names_that_hosts_may_have_are_taken(name: str, tmp_path: Path) -> None:
    assert places(name, state_dir=str(tmp_path)) == Places(tmp_path / name)


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a/b", "..", "a b", "a\n", "ä", "x" * 41])
def test_names_that_they_may_not_have_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        places(name)
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
def test_clusters_lie_below_the_state_home(environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(state_directory()) == expected
    assert str(state_directory("/given")) == "/given"
    assert str(state_directory("here")) == str(Path.cwd() / "here")
