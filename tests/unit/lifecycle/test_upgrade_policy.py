"""The policy of versions of `upgrade apply`, row by row (kubeadm v1.36.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import UsageError
from kubewright.base.versions import Version
from kubewright.lifecycle.upgrade.versions import Present, Verdict, judge, judge_target


def verdict(target, cluster="v1.36.0", **more: Any):
    flags = {name: more.pop(name) for name in ("experimental", "candidates") if name in more}
    present = Present(cluster=Version.parse(cluster), tool=Version.parse("v1.36.3"), **more)
    found = judge(Version.parse(target), present, **flags)
    return len(found.mandatory), len(found.skippable)


@pytest.mark.parametrize(
    ("target", "cluster", "counts"),
    [
        ("v1.36.3", "v1.36.0", (0, 0)),
        ("v1.36.3", "v1.35.4", (0, 0)),
        ("v1.36.1", "v1.36.3", (0, 0)),
        ("v1.36.3", "v1.34.9", (1, 0)),
        ("v1.34.9", "v1.35.0", (1, 1)),
        ("v1.35.0", "v1.36.0", (0, 1)),
        ("v1.35.0", "v1.37.0", (1, 1)),
        ("v1.36.4", "v1.36.0", (0, 1)),
        ("v1.37.0", "v1.36.0", (1, 0)),
        ("v1.38.0", "v1.36.0", (2, 0)),
        ("v1.37.0-alpha.1", "v1.36.0", (0, 2)),
        ("v1.38.0-alpha.1", "v1.36.0", (0, 3)),
        ("v1.36.3-rc.1", "v1.36.0", (0, 1)),
    ],
)
def test_versions_of_target_cluster_and_program_are_compared(target, cluster, counts):
    assert verdict(target, cluster) == counts


@pytest.mark.parametrize(
    ("target", "flags", "skippable"),
    [
        ("v1.36.3-rc.1", {"candidates": True}, 0),
        ("v1.36.3-rc.1", {"experimental": True}, 0),
        ("v1.36.3-beta.1", {"candidates": True}, 1),
        ("v1.36.3-beta.1", {"experimental": True}, 0),
    ],
)
def test_pre_releases_need_their_flag(target, flags, skippable):
    assert verdict(target, **flags) == (0, skippable)


def test_kubelets_may_be_three_minor_releases_older():
    assert verdict("v1.36.3", kubelets={"a": "v1.33.0", "b": "v1.36.3"}) == (0, 0)
    assert verdict("v1.36.3", kubelets={"a": "v1.32.9", "b": "v1.31.0", "c": "nonsense"}) == (0, 3)
    assert verdict("v1.36.3", kubelets=None) == (0, 1)


def test_without_the_version_of_the_cluster_nothing_else_is_judged():
    found = judge(Version.parse("v1.99.0"), Present(cluster=None, kubelets=None))
    assert (len(found.mandatory), len(found.skippable)) == (1, 0)


def test_force_passes_over_what_can_be_skipped_only():
    assert Verdict(skippable=("a", "b")).require("v1", force=True) == ("a", "b")
    for found, force, told in (
        (Verdict(skippable=("a",)), False, "a"),
        (Verdict(mandatory=("m",), skippable=("a",)), False, "m\na"),
        (Verdict(mandatory=("m",), skippable=("a",)), True, "m"),
    ):
        with pytest.raises(UsageError) as caught:
            found.require("v1", force=force)
        assert caught.value.detail == told
        assert ("--force" in caught.value.remedy) == (not found.mandatory)


VERSIONS = st.builds(
    Version, major=st.just(1), minor=st.integers(33, 39), patch=st.integers(0, 5), pre=st.sampled_from(["", "rc.1", "alpha.0"])
)


@given(VERSIONS, VERSIONS, VERSIONS)
def test_a_cluster_adds_reasons_and_takes_none_away(target, cluster, tool):
    alone = judge_target(target, tool=tool)
    found = judge(target, Present(cluster=cluster, tool=tool))
    assert set(alone.mandatory) <= set(found.mandatory)
    assert set(alone.skippable) <= set(found.skippable)
    assert len(found.mandatory) + len(found.skippable) <= len(alone.mandatory) + len(alone.skippable) + 1
