"""NodeApprovalPolicy: every field error at once, and which names and addresses a policy allows for which node."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis import node_approval, node_sources
from kubewright.base.errors import DocumentError, KubewrightError, ValidationError

HEAD = "apiVersion: controllers.kubewright/v1alpha1\nkind: NodeApprovalPolicy\n"
GOOD = f"""{HEAD}sources:
- file:
    nodes:
    - node: db-1
      names: [db.example.com]
      addresses: ["2001:db8::1", 10.0.0.4/30]
    - node: worker-*
      names: ["{{node}}.nodes.example.com"]
reserved: [api.example.com, 10.0.0.1]
dnsSuffixes: [example.com]
"""


NAMES = ["file", "nodes", "node", "names", "addresses", "dns", "machines", "webhook", "joinRecords", "url", "state", "timeout", "resolvers"]


def read(text):
    return node_approval.read(text.encode(), source="policy.yaml")


@pytest.mark.parametrize(
    ("node", "san", "allowed"),
    [
        ("db-1", "db.example.com", True),
        ("db-1", "db-1", True),
        ("db-1", "2001:db8::1", True),
        ("db-1", "10.0.0.7", True),
        ("db-1", "10.0.0.8", False),
        ("db-1", "db-1.nodes.example.com", False),
        ("worker-7", "worker-7.nodes.example.com", True),
        ("worker-7", "worker-8.nodes.example.com", False),
        ("worker-7", "10.0.0.7", False),
    ],
)
def test_the_first_matching_row_says_what_a_node_may_have(node, san, allowed):
    row = read(GOOD).row(node)
    assert row is not None
    assert row.allows(san, node) is allowed


def test_a_node_without_a_row_has_nothing():
    assert read(GOOD).row("other") is None


def test_the_version_changes_with_the_content_only():
    assert read(GOOD).version == read(GOOD + "# a comment\n").version
    assert read(GOOD).version != read(GOOD + "nodeCIDRs: [10.0.0.0/8]\n").version


def test_every_wrong_field_is_reported_at_once_with_its_path():
    text = f"""{HEAD}sources:
- file: {{nodes: [{{names: ["a b"], addresses: [10.0.0.1/8, x]}}]}}
- nodes: {{}}
- {{}}
reserved: ["-"]
maximumLifetime: 9000h
surprise: 1
"""
    with pytest.raises(ValidationError) as caught:
        read(text)
    assert sorted(error.path.text for error in caught.value.errors) == sorted(
        [
            "sources[0].file.nodes[0].node",
            "sources[0].file.nodes[0].names[0]",
            "sources[0].file.nodes[0].addresses[0]",
            "sources[0].file.nodes[0].addresses[1]",
            "sources[1].nodes.trustReportedAddresses",
            "sources[2]",
            "nodeCIDRs",
            "reserved[0]",
            "maximumLifetime",
            "surprise",
        ]
    )
    assert all(error.source.startswith("policy.yaml:") for error in caught.value.errors)


def test_every_wrong_field_of_a_source_is_reported_at_once_with_its_path():
    text = f"""{HEAD}sources:
- joinRecords: {{state: "secrets:a", timeout: 31s}}
- joinRecords: {{state: /hub.db, keyFile: /hub.key, cluster: a}}
- machines: {{kubeconfig: /m.conf, namespace: a}}
- machines: {{apiVersion: v1, timeout: 0s}}
- dns: {{names: [node, "{{node}}..x"], resolvers: [dns.example.com, "10.0.0.1:0"], surprise: 1}}
- dns: {{}}
- webhook: {{url: "http://x/", certificateAuthority: x}}
- webhook: {{}}
dnsCheck: {{resolvers: ["10.0.0.1:x"], timeout: 0s}}
callBack: {{port: 70000}}
renewal: never
"""
    with pytest.raises(ValidationError) as caught:
        read(text)
    assert sorted(error.path.text for error in caught.value.errors) == sorted(
        [
            "callBack.certificateAuthority",
            "callBack.port",
            "dnsCheck.resolvers[0]",
            "dnsCheck.timeout",
            "renewal",
            "sources[0].joinRecords.cluster",
            "sources[0].joinRecords.keyFile",
            "sources[0].joinRecords.state",
            "sources[0].joinRecords.timeout",
            "sources[1].joinRecords",
            "sources[2].machines.cluster",
            "sources[3].machines.apiVersion",
            "sources[3].machines.kubeconfig",
            "sources[3].machines.namespace",
            "sources[3].machines.timeout",
            "sources[4].dns.names[0]",
            "sources[4].dns.names[1]",
            "sources[4].dns.resolvers[0]",
            "sources[4].dns.resolvers[1]",
            "sources[4].dns.surprise",
            "sources[5].dns.names",
            "sources[6].webhook.certificateAuthority",
            "sources[6].webhook.url",
            "sources[7].webhook.certificateAuthority",
            "sources[7].webhook.url",
        ]
    )


def test_sources_that_have_to_be_asked_are_kept_in_order():
    found = read(f"""{HEAD}sources:
- webhook: {{url: "https://inventory.example.com/nodes", certificateAuthority: "-----BEGIN CERTIFICATE-----"}}
- dns: {{names: ["{{node}}.example.com"], resolvers: ["[2001:db8::53]:5353", 10.0.0.53]}}
- machines: {{kubeconfig: /m.conf, apiVersion: machine.openshift.io/v1beta1, namespace: openshift-machine-api}}
- joinRecords: {{state: "secrets:hubs/main", stateKubeconfig: /m.conf, keyFile: /hub.key, cluster: a}}
""")
    assert [one.__class__.__name__ for one in found.asked] == ["WebhookSource", "DNSSource", "MachinesSource", "JoinRecordsSource"]
    assert found.asks
    assert not read(GOOD).asks


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.53", ("10.0.0.53", 53)),
        ("10.0.0.53:5353", ("10.0.0.53", 5353)),
        ("2001:db8::53", ("2001:db8::53", 53)),
        ("[::1]:5", ("::1", 5)),
    ],
)
def test_a_dns_server_is_an_address_with_or_without_a_port(text, found):
    assert node_sources.resolver(text) == found


@pytest.mark.parametrize("text", ["", "[]", "kind: NodeApprovalPolicy", "{", HEAD.replace("v1alpha1", "v9")])
def test_other_documents_are_refused(text):
    with pytest.raises(DocumentError):
        read(text)


def test_a_huge_policy_is_refused_before_it_is_parsed():
    with pytest.raises(DocumentError, match="8388608"):
        read(GOOD + "#" * node_approval.LARGEST)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
        max_leaves=12,
    ),
    st.sampled_from(
        ["sources", "reserved", "nodeCIDRs", "dnsSuffixes", "maximumLifetime", "clusterDomain", "dnsCheck", "callBack", "renewal"]
    ),
)
def test_any_value_of_a_field_is_read_or_refused_with_an_error_of_ours(value, name):
    import json

    try:
        found = read(HEAD + json.dumps({name: value})[1:-1])
    except KubewrightError:
        return
    assert found.rows or found.trust_reported or found.asked
