"""Our controllers beside kube-controller-manager: which rights their user has, and what their static pod runs."""

from __future__ import annotations

from kubewright.manifests import controllers

SIGNERS = ["kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"]


def test_the_rights_are_exactly_these():
    found = [
        (role["metadata"].get("namespace", ""), rule["apiGroups"][0], rule["resources"], rule.get("resourceNames", []), rule["verbs"])
        for role in controllers.rights()
        for rule in role.get("rules", ())
    ]
    group = "certificates.k8s.io"
    named = [f"kubernetes.io/{name}" for name in SIGNERS]
    assert found == [
        ("", group, ["certificatesigningrequests"], [], ["list", "watch", "delete"]),
        ("", group, ["certificatesigningrequests/approval", "certificatesigningrequests/status"], [], ["update"]),
        ("", group, ["signers"], ["kubernetes.io/kube-apiserver-client-kubelet"], ["approve"]),
        ("", group, ["signers"], named, ["sign"]),
        ("", "authorization.k8s.io", ["subjectaccessreviews"], [], ["create"]),
        ("", "authentication.k8s.io", ["tokenreviews"], [], ["create"]),
        ("default", "", ["events"], [], ["create"]),
        ("kube-system", "", ["secrets"], [], ["list", "watch", "delete"]),
        ("kube-system", "coordination.k8s.io", ["leases"], [], ["create"]),
        ("kube-system", "coordination.k8s.io", ["leases"], ["kubewright-controllers"], ["get", "update"]),
        ("kube-public", "", ["configmaps"], ["cluster-info"], ["list", "watch", "update"]),
    ]


def test_every_role_is_bound_to_the_controllers_user_and_to_nobody_else():
    bindings = [body for body in controllers.rights() if body["kind"].endswith("Binding")]
    assert len(bindings) == 4
    assert [[(one["kind"], one["name"]) for one in body["subjects"]] for body in bindings] == [[("User", controllers.NAME)]] * 4
