"""The policy that `init` and the joins write: valid, with the addresses of control planes, and with what the user has added."""

from __future__ import annotations

import pytest
from manifest_cases import HOST, configuration_of

from kubewright.apis import node_approval
from kubewright.apis.kubeadm.types import Arg
from kubewright.base import yaml
from kubewright.base.errors import DocumentError
from kubewright.base.records import replace
from kubewright.manifests import node_policy

CONFIGURATION = configuration_of("ipv4-minimal")


def made(**cluster: object) -> str:
    configuration = replace(CONFIGURATION, cluster=replace(CONFIGURATION.cluster, **cluster))
    return node_policy.of_cluster(configuration, {"one": ["10.98.0.11"]})


def read(text):
    return node_approval.read(text.encode(), source="policy")


def test_a_new_policy_lists_the_first_control_plane_and_reserves_the_endpoint():
    server = replace(CONFIGURATION.cluster.api_server, cert_sans=("api.example.com", "10.98.0.100"))
    policy = read(made(control_plane_endpoint="cluster.test:6443", api_server=server))
    assert policy.row("one").lists("10.98.0.11")
    assert policy.row("two") is None
    assert policy.reserved_names == {"cluster.test", "api.example.com"}
    assert [str(one) for one in policy.reserved_networks] == ["10.98.0.100/32"]
    assert not policy.trust_reported


def test_the_nodes_own_address_is_not_reserved_even_if_it_is_the_endpoint():
    address = CONFIGURATION.init.local_api_endpoint.advertise_address
    assert (
        node_policy.reserved(replace(CONFIGURATION, cluster=replace(CONFIGURATION.cluster, control_plane_endpoint=f"{address}:6443"))) == []
    )


def test_a_further_control_plane_is_added_once_and_what_the_user_wrote_stays():
    text = made(api_server=replace(CONFIGURATION.cluster.api_server, cert_sans=("10.98.0.12", "vip.example.com")))
    content = yaml.load(text)
    content["sources"].append({"nodes": {"trustReportedAddresses": True}})
    content["nodeCIDRs"] = ["10.98.0.0/16"]
    added = node_policy.with_nodes(yaml.dump(content), {"two": ["10.98.0.12"]})
    policy = read(added)
    assert policy.row("two").lists("10.98.0.12")
    assert policy.row("one").lists("10.98.0.11")
    assert (policy.trust_reported, policy.reserved_names, policy.reserved_networks) == (True, {"vip.example.com"}, ())
    assert node_policy.with_nodes(added, {"two": ["10.98.0.13"], "one": []}) == added


def test_a_policy_without_a_file_source_gets_one():
    text = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\nnodeCIDRs: [10.0.0.0/8]\nsources: [{nodes: {trustReportedAddresses: true}}]\n"
    policy = read(node_policy.with_nodes(text, {"two": ["10.98.0.12"]}))
    assert policy.row("two").lists("10.98.0.12")
    assert policy.trust_reported


@pytest.mark.parametrize("text", ["", "[]", "kind: Pod"])
def test_a_config_map_with_something_else_is_refused(text):
    with pytest.raises(DocumentError, match="does not contain a NodeApprovalPolicy"):
        node_policy.with_nodes(text, {"two": ["10.98.0.12"]})


@pytest.mark.parametrize(
    ("endpoint", "host"),
    [
        ("cluster.test:6443", "cluster.test"),
        ("cluster.test", "cluster.test"),
        ("[2001:db8::1]:6443", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("", ""),
    ],
)
def test_the_host_of_the_control_plane_endpoint_is_reserved(endpoint, host):
    found = replace(CONFIGURATION, cluster=replace(CONFIGURATION.cluster, control_plane_endpoint=endpoint))
    without = replace(CONFIGURATION, cluster=replace(CONFIGURATION.cluster, control_plane_endpoint=""))
    assert set(node_policy.reserved(found)) - set(node_policy.reserved(without)) == ({host} if host else set())


def test_a_control_plane_has_its_advertised_address_and_those_of_its_node_ip():
    registration = CONFIGURATION.init.node_registration
    assert node_policy.addresses_of(registration, HOST, "10.98.0.11")[0] == "10.98.0.11"
    two = replace(registration, kubelet_extra_args=(Arg(name="node-ip", value="10.98.0.11,2001:db8::11"),))
    assert node_policy.addresses_of(two, HOST, "10.98.0.11") == ["10.98.0.11", "2001:db8::11"]
