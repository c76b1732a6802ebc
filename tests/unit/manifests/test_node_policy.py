"""The policy that `init` and the joins write: valid, with the addresses of control planes, and with what the user has added."""

from __future__ import annotations

import pytest
from manifest_cases import HOST, configuration_of

from kubewright.apis import node_approval
from kubewright.apis.kubeadm.types import Arg
from kubewright.apis.node_approval import FileRow
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, UsageError, ValidationError
from kubewright.base.records import replace
from kubewright.manifests import node_policy

CONFIGURATION = configuration_of("ipv4-minimal")
ONE = FileRow(node="one", addresses=("10.98.0.11",), tokens=("aaaaaa",))
TWO = FileRow(node="two", addresses=("10.98.0.12",), tokens=("bbbbbb",))
ANY = FileRow(node="*", addresses=("10.98.0.0/24",))


def made(**cluster: object) -> str:
    configuration = replace(CONFIGURATION, cluster=replace(CONFIGURATION.cluster, **cluster))
    return node_policy.of_cluster(configuration, [ONE])


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
    added = node_policy.with_rows(yaml.dump(content), [TWO])
    policy = read(added)
    assert policy.row("two").lists("10.98.0.12")
    assert policy.row("one").lists("10.98.0.11")
    assert (policy.trust_reported, policy.reserved_names, policy.reserved_networks) == (True, {"vip.example.com"}, ())
    assert node_policy.with_rows(added, [replace(TWO, addresses=("10.98.0.13",)), replace(ONE, addresses=())]) == added


def test_a_policy_without_a_file_source_gets_one():
    text = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\nnodeCIDRs: [10.0.0.0/8]\nsources: [{nodes: {trustReportedAddresses: true}}]\n"
    policy = read(node_policy.with_rows(text, [TWO]))
    assert policy.row("two").lists("10.98.0.12")
    assert policy.trust_reported


def nodes_of(text):
    return [row["node"] for row in yaml.load(text)["sources"][0]["file"]["nodes"]]


def test_the_row_for_any_node_stays_the_last_one():
    text = node_policy.of_cluster(CONFIGURATION, [ONE, ANY])
    added = node_policy.with_rows(text, [TWO])
    assert nodes_of(added) == ["two", "one", "*"]
    assert nodes_of(node_policy.with_node(added, FileRow(node="db-*", addresses=("10.98.1.0/24",)), tokens=())) == [
        "two",
        "one",
        "db-*",
        "*",
    ]
    policy = read(added)
    assert policy.row("worker-1").allows("10.98.0.77", "worker-1")
    assert not policy.row("two").allows("10.98.0.77", "two")


def test_networks_for_any_node_exclude_reserved_addresses():
    text = yaml.dump({**yaml.load(made()), "reserved": ["10.98.0.0/24"]})
    assert [str(one) for one in read(node_policy.with_rows(text, [TWO, ANY])).reserved_networks] == ["10.98.0.0/24"]


def test_tokens_are_written_only_where_they_count():
    stock = node_policy.of_cluster(CONFIGURATION, [ONE])
    assert (read(stock).clients, read(stock).row("one").tokens, node_policy.is_strict(stock)) == ("stock", frozenset(), False)
    assert node_policy.with_rows(stock, [ONE]) == stock
    strict = node_policy.of_cluster(CONFIGURATION, [ONE], strict_clients=True)
    assert (read(strict).clients, read(strict).row("one").tokens, node_policy.is_strict(strict)) == ("strict", {"aaaaaa"}, True)


def test_clients_become_strict_on_request_and_stay_so():
    strict = node_policy.with_rows(node_policy.of_cluster(CONFIGURATION, [ONE]), [TWO], strict_clients=True)
    assert (read(strict).clients, read(strict).row("two").tokens) == ("strict", {"bbbbbb"})
    assert node_policy.with_rows(strict, [TWO]) == strict


def test_a_machine_that_joins_again_with_another_token_keeps_the_first_one():
    strict = node_policy.of_cluster(CONFIGURATION, [ONE], strict_clients=True)
    policy = read(node_policy.with_rows(strict, [replace(ONE, tokens=("cccccc",))]))
    assert policy.row("one").tokens == {"aaaaaa", "cccccc"}


WORKER = FileRow(node="worker-1", addresses=("10.98.0.21",), names=("worker-1.example.com",), tokens=("bbbbbb",))


def test_the_row_of_a_token_is_added_and_replaced():
    added = node_policy.with_node(made(), WORKER, tokens={"aaaaaa"})
    row = read(added).row("worker-1")
    assert (row.lists("10.98.0.21"), row.names, row.tokens) == (True, ("worker-1.example.com",), {"bbbbbb"})
    moved = FileRow(node="worker-1", addresses=("10.98.0.22",), tokens=("cccccc",))
    row = read(node_policy.with_node(added, moved, tokens={"bbbbbb", "aaaaaa"})).row("worker-1")
    assert (row.lists("10.98.0.21"), row.lists("10.98.0.22"), row.names) == (False, True, ("worker-1.example.com",))
    assert row.tokens == {"bbbbbb", "cccccc"}
    assert read(node_policy.with_node(added, moved, tokens=())).row("worker-1").tokens == {"cccccc"}


def test_a_node_without_addresses_has_those_of_the_row_that_matched_so_far():
    text = node_policy.of_cluster(CONFIGURATION, [ONE, ANY])
    row = read(node_policy.with_node(text, FileRow(node="worker-1", tokens=("bbbbbb",)), tokens=())).row("worker-1")
    assert (row.allows("10.98.0.77", "worker-1"), row.tokens) == (True, {"bbbbbb"})
    with pytest.raises(UsageError, match='the policy gives no address to "worker-1"'):
        node_policy.with_node(made(), FileRow(node="worker-1"), tokens=())


@pytest.mark.parametrize("reserved", ["10.98.0.21", "worker-1", "worker-1.example.com"])
def test_no_node_gets_a_reserved_name_or_address(reserved):
    server = replace(CONFIGURATION.cluster.api_server, cert_sans=(reserved,))
    with pytest.raises(UsageError, match=f"the policy reserves {reserved}:"):
        node_policy.with_node(made(api_server=server), WORKER, tokens=())


def test_a_row_that_is_not_valid_is_refused_with_its_fields():
    node_policy.require_valid(WORKER)
    with pytest.raises(ValidationError) as caught:
        node_policy.require_valid(FileRow(node="Worker 1", addresses=("10.98.0.300",), names=("-",)))
    assert sorted(one.path.text for one in caught.value.errors) == ["addresses[0]", "names[0]", "node"]


@pytest.mark.parametrize("text", ["", "[]", "kind: Pod"])
def test_a_config_map_with_something_else_is_refused(text):
    with pytest.raises(DocumentError, match="does not contain a NodeApprovalPolicy"):
        node_policy.with_rows(text, [TWO])


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
