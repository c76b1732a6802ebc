"""What kubeadm once accepted: errors say since when it is gone, and what to write instead."""

from __future__ import annotations

import pytest
from apis_documents import KUBELET, MACHINE, cluster, document_error, documents, init, load

from kubewright.apis.kubeadm import removed
from kubewright.apis.kubeadm.explanations import COMPONENTS, KINDS, ROOTS, every
from kubewright.apis.kubeadm.features import GATES
from kubewright.apis.kubeadm.whole_files import load_whole
from kubewright.base.errors import DocumentError, ValidationError

_JOIN = {"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration"}
_KINDS_OF_OLD_FIELDS = ("InitConfiguration", "ClusterConfiguration", "JoinConfiguration")


def _reasons(kind: str, path: str, api_version: str = "kubeadm.k8s.io/v1beta4") -> list[str]:
    """Return the reasons of errors about one field."""
    *parents, name = path.split(".")
    value: object = {name: "x"}
    for parent in reversed(parents):
        value = {parent: value}
    with pytest.raises(ValidationError) as caught:
        load_whole(documents({"apiVersion": api_version, "kind": kind, **value}), detected=MACHINE)
    return [error.reason for error in caught.value.errors if error.path.text == path]


@pytest.mark.parametrize("version", removed.LAST_MIGRATOR)
@pytest.mark.parametrize("kind", ["InitConfiguration", "ClusterConfiguration", "JoinConfiguration", "ClusterStatus", "MasterConfiguration"])
def test_old_versions_of_every_kind_name_the_kubeadm_that_migrates_them(version, kind):
    with pytest.raises(DocumentError) as caught:
        load_whole(documents({"apiVersion": f"kubeadm.k8s.io/{version}", "kind": kind}), detected=MACHINE)
    assert f"kubeadm {removed.LAST_MIGRATOR[version]} is the last one that can migrate it" in caught.value.detail
    assert (removed.KINDS.get(kind, "") in caught.value.detail) is True


@pytest.mark.parametrize("gate", removed.GATES)
@pytest.mark.parametrize("value", [True, False])
def test_every_removed_gate_is_reported_with_release_and_replacement(gate, value):
    since, instead = removed.GATES[gate]
    with pytest.raises(ValidationError) as caught:
        load(cluster(featureGates={gate: value}))
    assert [error.reason for error in caught.value.errors] == [f"feature gate {gate} was removed in {since}: leave it out; {instead}"]
    assert gate not in GATES


@pytest.mark.parametrize("path", removed.FIELDS)
def test_every_removed_field_is_reported_with_release_and_replacement(path):
    holders = [kind for kind in _KINDS_OF_OLD_FIELDS if path not in {found.path for found in every(kind)}]
    parent = path.rpartition(".")[0]
    kinds = [kind for kind in holders if not parent or parent in {found.path for found in every(kind)}]
    assert kinds
    for kind in kinds:
        [reason] = _reasons(kind, path)
        assert reason == removed.field_hint(path)
        assert reason.startswith(f"removed in {removed.FIELDS[path][0]}: ")


def test_replacements_named_in_hints_exist():
    known = {found.path for kind in ROOTS for found in every(kind)}
    told = {instead.replace("[]", "").split(" ")[0].rstrip(",:;") for _, instead in removed.FIELDS.values() if "." in instead.split(" ")[0]}
    assert len(told) > 20
    assert {path for path in told if path not in known} == set()


@pytest.mark.parametrize("name", removed.COMPONENT_FIELDS)
def test_removed_fields_of_component_documents_are_reported_with_the_release(name):
    with pytest.raises(ValidationError) as caught:
        load(init(), cluster(), {**KUBELET, name: "x"})
    assert [error.reason for error in caught.value.errors] == [removed.field_hint(name, component=True)]


@pytest.mark.parametrize(("component", "name"), removed.ARGUMENTS)
def test_removed_flags_of_components_are_reported_with_the_release(component, name):
    hint = removed.argument_hint(component, name)
    assert hint.startswith(f"removed in {removed.ARGUMENTS[component, name][0]}: ")
    assert removed.argument_hint("etcd", name) == ""


def test_dynamic_kubelet_configuration_is_reported_as_removed():
    gone = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "SerializedNodeConfigSource"}
    assert "dynamic kubelet configuration was removed in v1.24" in document_error(cluster(), gone).detail


@pytest.mark.parametrize(
    ("api_version", "kind", "meant"),
    [
        ("kubeadm.k8s.io/v1beta4", "InitConfig", "kubeadm.k8s.io/v1beta4 InitConfiguration"),
        ("kubeadm.k8s.io/v1beta4", "clusterconfiguration", "kubeadm.k8s.io/v1beta4 ClusterConfiguration"),
        ("kubeadm.k8s.io/v1beta5", "JoinConfiguration", "kubeadm.k8s.io/v1beta4 JoinConfiguration"),
        ("kubeadm.k8s.io/v1", "ClusterConfiguration", "kubeadm.k8s.io/v1beta4 ClusterConfiguration"),
        ("kubeadm.k8s.io/v1beta3", "ResetConfiguration", "kubeadm.k8s.io/v1beta4 ResetConfiguration"),
        ("kubeadm.k8s.io/v1beta4", "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1 KubeletConfiguration"),
        ("kubadm.k8s.io/v1beta4", "ClusterConfiguration", "kubeadm.k8s.io/v1beta4 ClusterConfiguration"),
        ("kubeproxy.k8s.io/v1alpha1", "KubeProxyConfiguration", "kubeproxy.config.k8s.io/v1alpha1 KubeProxyConfiguration"),
    ],
)
def test_an_unknown_kind_or_version_gives_a_suggestion(api_version, kind, meant):
    with pytest.raises(DocumentError) as caught:
        load_whole(documents({"apiVersion": api_version, "kind": kind}), detected=MACHINE)
    assert caught.value.detail == f"kubeadm.yaml:1: {api_version} {kind} is an unknown kind; did you mean {meant}?"


@pytest.mark.parametrize(("api_version", "kind"), [("example.com/v1", "ClusterConfiguration"), ("kubeadm.k8s.io/v1beta4", "Widget")])
def test_a_kind_that_resembles_none_gets_no_suggestion(api_version, kind):
    assert "did you mean" not in document_error(init(), {"apiVersion": api_version, "kind": kind}).detail


@pytest.mark.parametrize(
    ("document", "meant"),
    [
        (cluster(featureGates={"RootlesControlPlane": True}), "RootlessControlPlane"),
        (cluster(encryptionAlgorithm="ECDSA-P265"), "ECDSA-P256"),
        (cluster(encryptionAlgorithm="rsa-2048"), "RSA-2048"),
        (init(nodeRegistration={"imagePullPolicy": "ifnotpresent"}), "IfNotPresent"),
        (init(bootstrapTokens=[{"usages": ["authentification"]}]), "authentication"),
        (cluster(podSubnet="10.244.0.0/16"), "networking.podSubnet"),
        (init(criSocket="unix:///run/x"), "nodeRegistration.criSocket"),
        (init(kubernetesVersion="v1.36.2"), "kubernetesVersion of ClusterConfiguration"),
        (cluster(nodeRegistration={}), "nodeRegistration of InitConfiguration or nodeRegistration of JoinConfiguration"),
        (cluster(maxPods=4), "maxPods of KubeletConfiguration"),
        ({**KUBELET, "clientCAFile": "/x"}, "authentication.x509.clientCAFile"),
        ({**KUBELET, "maxpods": 5}, "maxPods"),
    ],
)
def test_unknown_values_and_fields_give_a_suggestion(document, meant):
    others = [other for other in (init(), cluster()) if other["kind"] != document["kind"]]
    with pytest.raises(ValidationError) as caught:
        load(document, *others)
    error = caught.value.errors[0]
    assert "did you mean " in error.reason
    assert f"{meant}?" in error.reason.replace('"', "")


@pytest.mark.parametrize(
    ("field", "value", "meant"), [("unmountFlags", ["MNT_FORSE"], "MNT_FORCE"), ("unmountFlags", ["mnt_detach"], "MNT_DETACH")]
)
def test_unknown_flags_of_unmount_give_a_suggestion(field, value, meant):
    with pytest.raises(ValidationError) as caught:
        load_whole(documents({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ResetConfiguration", field: value}), detected=MACHINE)
    assert [f'did you mean "{meant}"?' in error.reason for error in caught.value.errors] == [True]


def test_arguments_in_the_old_form_are_reported_with_the_new_form():
    with pytest.raises(ValidationError) as caught:
        load(cluster(apiServer={"extraArgs": {"v": "2"}}))
    assert [error.reason for error in caught.value.errors] == ["expected a list of name and value (a map in v1beta3), found a map"]


def test_join_reads_hints_too():
    with pytest.raises(ValidationError) as caught:
        load_whole(documents({**_JOIN, "discoveryToken": "x"}), detected=MACHINE)
    assert "discovery.bootstrapToken.token" in caught.value.errors[0].reason + caught.value.errors[-1].reason


_OUTDATED = [
    (
        "nodeRegistration",
        {"taints": [{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}]},
        "write node-role.kubernetes.io/control-plane",
    ),
    ("nodeRegistration", {"criSocket": "unix:///var/run/dockershim.sock"}, "cannot use since v1.24"),
    ("nodeRegistration", {"criSocket": "unix:///var/run/docker.sock"}, "cri-dockerd's socket"),
    ("nodeRegistration", {"criSocket": "unix:///run/docker/docker.sock"}, "cri-dockerd's socket"),
    ("nodeRegistration", {"taints": [{"key": "k", "effect": "NoSchedul"}]}, 'did you mean "NoSchedule"?'),
    *(
        (
            component,
            {"extraVolumes": [{"name": "v", "hostPath": "/a", "mountPath": "/a", "pathType": "directory"}]},
            'did you mean "Directory"?',
        )
        for component in ("apiServer", "controllerManager", "scheduler")
    ),
    ("featureGates", {"NodeLocalCRISocket": False}, "generally available"),
    ("imageRepository", "k8s.gcr.io", "write registry.k8s.io"),
    ("imageRepository", "gcr.io/google-containers/x", "write registry.k8s.io"),
    ("dns", {"imageRepository": "k8s.gcr.io/coredns"}, "write registry.k8s.io"),
    ("etcd", {"local": {"imageRepository": "gcr.io/google_containers"}}, "write registry.k8s.io"),
]


@pytest.mark.parametrize(("field", "value", "said"), _OUTDATED)
def test_values_that_name_removed_things_give_a_warning(field, value, said):
    document = init(**{field: value}) if field == "nodeRegistration" else cluster(**{field: value})
    others = [other for other in (init(), cluster()) if other["kind"] != document["kind"]]
    warnings = load(document, *others).warnings
    assert [warning.startswith(f"kubeadm.yaml:1: {field}") and said in warning for warning in warnings] == [True]


@pytest.mark.parametrize("name", removed.CHECKS)
def test_names_of_removed_checks_give_a_warning(name):
    node = {"ignorePreflightErrors": [name.lower(), "Swap"]}
    [warning] = load(init(nodeRegistration=node), cluster()).warnings
    assert warning.startswith(f"kubeadm.yaml:1: nodeRegistration.ignorePreflightErrors: the check {name} no longer exists")
    assert removed.CHECKS[name] in warning


def test_replacements_give_no_warning():
    node = {
        "taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoExecute"}],
        "criSocket": "unix:///var/run/cri-dockerd.sock",
    }
    assert load(init(nodeRegistration=node), cluster(imageRepository="registry.k8s.io/k8s.gcr.io")).warnings == []


def test_every_kind_that_is_read_is_explained():
    assert set(KINDS) == {*ROOTS, *COMPONENTS}
    assert len(KINDS) == 7
