"""Calls as values: paths, queries, headers, bodies."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import DocumentError, UsageError
from kubewright.kube import core, resources
from kubewright.kube.credentials import Access, BearerToken, Impersonation

WRITER = "kubeadm"

CALLS = [
    (core.get(resources.NODE, "n1"), "GET", "/api/v1/nodes/n1"),
    (core.get(resources.LEASE, "n1", "kube-node-lease"), "GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1"),
    (core.list_page(resources.POD, field_selector="spec.nodeName=n1"), "GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1&limit=500"),
    (
        core.list_page(resources.POD, "ns", token="t/=", resource_version="7"),
        "GET",
        "/api/v1/namespaces/ns/pods?limit=500&continue=t%2F%3D",
    ),
    (
        core.watch(resources.NODE, resource_version="5", seconds=300),
        "GET",
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&resourceVersion=5&timeoutSeconds=300",
    ),
    (
        core.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "kube-system"}}),
        "POST",
        "/api/v1/namespaces/kube-system/secrets?fieldManager=kubeadm",
    ),
    (
        core.create(
            {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p", "namespace": "ns"}},
            resource=resources.POD,
            subresource="eviction",
        ),
        "POST",
        "/api/v1/namespaces/ns/pods/p/eviction?fieldManager=kubeadm",
    ),
    (
        core.update({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, subresource="status"),
        "PUT",
        "/api/v1/nodes/n1/status?fieldManager=kubeadm",
    ),
    (
        core.patch(resources.NODE, "n1", {}, type="apply", force=True),
        "PATCH",
        "/api/v1/nodes/n1?fieldManager=kubeadm&force=true",
    ),
    (core.delete(resources.NODE, "n1"), "DELETE", "/api/v1/nodes/n1"),
    (
        core.get(resources.CLUSTER_ROLE_BINDING, "kubeadm:get-nodes"),
        "GET",
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/kubeadm:get-nodes",
    ),
]


@pytest.mark.parametrize(("call", "method", "target"), CALLS, ids=lambda value: getattr(value, "about", None))
def test_a_call_has_its_path_and_query(call: core.Call, method: str, target: str) -> None:
    request = core.request(call, WRITER)
    assert (request.method, request.target) == (method, target)


def test_raw_requests_are_sent_as_written() -> None:
    request = core.raw("GET", "/readyz?verbose")
    assert (request.method, request.target) == ("GET", "/readyz?verbose")


def test_only_writes_name_their_field_manager() -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    assert core.request(core.update(node), "agent").target == "/api/v1/nodes/n1?fieldManager=agent"
    assert core.request(core.get(resources.NODE, "n1"), "agent").target == "/api/v1/nodes/n1"


@pytest.mark.parametrize(
    ("type", "content"),
    [
        ("strategic", "application/strategic-merge-patch+json"),
        ("merge", "application/merge-patch+json"),
        ("json", "application/json-patch+json"),
        ("apply", "application/apply-patch+yaml"),
    ],
)
def test_a_patch_names_its_type(type: str, content: str) -> None:
    assert core.request(core.patch(resources.NODE, "n1", {}, type=type), WRITER).headers["content-type"] == content


def test_a_deletion_may_have_conditions() -> None:
    call = core.delete(resources.POD, "p", "ns", propagation="Background", grace_seconds=0, uid="u", resource_version="9")
    assert json.loads(core.request(call, WRITER).body or b"") == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "propagationPolicy": "Background",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": "u", "resourceVersion": "9"},
    }


@pytest.mark.parametrize("name", ["..", ".", "a/b", "a%2fb", "../../secrets/x"])
def test_a_name_cannot_leave_its_path_segment(name: str) -> None:
    for call in (lambda: core.get(resources.NODE, name), lambda: core.get(resources.POD, "p", name)):
        with pytest.raises(UsageError):
            call()


@given(st.text(min_size=1))
def test_every_name_is_one_segment_or_refused(name: str) -> None:
    try:
        found = resources.segment(name)
    except UsageError:
        return
    assert found.isascii()
    assert not set(found) & set("/?# \r\n")


def test_invalid_addresses_of_objects_are_refused() -> None:
    with pytest.raises(UsageError):
        core.get(resources.NODE, "")
    with pytest.raises(UsageError):
        core.get(resources.SECRET, "s")
    with pytest.raises(UsageError):
        core.raw("GET", "readyz")
    with pytest.raises(UsageError):
        resources.named("Nothing")
    with pytest.raises(DocumentError):
        resources.of({"kind": "Nothing", "apiVersion": "v1"})
    with pytest.raises(DocumentError):
        core.create({})


def test_every_row_is_found_by_its_object() -> None:
    assert len(resources.RESOURCES) == 41
    for row in resources.RESOURCES:
        assert resources.of({"apiVersion": row.api_version, "kind": row.kind}) is row


def test_headers_contain_the_identity() -> None:
    acting = Impersonation(user="jane", groups=("a", "b"), extra={"k.example/x y": ("1",)})
    assert core.headers_for(Access(server="https://x", identity=BearerToken("t"), impersonation=acting)) == {
        "accept": "application/json",
        "authorization": "Bearer t",
        "impersonate-user": "jane",
        "impersonate-group": ("a", "b"),
        "impersonate-uid": (),
        "impersonate-extra-k.example%2Fx%20y": ("1",),
    }


def test_secrets_stay_out_of_repr() -> None:
    assert "canary" not in repr(Access(server="https://x", identity=BearerToken("canary")))
