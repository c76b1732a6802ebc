"""What kubeadm v1.36.2 made of its configuration files, from our loader: normal form, stored form, component documents, images."""

from __future__ import annotations

import pytest
from apis_documents import ALL_CASES, CASES, REFERENCE, config_map, load_case, load_text, reference_json

from kubewright.apis.kubeadm.codec import cluster_document, init_document
from kubewright.apis.kubeadm.versions import images
from kubewright.base.yaml import dump, load, load_all


@pytest.mark.parametrize("case", ALL_CASES)
def test_a_configuration_is_printed_in_the_normal_form_of_kubeadm(case):
    loaded = load_case(case)
    printed = [
        load(dump(document)) for document in (init_document(loaded.configuration.init), cluster_document(loaded.configuration.cluster))
    ]
    expected = [document.value for document in load_all((REFERENCE / "cases" / case / "config-migrate.yaml").read_text())]
    # `config migrate` of v1.36.2 writes 0s whatever the timeout is; ours writes the real one.
    asked = load_all((REFERENCE / "cases" / case / "kubeadm.yaml").read_text())[0].value.get("timeouts", {})
    expected[0]["timeouts"]["controlPlaneComponentHealthCheck"] = asked.get("controlPlaneComponentHealthCheck", "4m0s")
    assert printed == expected


@pytest.mark.parametrize("case", ALL_CASES)
def test_no_reference_configuration_gives_a_warning(case):
    assert load_case(case).warnings == []


@pytest.mark.parametrize("case", ALL_CASES)
def test_images_are_listed_in_the_order_of_kubeadm(case):
    assert images(load_case(case).configuration.cluster) == (REFERENCE / "cases" / case / "images.txt").read_text().split()


@pytest.mark.parametrize("case", CASES)
def test_the_kubelet_configuration_is_written_byte_for_byte(case):
    configuration = load_case(case).configuration
    ours = {**configuration.kubelet.document, "containerRuntimeEndpoint": configuration.init.node_registration.cri_socket}
    assert dump(ours) == (REFERENCE / "cases" / case / "kubelet" / "config.yaml").read_text()


@pytest.mark.parametrize("case", ["extra-everything", "dual-stack", "ipv6-only"])
def test_stored_config_maps_are_written_byte_for_byte(case):
    configuration = load_case(case).configuration
    objects = reference_json(f"cases/{case}/init-dry-run-objects.json")
    assert dump(cluster_document(configuration.cluster)) == config_map(objects, "kubeadm-config")["data"]["ClusterConfiguration"]
    assert dump(configuration.kubelet.document) == config_map(objects, "kubelet-config")["data"]["kubelet"]
    assert dump(configuration.kube_proxy.document).rstrip("\n") == config_map(objects, "kube-proxy")["data"]["config.conf"].rstrip("\n")


def test_a_full_init_stores_the_same_config_maps():
    configuration = load_text((REFERENCE / "cluster-objects" / "kubeadm.yaml").read_text()).configuration
    stored = {
        name: reference_json(f"cluster-objects/ConfigMap_kube-system_{name}.json")["data"]
        for name in ("kubeadm-config", "kubelet-config", "kube-proxy")
    }
    assert dump(cluster_document(configuration.cluster)) == stored["kubeadm-config"]["ClusterConfiguration"]
    assert dump(configuration.kubelet.document) == stored["kubelet-config"]["kubelet"]
    assert dump(configuration.kube_proxy.document).rstrip("\n") == stored["kube-proxy"]["config.conf"].rstrip("\n")


def test_printed_defaults_are_a_fixed_point_except_for_the_taint():
    text = (REFERENCE / "config-print" / "init-defaults.component-configs.yaml").read_text()
    loaded = load_text(text)
    expected = [document.value for document in load_all(text)]
    expected[0]["nodeRegistration"]["taints"] = [{"effect": "NoSchedule", "key": "node-role.kubernetes.io/control-plane"}]
    expected[1]["kubernetesVersion"] = "v1.36.0"
    found = loaded.configuration
    ours = [init_document(found.init), cluster_document(found.cluster), found.kubelet.document, found.kube_proxy.document]
    assert [dump(document) for document in ours] == [dump(document) for document in expected]
    assert loaded.warnings == []
