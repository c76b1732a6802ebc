"""The table of the permissions of kube-controller-manager and kube-scheduler."""

from __future__ import annotations

from collections import Counter

from kubewright.base.level import KUBERNETES
from kubewright.manifests.rbac import BOOTSTRAP_VERSION, bootstrap_policy


def test_every_object_is_complete_and_of_this_release() -> None:
    every = bootstrap_policy()
    assert BOOTSTRAP_VERSION == KUBERNETES
    assert Counter(one["kind"] for one in every) == {"ClusterRole": 3, "ClusterRoleBinding": 3, "Role": 3, "RoleBinding": 3}
    for one in every:
        assert one["apiVersion"] == "rbac.authorization.k8s.io/v1"
        assert one["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
        assert one["metadata"]["annotations"] == {"rbac.authorization.kubernetes.io/autoupdate": "true"}
        assert ("namespace" in one["metadata"]) == (one["kind"] in {"Role", "RoleBinding"})


def test_every_role_is_bound_only_to_components() -> None:
    every = bootstrap_policy()
    bindings = [one for one in every if one["kind"].endswith("Binding")]
    roles = {(one["kind"], one["metadata"]["name"]) for one in every} - {(one["kind"], one["metadata"]["name"]) for one in bindings}
    assert {(one["roleRef"]["kind"], one["roleRef"]["name"]) for one in bindings} == roles
    subjects = [subject for one in bindings for subject in one["subjects"]]
    assert {(one["kind"], one["name"]) for one in subjects} == {
        ("User", "system:kube-controller-manager"),
        ("User", "system:kube-scheduler"),
        ("ServiceAccount", "kube-controller-manager"),
        ("ServiceAccount", "kube-scheduler"),
        ("ServiceAccount", "leader-election-controller"),
    }
