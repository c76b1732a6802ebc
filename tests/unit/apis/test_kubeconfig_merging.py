"""A context is added to a user's kubeconfig and removed again; everything else in it stays."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis.kubeconfig import documents, parse, require_usable
from kubewright.apis.kubeconfig.documents import Addition, Owner
from kubewright.base import yaml

OURS = Addition(
    name="kubewright-one",
    cluster={"server": "https://127.0.0.11:6443", "certificate-authority-data": "Y2E="},
    user={"client-certificate-data": "Y2VydA==", "client-key-data": "a2V5"},
    owner=Owner(id="1" * 32, directory="/state/one"),
)
_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff"), max_size=8)
_KEYS = _TEXTS.filter(lambda text: text != "<<")  # goyaml writes this key as it is, and reads a merge
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _TEXTS | st.sampled_from(["y", "12:30", "2020-01-01", "0x1f", "~", "1e3"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)
_UNKNOWN = st.dictionaries(_TEXTS.map(lambda text: f"x-{text}"), _VALUES, max_size=2)


def _entries(singular: str, fields: tuple[str, ...]) -> st.SearchStrategy[list[dict[str, Any]]]:
    bodies = st.tuples(st.dictionaries(st.sampled_from(fields), _TEXTS), _UNKNOWN).map(lambda two: {**two[0], **two[1]})
    names = st.one_of(_TEXTS, st.just(OURS.name))
    entry = st.tuples(names, bodies, _UNKNOWN).map(lambda row: {**row[2], "name": row[0], singular: row[1]})
    return st.lists(entry, max_size=3, unique_by=lambda one: one["name"])


@st.composite
def kubeconfigs(draw: st.DrawFn, *, foreign: bool = True) -> dict[str, Any]:
    """Create a kubeconfig, possibly with entries of our name."""
    lists = {
        "clusters": draw(_entries("cluster", ("server", "proxy-url"))),
        "contexts": draw(_entries("context", ("cluster", "user", "namespace"))),
        "users": draw(_entries("user", ("token", "username"))),
    }
    if not foreign:
        lists = {plural: [one for one in entries if one["name"] != OURS.name] for plural, entries in lists.items()}
    head = draw(st.sampled_from([{}, {"apiVersion": "v1", "kind": "Config"}]))
    current = draw(st.sampled_from([{}, {"current-context": ""}, {"current-context": "other"}, {"current-context": OURS.name}]))
    return {**head, **lists, **draw(_UNKNOWN), **(current if foreign or current.get("current-context") != OURS.name else {})}


@given(kubeconfigs())
def test_an_added_context_is_usable_and_adding_it_again_changes_nothing(config: dict[str, Any]) -> None:
    before = copy.deepcopy(config)
    found = documents.added(config, OURS)
    assert config == before
    chosen = require_usable(parse(found))
    assert (chosen.cluster.server, chosen.user.client_key_data) == ("https://127.0.0.11:6443", b"key")
    assert documents.owners(found, OURS.name) == [OURS.owner] * 3
    assert documents.added(found, OURS) == found


@given(kubeconfigs(foreign=False))
def test_adding_and_removing_a_context_restores_the_kubeconfig(config: dict[str, Any]) -> None:
    found = documents.taken_out(documents.added(config, OURS), OURS.owner.id)
    assert found == {"apiVersion": "v1", "kind": "Config", **config, "current-context": ""}
    assert documents.taken_out(found, OURS.owner.id) == found


@given(kubeconfigs())
def test_other_entries_and_unknown_fields_stay(config: dict[str, Any]) -> None:
    found = documents.added(config, OURS)
    for plural, singular in documents.LISTS.items():
        others = [one for one in config[plural] if one["name"] != OURS.name]
        assert [one for one in found[plural] if one["name"] != OURS.name] == others
        for before in [one for one in config[plural] if one["name"] == OURS.name]:
            [after] = [one for one in found[plural] if one["name"] == OURS.name]
            assert before.keys() <= after.keys()
            assert plural == "users" or before[singular].keys() <= after[singular].keys()
            assert plural == "users" or after[singular].get("namespace") == before[singular].get("namespace")
    assert {key: value for key, value in found.items() if key.startswith("x-")} == {
        key: value for key, value in config.items() if key.startswith("x-")
    }


@given(kubeconfigs())
def test_a_kubeconfig_is_written_and_read_back_unchanged(config: dict[str, Any]) -> None:
    found = documents.added(config, OURS)
    assert yaml.load_one(yaml.dump(found)).value == found


@given(kubeconfigs())
def test_only_entries_of_the_owner_are_removed(config: dict[str, Any]) -> None:
    assert documents.taken_out(config, OURS.owner.id) == config
    other = documents.added(config, Addition(name="other", cluster={}, user={}, owner=Owner(id="2" * 32, directory="/state/two")))
    assert documents.taken_out(other, OURS.owner.id) == other


def test_a_renamed_context_is_removed_and_one_that_only_uses_the_cluster_stays() -> None:
    config = documents.added({}, OURS)
    config["contexts"][0]["name"] = "mine"
    config["contexts"].append({"name": "theirs", "context": {"cluster": OURS.name, "user": OURS.name, "namespace": "dev"}})
    config["current-context"] = "theirs"
    found = documents.taken_out(config, OURS.owner.id)
    assert ([one["name"] for one in found["contexts"]], found["clusters"], found["users"]) == (["theirs"], [], [])
    assert found["current-context"] == "theirs"


def test_null_lists_and_empty_entries_are_accepted() -> None:
    config: dict[str, Any] = {"clusters": None, "contexts": [None, {"name": "a", "context": None}], "users": [{"user": {"extensions": 7}}]}
    found = documents.added(config, OURS)
    assert [len(found[plural]) for plural in documents.LISTS] == [1, 3, 2]
    assert documents.taken_out(found, OURS.owner.id)["contexts"] == config["contexts"]
