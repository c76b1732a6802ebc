"""NodeApprovalPolicy: every field error at once, and what a policy gives to whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis import node_approval
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


@pytest.mark.parametrize("text", ["", "[]", "kind: NodeApprovalPolicy", "{", HEAD.replace("v1alpha1", "v9")])
def test_other_documents_are_refused(text):
    with pytest.raises(DocumentError):
        read(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["file", "nodes", "node", "names", "addresses", "trustReportedAddresses"]), inner, max_size=3)
        ),
        max_leaves=12,
    ),
    st.sampled_from(["sources", "reserved", "nodeCIDRs", "dnsSuffixes", "maximumLifetime", "clusterDomain"]),
)
def test_any_value_of_a_field_is_read_or_refused_with_an_error_of_ours(value, name):
    import json

    try:
        found = read(HEAD + json.dumps({name: value})[1:-1])
    except KubewrightError:
        return
    assert found.rows or found.trust_reported
