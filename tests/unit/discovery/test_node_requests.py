"""What a machine that waits for its certificate reports about its request: its name and state, what approves it, who refused it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.clock import FakeClock
from kubewright.base.errors import APIError, Forbidden, NotFound, Unauthorized
from kubewright.discovery.node_requests import ASKING, BY_POLICY, FIRST, RENEWED, NodeRequests, newest, status_of
from kubewright.kube.api import KubeAPI
from kubewright.manifests import rbac
from kubewright.pki import keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.requests import csr
from odd_objects import ODD, paths, variants

KEY = keys.generate(Algorithm.ECDSA_P256)
BEGAN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
USER = "system:bootstrap:abcdef"
GROUPS = ["system:bootstrappers", FIRST.group, "system:authenticated"]
PENDING = (
    "certificate request csr-x is Pending, and nobody approves it: system:bootstrap:abcdef (system:bootstrappers,"
    " system:bootstrappers:kubeadm:default-node-token) is not bound to ClusterRole"
    " system:certificates.k8s.io:certificatesigningrequests:nodeclient; kubeadm binds group"
    " system:bootstrappers:kubeadm:default-node-token to it with ClusterRoleBinding kubeadm:node-autoapprove-bootstrap"
)


def request(name="csr-x", *conditions: str, node="n1", made=0, user=USER, by="", certificate=False):
    fields = [{"manager": by, "subresource": sub, "time": f"2026-01-02T03:04:{10 + i}Z"} for i, sub in enumerate(("status", "approval"))]
    return {
        "metadata": {
            "name": name,
            "creationTimestamp": (BEGAN + timedelta(seconds=made)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            **({"managedFields": [{"manager": "kubelet", "time": "2026-01-02T03:04:05Z"}, *fields]} if by else {}),
        },
        "spec": {
            "request": base64.b64encode(csr.node_client_request(node, KEY)).decode(),
            "username": user,
            "signerName": csr.CLIENT_SIGNER,
            "groups": GROUPS,
        },
        "status": {
            "conditions": [{"type": kind, "reason": "Why", "message": "because of\nthis"} for kind in conditions],
            **({"certificate": "aaaa"} if certificate else {}),
        },
    }


STATES = [
    (request(), None, "certificate request csr-x is Pending: it has not been approved", "kubectl certificate approve csr-x"),
    (
        request(),
        True,
        "certificate request csr-x is Pending: kube-controller-manager may approve it and has not",
        "check that kube-controller",
    ),
    (request(), False, PENDING, "kubectl certificate approve csr-x"),
    (request("csr-x", "Approved"), None, "certificate request csr-x is Approved, but not signed", "kube-controller-manager"),
    (request("csr-x", "Approved", by="me"), None, "certificate request csr-x is Approved by me, but not signed", "component="),
    (
        request("csr-x", "Approved", certificate=True),
        None,
        "certificate request csr-x is signed, and the kubelet has not stored the certificate yet",
        "journalctl -u kubelet",
    ),
    (
        request("csr-x", "Denied", by="kubectl"),
        None,
        r"certificate request csr-x was denied by kubectl: Why: because of\nthis",
        "kubectl describe csr csr-x",
    ),
    (
        request("csr-x", "Approved", "Failed", by="signer"),
        None,
        r"the signer could not sign certificate request csr-x by signer: Why: because of\nthis",
        "kubectl describe csr csr-x",
    ),
]


@pytest.mark.parametrize(("found", "approvable", "text", "remedy"), STATES, ids=[state[2][:60] for state in STATES])
def test_each_state_has_its_message(found, approvable, text, remedy):
    status = status_of(found, approvable=approvable)
    assert status.text == text
    assert remedy in status.remedy
    assert status.refused == ("Denied" in str(found) or "Failed" in str(found))


@given(
    st.recursive(
        st.none() | st.booleans() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["type", "reason", "x"]), inner),
    )
)
def test_messages_of_others_stay_on_one_line(value):
    found = request("csr-x", "Denied", by="a\nb")
    found["status"]["conditions"][0]["message"] = value
    assert status_of(found).text.isprintable()


def test_the_bindings_equal_those_of_kubeadm():
    made = {grant.name: grant for grant in rbac.GRANTS}
    for binding in (ASKING, FIRST, RENEWED):
        grant = made[binding.name]
        assert (grant.role, [one.name for one in grant.subjects]) == (binding.role, [binding.group])


def test_machines_can_see_that_a_policy_decides():
    [grant] = [grant for grant in rbac.GRANTS if grant.name == BY_POLICY.name]
    assert [rule.resources for rule in grant.rules] == [(f"certificatesigningrequests/{BY_POLICY.subresource}",)]
    assert [one.name for one in grant.subjects] == [BY_POLICY.group, RENEWED.group]


def test_a_renewing_node_needs_another_binding():
    again = request(user="system:node:n1")
    assert status_of(again, approvable=False).text.endswith(
        "is not bound to ClusterRole system:certificates.k8s.io:certificatesigningrequests:selfnodeclient; kubeadm binds group system:nodes"
        " to it with ClusterRoleBinding kubeadm:node-autoapprove-certificate-rotation"
    )
    again["spec"]["signerName"] = csr.SERVING_SIGNER
    assert status_of(again, approvable=False).text == "certificate request csr-x is Pending: it has not been approved"


def test_the_newest_request_of_the_node_counts_and_a_refused_one_counts_more():
    old, young = request("csr-1", made=1), request("csr-2", made=2)
    others = [request("csr-3", made=3, node="n2"), request("csr-4", made=4, user="mallory"), {"metadata": {"name": "csr-5"}}]
    assert newest([old, young, *others], "n1", asker=USER) is young
    assert newest([old, young, *others], "n1")["metadata"]["name"] == "csr-4"
    denied = request("csr-0", "Denied", made=0)
    assert newest([denied, old, young], "n1", asker=USER) is denied
    assert newest([denied, old], "n1", since=BEGAN + timedelta(seconds=1)) is old
    assert newest(others, "n1", asker=USER) is None


def test_malformed_requests_do_not_hide_those_of_the_node():
    good, refused = request("csr-1", made=1), request("csr-0", "Denied", "Approved", by="someone")
    odd = variants(refused)
    found = [newest([one, good], "n1", asker=asker, since=BEGAN) in (one, good) for one in odd for asker in (USER, "")]
    assert found == [True] * (len(paths(refused)) - 1) * len(ODD) * 2
    states = [status_of(one, approvable=approvable).text for one in odd for approvable in (None, False, True)]
    assert [text for text in states if "certificate request " not in text] == []
    undated = {**good, "metadata": {"name": "csr-9", "creationTimestamp": "2027-01-02"}}  # without a time zone
    assert newest([good, undated, {}], "n1") is good


class Cluster(KubeAPI):
    """An API server that serves one node. `refuses` raises for a verb and a resource."""

    def __init__(self, *requests: dict, approves: tuple[str, ...] = (), asks: bool = True) -> None:
        self.requests, self.approves, self.asks = list(requests), approves, asks
        self.refuses = {}
        self.calls = []

    def exchange(self, request, /):
        raise AssertionError(request.target)

    def send(self, call, /):
        self.calls.append(f"{call.verb} {call.resource.plural}")
        if error := self.refuses.get(self.calls[-1]):
            raise error
        match call.resource.plural, call.verb:
            case "selfsubjectreviews", "create":
                return {"status": {"userInfo": {"username": USER, "groups": GROUPS}}}
            case "selfsubjectaccessreviews", "create":
                attributes = call.body["spec"]["resourceAttributes"]
                assert (attributes["verb"], attributes["resource"]) == ("create", "certificatesigningrequests")
                subresource = attributes.get("subresource")
                return {"status": {"allowed": subresource in self.approves if subresource else self.asks}}
            case "certificatesigningrequests", "list":
                assert call.query["fieldSelector"] == "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet"
                return {"metadata": {}, "items": self.requests}
            case "certificatesigningrequests", "get":
                for one in self.requests:
                    if one["metadata"]["name"] == call.name:
                        return one
                raise NotFound("gone", code=404)
        raise AssertionError(self.calls[-1])


def test_a_pending_request_names_the_missing_binding():
    cluster = Cluster(request("csr-other", node="n2"), request())
    assert NodeRequests(cluster, "n1", clock=FakeClock()).look().text == PENDING


def test_a_pending_request_in_a_cluster_with_an_approver_waits_for_its_policy():
    status = NodeRequests(Cluster(request(), approves=(BY_POLICY.subresource,)), "n1", clock=FakeClock()).look()
    assert status.text == (
        "certificate request csr-x is Pending: the policy of this cluster does not allow it yet, or a person has to approve it"
    )
    assert "kubewright csr explain csr-x" in status.remedy
    both = Cluster(request(), approves=(BY_POLICY.subresource, FIRST.subresource))
    assert "kube-controller-manager may approve it" in NodeRequests(both, "n1", clock=FakeClock()).look().text


def test_requests_are_listed_less_and_less_often_and_read_one_by_one_in_between():
    cluster, clock = Cluster(request()), FakeClock()
    requests = NodeRequests(cluster, "n1", clock=clock)
    for _ in range(120):
        assert requests.look().text == PENDING
        clock.advance(1)
    assert cluster.calls.count("list certificatesigningrequests") == 5
    assert cluster.calls.count("create selfsubjectreviews") == 1
    assert requests.look(thoroughly=True).text == PENDING
    assert cluster.calls.count("list certificatesigningrequests") == 6


def test_a_deleted_request_is_searched_again():
    cluster = Cluster(request("csr-1"))
    requests = NodeRequests(cluster, "n1", clock=FakeClock())
    assert "csr-1 is Pending" in requests.look().text
    cluster.requests = [request("csr-2", "Denied")]
    assert "csr-2 was denied" in requests.look().text
    cluster.requests = []
    assert requests.look() is None


def test_a_node_without_permission_to_request_gets_the_missing_binding():
    cluster = Cluster(asks=False)
    cluster.refuses["list certificatesigningrequests"] = Forbidden("no", code=403)
    status = NodeRequests(cluster, "n1", clock=FakeClock()).look()
    assert status.text == (
        "no certificate can be requested: system:bootstrap:abcdef (system:bootstrappers, system:bootstrappers:kubeadm:default-node-token) is"
        " not bound to ClusterRole system:node-bootstrapper; kubeadm binds group system:bootstrappers:kubeadm:default-node-token to it with"
        " ClusterRoleBinding kubeadm:kubelet-bootstrap"
    )
    assert "init phase bootstrap-token" in status.remedy
    cluster.asks = True
    assert NodeRequests(cluster, "n1", clock=FakeClock()).look() is None  # it has the permission, but may not read the requests


def test_a_token_that_is_no_longer_accepted_is_reported():
    cluster = Cluster()
    cluster.refuses["list certificatesigningrequests"] = Unauthorized("who?", code=401)
    status = NodeRequests(cluster, "n1", clock=FakeClock()).look()
    assert "no longer accepts the token" in status.text
    assert "token create --print-join-command" in status.remedy


@pytest.mark.parametrize("call", ["list certificatesigningrequests", "create selfsubjectreviews", "create selfsubjectaccessreviews"])
def test_a_server_that_does_not_answer_gives_no_reason(call):
    cluster = Cluster(request())
    cluster.refuses[call] = APIError("lost")
    status = NodeRequests(cluster, "n1", clock=FakeClock()).look()
    assert (status and status.text) == (STATES[0][2] if "access" in call else None)
