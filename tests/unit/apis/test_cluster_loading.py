"""The configuration that all machines of a cluster share is loaded without a machine, an address or a token."""

from __future__ import annotations

import pytest
from apis_documents import MACHINE, cluster, documents, init, load

from kubewright.apis.kubeadm.loading import load_cluster, load_tokens
from kubewright.apis.kubeadm.types import InitConfiguration, LocalAPIEndpoint, NodeRegistration
from kubewright.base.errors import DocumentError, ValidationError
from kubewright.base.randomness import SeededRandom
from kubewright.base.versions import OWN


def test_a_cluster_is_the_one_that_init_loads():
    given = cluster(networking={"podSubnet": "10.244.0.0/16"}, controlPlaneEndpoint="cluster.example")
    found, whole = load_cluster(documents(given)), load(given).configuration
    assert (found.cluster, found.kubelet, found.kube_proxy) == (whole.cluster, whole.kubelet, whole.kube_proxy)
    assert found.cluster.control_plane_endpoint == "cluster.example:6443"
    assert found.warnings == []


def test_an_endpoint_completes_what_the_documents_leave_open():
    endpoint = LocalAPIEndpoint(advertise_address="2001:db8::5", bind_port=7443)
    found = load_cluster(documents(cluster(controlPlaneEndpoint="cluster.example")), endpoint=endpoint)
    assert found.cluster.control_plane_endpoint == "cluster.example:7443"
    assert found.kube_proxy.document["bindAddress"] == "::"
    theirs = init(localAPIEndpoint={"advertiseAddress": "10.0.0.5"})
    found = load_cluster(documents(theirs, cluster(controlPlaneEndpoint="cluster.example")), endpoint=endpoint)
    assert found.cluster.control_plane_endpoint == "cluster.example:7443"
    assert found.kube_proxy.document["bindAddress"] == "0.0.0.0"


def test_an_unset_version_is_our_own_without_a_request():
    found = load_cluster(documents({**cluster(), "kubernetesVersion": ""}))
    assert found.cluster.kubernetes_version == str(OWN)
    assert found.warnings == []
    assert load_cluster([]).cluster.kubernetes_version == str(OWN)


def test_a_given_certificate_directory_is_used():
    assert load_cluster(documents(cluster(certificatesDir="/srv/pki")), cert_dir="/other").cluster.certificates_dir == "/other"
    assert load_cluster(documents(cluster(certificatesDir="/srv/pki"))).cluster.certificates_dir == "/srv/pki"


def test_a_machine_of_the_cluster_adds_its_part():
    node = InitConfiguration(node_registration=NodeRegistration(name="two"))
    found = load_cluster(documents(cluster())).on_machine(node)
    assert found.init == node
    assert found.cluster == load(cluster()).configuration.cluster


@pytest.mark.parametrize("address", ["", "127.0.0.1", "0.0.0.0", "10.0.0.5"])
def test_the_part_of_a_machine_is_checked_without_requiring_anything(address):
    """A loopback address was refused: the machine that stood in for the real one had no other address."""
    found = load_cluster(documents(init(localAPIEndpoint={"advertiseAddress": address}), cluster()))
    assert found.warnings == []


def test_errors_in_the_part_of_a_machine_are_reported():
    wrong = init(nodeRegistration={"name": "Not_A_Name", "criSocket": "http://x"}, localAPIEndpoint={"advertiseAddress": "x"})
    with pytest.raises(ValidationError) as caught:
        load_cluster(documents(wrong, cluster(certificatesDir="relative")))
    assert [error.path.text for error in caught.value.errors] == [
        "nodeRegistration.name",
        "nodeRegistration.criSocket",
        "localAPIEndpoint.advertiseAddress",
        "certificatesDir",
    ]


def test_a_file_without_a_cluster_is_refused():
    with pytest.raises(DocumentError):
        load_cluster([], from_file=True)
    with pytest.raises(DocumentError):
        load_cluster(documents({"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ResetConfiguration"}))


def test_tokens_of_a_file_need_no_machine():
    given = init(bootstrapTokens=[{"token": "abcdef.0123456789abcdef"}, {"ttl": "1h"}], localAPIEndpoint={"advertiseAddress": "127.0.0.1"})
    chosen, made = load_tokens(documents(given), random=SeededRandom())
    assert (chosen.token, str(chosen.ttl), chosen.made_up) == ("abcdef.0123456789abcdef", "24h0m0s", False)
    assert (len(made.token), str(made.ttl), made.made_up) == (23, "1h0m0s", True)
    expected = load(given, detected=MACHINE, allow_loopback_advertise=True).configuration.init.bootstrap_tokens
    assert [token.usages for token in (chosen, made)] == [token.usages for token in expected]
    assert len(load_tokens(documents(cluster()), random=SeededRandom())) == 1
    with pytest.raises(ValidationError):
        load_tokens(documents(init(bootstrapTokens=[{"token": "abcdef.0123456789abcdef", "usages": ["dancing"]}])), random=SeededRandom())
