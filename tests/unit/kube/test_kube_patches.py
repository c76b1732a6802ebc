"""Patch bodies: known answers, and that a patch applied to the original gives the new object."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.kube import core
from kubewright.kube.patches import (
    NODE_LISTS,
    PatchError,
    apply_json,
    apply_merge,
    apply_strategic,
    json_diff,
    node_status_patch,
    strategic_diff,
)

CONDITIONS = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")


def condition(kind: str, heartbeat: str = "2026-01-02T03:04:05Z", **more: str) -> dict:
    return {"type": kind, "status": "False", "lastHeartbeatTime": heartbeat, "reason": "r", "message": "m", **more}


def node(**status: object) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {"a": "1"}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "conditions": [{"type": "Foreign", "status": "True", "x": 1}, *map(condition, CONDITIONS)],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "n1"}],
            "capacity": {"cpu": "4", "hugepages-2Mi": "0"},
            "nodeInfo": {"kernelVersion": "6.1", "bootID": "b"},
            "images": [{"names": ["x"]}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            **status,
        },
    }


def test_an_unchanged_status_patches_heartbeats_only() -> None:
    later = node()
    later["status"]["conditions"] = [
        later["status"]["conditions"][0],
        *(condition(kind, "2026-01-02T03:04:15Z") for kind in CONDITIONS),
    ]
    assert core.encode(node_status_patch(node(), later)) == (
        b'{"status":{"conditions":['
        b'{"lastHeartbeatTime":"2026-01-02T03:04:15Z","type":"MemoryPressure"},'
        b'{"lastHeartbeatTime":"2026-01-02T03:04:15Z","type":"DiskPressure"},'
        b'{"lastHeartbeatTime":"2026-01-02T03:04:15Z","type":"PIDPressure"},'
        b'{"lastHeartbeatTime":"2026-01-02T03:04:15Z","type":"Ready"}]}}'
    )


def test_a_vanished_key_is_null_and_spec_never_appears() -> None:
    new = node(capacity={"cpu": "8"}, nodeInfo={"kernelVersion": "6.2", "bootID": "b"})
    new["spec"] = {"podCIDR": "changed", "unschedulable": True}
    assert node_status_patch(node(), new) == {
        "status": {"capacity": {"cpu": "8", "hugepages-2Mi": None}, "nodeInfo": {"kernelVersion": "6.2"}}
    }


def test_addresses_are_sent_whole_with_the_replace_element() -> None:
    addresses = [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}]
    patch = node_status_patch(node(), node(addresses=addresses))
    assert patch == {"status": {"addresses": [*addresses, {"$patch": "replace"}]}}
    assert apply_strategic(node(), patch, lists=NODE_LISTS)["status"]["addresses"] == addresses
    first = node_status_patch(node(addresses=[]), node(addresses=addresses))
    assert first == {"status": {"addresses": addresses}}


def test_lists_without_a_key_are_replaced_as_a_whole() -> None:
    patch = node_status_patch(node(), node(images=[{"names": ["x"]}, {"names": ["y"]}]))
    assert patch == {"status": {"images": [{"names": ["x"]}, {"names": ["y"]}]}}


def test_conditions_of_others_are_kept() -> None:
    new = node()
    new["status"]["conditions"] = [new["status"]["conditions"][0], *map(condition, CONDITIONS[:-1]), condition("Ready", status="True")]
    patch = node_status_patch(node(), new)
    assert patch == {"status": {"conditions": [{"status": "True", "type": "Ready"}]}}
    stored = node()
    stored["status"]["conditions"].append({"type": "Newer", "status": "True"})
    applied = apply_strategic(stored, patch, lists=NODE_LISTS)
    assert [found["type"] for found in applied["status"]["conditions"]] == ["Foreign", *CONDITIONS, "Newer"]


def test_metadata_may_differ() -> None:
    new = node()
    new["metadata"] = {"name": "n1", "labels": {"b": "2"}}
    assert node_status_patch(node(), new) == {"metadata": {"labels": {"a": None, "b": "2"}}}


def test_nothing_changed_is_an_empty_patch() -> None:
    assert node_status_patch(node(), node()) == {}
    reordered = node()
    reordered["status"]["conditions"].reverse()
    assert node_status_patch(node(), reordered) == {}


def test_a_vanished_list_element_is_marked_deleted() -> None:
    new = node()
    gone = new["status"]["conditions"].pop(0)
    patch = node_status_patch(node(), new)
    assert patch == {"status": {"conditions": [{"$patch": "delete", "type": gone["type"]}]}}
    assert apply_strategic(node(), patch, lists=NODE_LISTS) == new


VALUES = st.recursive(
    st.integers(0, 3) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_merge_patch_turns_one_object_into_the_other(original: dict, modified: dict) -> None:
    before = copy.deepcopy(original)
    assert apply_merge(original, strategic_diff(original, modified, lists={})) == modified
    assert original == before
    assert strategic_diff(modified, copy.deepcopy(modified), lists={}) == {}


CONDITION_LISTS = st.dictionaries(
    st.sampled_from("PQRS"), st.dictionaries(st.sampled_from(["status", "reason"]), st.text("ab"), max_size=2)
).map(lambda found: [{"type": kind, **fields} for kind, fields in found.items()])


@given(CONDITION_LISTS, CONDITION_LISTS)
def test_a_strategic_patch_turns_one_list_into_the_other(before: list, after: list) -> None:
    original, modified = {"status": {"conditions": before}}, {"status": {"conditions": after}}
    patch = strategic_diff(original, modified, lists=NODE_LISTS)
    found = apply_strategic(original, patch, lists=NODE_LISTS)["status"]["conditions"]
    assert sorted(found, key=lambda one: one["type"]) == sorted(after, key=lambda one: one["type"])


def test_a_merge_patch_follows_the_rfc() -> None:
    rows = [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, "bar", "bar"),
    ]
    assert [apply_merge(target, patch) for target, patch, _ in rows] == [result for _, _, result in rows]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "~/", "é"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c/d", "e~f"]), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(["x", "y", "z"]), VALUES, max_size=3)


@given(OBJECTS, OBJECTS)
def test_a_json_patch_turns_one_object_into_the_other(before, after):
    original = copy.deepcopy(before)
    assert apply_json(before, json_diff(before, after)) == after
    assert before == original
    assert json_diff(after, after) == []


def test_a_json_patch_changes_only_what_it_has_seen():
    before, after = {"command": ["a", "--b", "--c=1", "--d"]}, {"command": ["a", "--b", "--c=2"]}
    patch = json_diff(before, after)
    assert [one["op"] for one in patch] == ["test", "remove", "test", "replace"]
    with pytest.raises(PatchError):
        apply_json({"command": ["a", "--b", "--c=1", "--other"]}, patch)


def test_added_arguments_are_added_at_the_end():
    patch = json_diff({"command": ["a", "--b"]}, {"command": ["a", "--b", "--c", "--d"]})
    assert apply_json({"command": ["a", "--b", "--new"]}, patch) == {"command": ["a", "--b", "--new", "--c", "--d"]}
