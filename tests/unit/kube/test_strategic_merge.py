"""Strategic merge patches: each directive, and the order of merged lists. tests/compat/test_patches_comparison.py compares them with Go's."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.kube import strategic
from kubewright.kube.patches import PatchError, apply_json, apply_merge


def pod(*names: str):
    return {"spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in names]}}


def names(body):
    return [one["name"] for one in body["spec"]["containers"]]


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ([{"name": "b", "image": "x"}], "abc"),
        ([{"name": "z"}], "zabc"),
        ([{"name": "c"}, {"name": "a"}], "bca"),
        ([{"name": "b", "$patch": "delete"}], "ac"),
        ([{"$patch": "replace"}, {"name": "q"}], "q"),
        ([{"$patch": "replace"}], ""),
        ([], "abc"),
    ],
)
def test_containers_are_merged_by_name(patch, result):
    assert names(strategic.merge(pod("a", "b", "c"), {"spec": {"containers": patch}}, type="Pod")) == list(result)


def test_an_order_applies_to_existing_elements():
    patch = {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}}
    assert names(strategic.merge(pod("a", "b", "c"), patch, type="Pod")) == ["b", "c", "a"]


def test_scalars_are_merged_or_removed():
    body = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic.merge(body, {"metadata": {"finalizers": ["c", "a"]}}, type="Pod")["metadata"]["finalizers"] == ["c", "a", "b"]
    gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic.merge(body, gone, type="Pod") == {"metadata": {"finalizers": ["b"]}}


def test_lists_of_an_open_type_are_replaced():
    assert strategic.merge({"clusterDNS": ["a"], "x": 1}, {"clusterDNS": ["b"], "x": None}, type=strategic.OPEN) == {"clusterDNS": ["b"]}


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"containers": [{"image": "no name"}]}},
        {"spec": {"containers": ["text"]}},
        {"spec": {"$patch": "remove"}},
        {"spec": {"containers": [{"name": "a", "$patch": "merge"}]}},
        {"spec": {"$retainKeys": ["x"], "y": 1}},
        {"spec": {"$retainKeys": "x"}},
        {"spec": {"$setElementOrder/containers": "x"}},
        {"spec": {"$setElementOrder/containers": [{"name": "c"}], "containers": [{"name": "a"}]}},
        {"spec": {"$deleteFromPrimitiveList/containers": "x"}},
    ],
)
def test_inapplicable_patches_are_reported(patch):
    with pytest.raises(PatchError):
        strategic.merge(pod("a", "b"), patch, type="Pod")


def test_a_field_that_the_type_does_not_have_cannot_be_merged():
    with pytest.raises(PatchError, match='PodSpec has no field "contianers"'):
        strategic.merge({"spec": {"contianers": [1]}}, {"spec": {"contianers": [2]}}, type="Pod")


NAMES = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(NAMES, NAMES)
def test_a_merged_list_has_both_sides_once_and_modifies_no_argument(before, patched):
    body, patch = pod(*before), {"spec": {"containers": [{"name": name, "image": "new"} for name in patched]}}
    kept = copy.deepcopy((body, patch))
    merged = strategic.merge(body, patch, type="Pod")
    assert sorted(names(merged)) == sorted({*before, *patched})
    assert {one["name"]: one["image"] for one in merged["spec"]["containers"]} == {
        name: "new" if name in patched else f"{name}:1" for name in names(merged)
    }
    assert [name for name in names(merged) if name in patched] == patched
    assert [name for name in names(merged) if name not in patched] == [name for name in before if name not in patched]
    assert (body, patch) == kept


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from("abc"), JSON, max_size=3), st.dictionaries(st.sampled_from("abc"), JSON, max_size=3))
def test_for_an_open_type_a_patch_is_a_merge_patch_without_nulls(body, patch):
    def clean(value, *, lists=True):
        if isinstance(value, dict):
            return {key: clean(part) for key, part in value.items() if part is not None}
        return [clean(part) for part in value] if isinstance(value, list) and lists else value

    assert clean(strategic.merge(body, patch, type=strategic.OPEN)) == clean(apply_merge(body, patch))


@pytest.mark.parametrize(
    ("patch", "result"),
    [
        ([{"op": "replace", "path": "/b", "value": 1}], {"a": [1, 2, 3], "b": 1}),
        ([{"op": "remove", "path": "/a/-1"}], {"a": [1, 2]}),
        ([{"op": "add", "path": "/a/-1", "value": 4}], {"a": [1, 2, 3, 4]}),
        ([{"op": "test", "path": "/b", "value": None}], {"a": [1, 2, 3]}),
    ],
)
def test_json_patches_have_the_effect_that_they_have_in_kubernetes(patch, result):
    assert apply_json({"a": [1, 2, 3]}, patch) == result


@pytest.mark.parametrize("patch", [{}, "x", [1], [{}], [{"op": "add"}], [{"op": "put", "path": "/a"}], [{"op": "remove", "path": "/a/7"}]])
def test_an_invalid_json_patch_is_refused(patch):
    with pytest.raises(PatchError):
        apply_json({"a": [1]}, patch)
