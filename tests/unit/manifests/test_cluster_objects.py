"""Objects beyond the reference: the RBAC table, hashes, the Node's mark, disabled add-ons."""

from __future__ import annotations

import pytest
from manifest_cases import HOST, configuration_of, places, reference_json

from kubewright.apis.kubeadm.types import DNS, Proxy
from kubewright.apis.machine import Detected
from kubewright.base.records import replace
from kubewright.manifests import configmaps, coredns, kube_proxy, objects, rbac
from kubewright.manifests.rbac import GRANTS, Purpose

TAINT = {"effect": "NoSchedule", "key": "node-role.kubernetes.io/control-plane"}


def test_every_grant_is_a_role_or_binds_one():
    assert len(GRANTS) == 24
    assert len({(grant.name, grant.namespace) for grant in GRANTS}) == 24
    assert all(bool(grant.rules) != bool(grant.role) for grant in GRANTS)
    assert sum(len(rbac.grants(purpose)) for purpose in Purpose) == 24 + sum(bool(grant.rules) for grant in GRANTS)


def test_a_join_token_permits_requests_and_reading_the_join_key_only():
    found = {(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")): one for one in rbac.grants(Purpose.ENROLLMENT)}
    requester, proxier, namespace = "oneinfra:node:join-requester", "oneinfra:kubelet-proxier", "oneinfra-system"
    asking = {"apiGroups": ["node.oneinfra.ereslibre.es"], "resources": ["nodejoinrequests"], "verbs": ["get", "create"]}
    reading = {"apiGroups": [""], "resourceNames": ["oneinfra-join"], "resources": ["configmaps"], "verbs": ["get"]}
    assert len(found) == 5
    assert found["ClusterRole", requester, ""]["rules"] == [asking]
    assert found["Role", requester, namespace]["rules"] == [reading]
    holders = [{"kind": "Group", "name": "system:bootstrappers:oneinfra"}]
    assert found["ClusterRoleBinding", requester, ""]["subjects"] == holders
    assert found["RoleBinding", requester, namespace]["subjects"] == holders
    binding = found["ClusterRoleBinding", proxier, ""]
    assert (binding["roleRef"]["name"], binding["subjects"]) == ("system:kubelet-api-admin", [{"kind": "Group", "name": proxier}])


def test_the_binding_of_administrators_is_to_cluster_admin():
    (binding,) = objects.cluster_admins()
    assert binding == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kubeadm:cluster-admins"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "kubeadm:cluster-admins"}],
    }


@pytest.mark.parametrize("name", ["kubelet-config", "kube-proxy"])
def test_the_hash_runs_over_values_in_the_order_of_keys(name):
    vector = reference_json("vectors.json")["component_config_hash"]["config_maps"][name]
    assert configmaps.content_hash(vector["data"]) == vector[f"annotation {configmaps.HASH}"]
    assert configmaps.content_hash(dict(reversed(vector["data"].items()))) == vector[f"annotation {configmaps.HASH}"]


def test_a_component_configuration_of_a_user_has_no_hash():
    configuration = configuration_of("extra-everything")
    _, addresses = places(configuration)
    found = [configmaps.kubelet_config(configuration), kube_proxy.settings(configuration, addresses.api_server)]
    assert [body["metadata"].get("annotations") for body in found] == [None, None]


def test_disabled_add_ons_have_no_objects():
    configuration = configuration_of("ipv4-minimal")
    _, addresses = places(configuration)
    disabled = replace(configuration, cluster=replace(configuration.cluster, dns=DNS(disabled=True), proxy=Proxy(disabled=True)))
    assert objects.dns(disabled) == []
    assert objects.proxy(disabled, addresses, HOST) == []
    assert len(objects.dns(configuration)) + len(objects.proxy(configuration, addresses, HOST)) == 12


def test_the_number_of_dns_pods_can_be_kept():
    assert coredns.deployment(configuration_of("ipv4-minimal").cluster, replicas=5)["spec"]["replicas"] == 5


def test_kube_proxy_gets_our_proxy_variables():
    configuration = configuration_of("ipv4-minimal")
    _, addresses = places(configuration)
    detected = Detected(host_name="node1", proxy_environment={"no_proxy": "x", "HTTP_PROXY": "y"})
    daemon_set = kube_proxy.objects(configuration, addresses, detected)[1]
    assert [one["name"] for one in daemon_set["spec"]["template"]["spec"]["containers"][0]["env"]] == [
        "NODE_NAME",
        "HTTP_PROXY",
        "no_proxy",
    ]


def test_uploaded_certificates_are_owned_by_their_token():
    secret, role, binding = objects.kubeadm_certs({"ca.key": b"\x00", "ca.crt": b""}, owner="bootstrap-token-abcdef", owner_uid="u")
    assert secret["data"] == {"ca.crt": "", "ca.key": "AA=="}
    assert secret["metadata"]["ownerReferences"][0]["name"] == "bootstrap-token-abcdef"
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
