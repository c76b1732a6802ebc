"""Our controllers as a replacement for those of kube-controller-manager: the permissions of their user, and the command of their pods."""

from __future__ import annotations

import json

import pytest
from manifest_cases import HOST, configuration_of, places

from kubewright.apis.kubeadm.types import Arg
from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.cli.handlers.controllers.run import options_of
from kubewright.cli.main import main
from kubewright.cli.parsing import parser
from kubewright.manifests import controllers
from kubewright.manifests.pods import Inputs

SIGNERS = ["kube-apiserver-client", "kube-apiserver-client-kubelet", "kubelet-serving", "legacy-unknown"]


def test_permissions_are_exactly_these():
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
        ("kube-system", "", ["configmaps"], ["extension-apiserver-authentication"], ["get"]),
        ("kube-system", "coordination.k8s.io", ["leases"], [], ["create"]),
        ("kube-system", "coordination.k8s.io", ["leases"], ["kubewright-controllers"], ["get", "update"]),
        ("kube-public", "", ["configmaps"], ["cluster-info"], ["list", "watch", "update"]),
    ]


def test_every_role_is_bound_only_to_the_user_of_the_controllers():
    bindings = [body for body in controllers.rights() if body["kind"].endswith("Binding")]
    assert len(bindings) == 4
    assert [[(one["kind"], one["name"]) for one in body["subjects"]] for body in bindings] == [[("User", controllers.NAME)]] * 4


def test_signing_settings_of_kube_controller_manager_apply_to_ours():
    configuration = configuration_of("ipv4-minimal")
    told = (
        Arg(name="cluster-signing-duration", value="4m"),
        Arg(name="v", value="4"),
        Arg(name="cluster-signing-cert-file", value="/ca.crt"),
    )
    manager = replace(configuration.cluster.controller_manager, extra_args=told)
    configuration = replace(configuration, cluster=replace(configuration.cluster, controller_manager=manager))
    layout, addresses = places(configuration)
    inputs = Inputs(configuration=configuration, layout=layout, addresses=addresses, detected=HOST, overrides={"secure-port": "0"})
    [container] = controllers.static_pod(inputs, program=["kubewright"], environment={})["spec"]["containers"]
    assert container["command"][3:] == [
        *(f"--cluster-signing-key-file={layout.key('ca')}", f"--controllers={controllers.CONTROLLERS}"),
        *(f"--kubeconfig={layout.kubeconfig(controllers.NAME)}", "--leader-elect=true", "--secure-port=0"),
        *("--cluster-signing-duration=4m", "--cluster-signing-cert-file=/ca.crt"),
    ]


def deployed() -> dict[str, dict]:
    return {body["kind"]: body for body in controllers.deployment(image="registry.example/kubewright:1")}


def pod_of(kind: str) -> dict:
    if kind == "Deployment":
        return deployed()[kind]["spec"]["template"]["spec"]
    return controllers.machine_static_pod(Layout(), image="registry.example/kubewright:1")["spec"]


def test_the_deployment_includes_all_its_objects_in_creation_order():
    found = [body["kind"] for body in controllers.deployment(image="x")]
    assert found[:1] == ["ServiceAccount"]
    assert found[-3:] == ["Deployment", "PodDisruptionBudget", "NetworkPolicy"]
    assert sorted(found[1:-3]) == sorted(body["kind"] for body in controllers.rights())


def test_the_account_of_the_deployment_has_the_permissions_of_the_user():
    mine = [body for body in controllers.deployment(image="x") if "rules" in body]
    assert mine == [body for body in controllers.rights() if "rules" in body]
    subjects = [body["subjects"] for body in controllers.deployment(image="x") if "subjects" in body]
    assert subjects == [[{"kind": "ServiceAccount", "name": controllers.NAME, "namespace": "kube-system"}]] * 4


def test_two_replicas_of_which_one_stays():
    found = deployed()
    assert found["Deployment"]["spec"]["replicas"] == 2
    assert found["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector == labels


def test_the_network_policy_allows_only_api_servers():
    spec = deployed()["NetworkPolicy"]["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [port["port"] for rule in spec["egress"] for port in rule["ports"]] == [443, 6443]
    assert [port["port"] for rule in spec["ingress"] for port in rule["ports"]] == ["https"]


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_a_container_can_change_nothing(kind):
    pod = pod_of(kind)
    [container] = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        **({"runAsUser": 0, "runAsGroup": 0} if kind == "Pod" else {}),  # the image's own user may not read the control plane's files
    }
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert [mount["readOnly"] for mount in container["volumeMounts"]] == [True] * len(pod["volumes"])


def test_the_deployment_is_not_root_and_can_read_its_ca():
    pod = pod_of("Deployment")
    assert (pod["securityContext"]["runAsNonRoot"], pod["securityContext"]["fsGroup"]) == (True, pod["securityContext"]["runAsUser"])
    assert pod["volumes"] == [{"name": "authority", "secret": {"secretName": "kubewright-controllers-ca", "defaultMode": 0o440}}]
    assert "hostNetwork" not in pod


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_the_pod_runs_a_valid_command(kind, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    [container] = pod_of(kind)["containers"]
    found = parser.parse(container["command"][1:], program="kubewright")
    chosen = options_of(found)
    assert (len(chosen.controllers), len(chosen.files), chosen.election is not None) == (5, 4, True)
    port = container["livenessProbe"]["httpGet"]["port"]
    ports = {row["name"]: row["containerPort"] for row in container.get("ports", ())}
    assert ports.get(port, port) == found.number("secure-port")


def test_a_static_pod_runs_next_to_kube_controller_manager():
    pod = pod_of("Pod")
    [container] = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["port"] not in {10257, 10259, 10250, 10256}
    assert {volume["hostPath"]["path"]: volume["hostPath"]["type"] for volume in pod["volumes"]} == {
        "/etc/kubernetes/pki": "DirectoryOrCreate",
        "/etc/kubernetes/kubewright-controllers.conf": "File",
    }


def printed(capsys, *argv: str) -> str:
    assert main(["controllers", "manifest", *argv]) == 0
    return capsys.readouterr().out


def test_the_command_prints_what_is_rendered(capsys):
    found = [one.value for one in yaml.load_all(printed(capsys, "deployment", "--image=x", "--replicas=3", "--ca-secret=mine"))]
    assert found == controllers.deployment(image="x", replicas=3, authority="mine")
    assert json.loads(printed(capsys, "static-pod", "--image=x", "-o", "json")) == controllers.machine_static_pod(Layout(), image="x")
    assert [one.value for one in yaml.load_all(printed(capsys, "rbac"))] == controllers.rights()


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["pod"], 'no kind of manifest "pod"'),
        (["deployment"], "no published image"),
        (["deployment", "--image=x", "--replicas=0"], "at least one"),
        (["deployment", "--image=x", "--ca-secret=A B"], "not the name of a Secret"),
        (["deployment", "--image=x", "--controllers=nodeipam"], "no controller"),
    ],
)
def test_the_command_refuses_invalid_settings(capsys, argv, what):
    assert main(["controllers", "manifest", *argv]) == 2
    assert what in capsys.readouterr().err
