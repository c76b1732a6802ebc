"""The policy of versions of `upgrade apply`, row by row (kubeadm v1.36.3)."""

from __future__ import annotations

import pytest

from kubewright.base.errors import UsageError
from kubewright.base.versions import Version
from kubewright.lifecycle.upgrade.planning.versions import API_SERVER, ClusterVersions, Verdict, judge, judge_target


def verdict(target, **flags: bool):
    found = judge_target(Version.parse(target), tool=Version.parse("v1.36.3"), **flags)
    return len(found.mandatory), len(found.skippable)


@pytest.mark.parametrize(
    ("target", "counts"),
    [
        ("v1.36.3", (0, 0)),
        ("v1.36.1", (0, 0)),
        ("v1.34.9", (1, 1)),
        ("v1.35.0", (0, 1)),
        ("v1.36.4", (0, 1)),
        ("v1.37.0", (1, 0)),
        ("v1.37.0-alpha.1", (0, 2)),
        ("v1.36.3-rc.1", (0, 1)),
    ],
)
def test_versions_of_target_and_program_are_compared(target, counts):
    assert verdict(target) == counts


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


def test_force_skips_only_skippable_errors():
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


@pytest.mark.parametrize(
    ("target", "cluster", "kubelet", "mandatory", "skippable"),
    [
        ("v1.36.3", "v1.36.2", "v1.36.2", 0, 0),
        ("v1.36.3", "v1.35.9", "v1.33.0", 0, 0),
        ("v1.35.9", "v1.36.2", "v1.35.0", 0, 0),
        ("v1.36.3", "v1.34.9", "v1.34.0", 1, 0),
        ("v1.36.0-rc.1", "v1.34.9", "v1.34.0", 0, 1),
        ("v1.34.9", "v1.36.2", "v1.34.0", 1, 0),
        ("v1.36.3", "v1.36.2", "v1.32.9", 0, 1),
        ("v1.36.3", "v1.36.2", "unknown", 0, 1),
    ],
)
def test_a_version_is_compared_with_that_of_the_cluster(target, cluster, kubelet, mandatory, skippable):
    observed = ClusterVersions(components={API_SERVER: {cluster: ("a", "b")}}, kubelets={kubelet: ("b", "a")})
    found = judge(Version.parse(target), observed)
    assert (len(found.mandatory), len(found.skippable)) == (mandatory, skippable)
    assert all(("a, b" in reason) == (kubelet in {"v1.32.9", "unknown"}) for reason in found.skippable)
