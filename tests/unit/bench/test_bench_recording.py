"""Reading from an audit log what each node sent, and adapting it to another cluster when it is sent again."""

from __future__ import annotations

import json

from tests.bench import recording
from tests.bench.replay import AT_ONCE, _body, _Known, _learn, _target

NODES = ["a-worker-1", "a-worker-2"]
CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def event(number, user, verb, uri, *, code=200, body=None, stage="ResponseComplete", at=None):
    found = {
        "auditID": f"id-{number}",
        "stage": stage,
        "requestURI": uri,
        "verb": verb,
        "user": {"username": user},
        "responseStatus": {"code": code},
        "requestReceivedTimestamp": f"2026-11-21T12:00:{number if at is None else at:02}.000000Z",
    }
    return json.dumps(found if body is None else {**found, "requestObject": body}) + "\n"


LOG = [
    event(1, "system:anonymous", "get", "/api/v1/namespaces/kube-public/configmaps/cluster-info"),
    event(2, "system:anonymous", "get", "/livez"),
    event(3, "system:anonymous", "get", "/api/v1/namespaces/kube-public/configmaps/cluster-info"),
    event(4, "system:bootstrap:abcdef", "create", CSRS, code=403, body={"kind": "CertificateSigningRequest"}),
    event(5, "system:bootstrap:abcdef", "create", CSRS, code=201, body={"number": 1}),
    event(6, "system:bootstrap:abcdef", "create", CSRS, code=201, body={"number": 2}),
    event(7, "system:bootstrap:abcdef", "watch", f"{CSRS}?fieldSelector=metadata.name%3Dcsr-a&watch=true"),
    event(8, "system:bootstrap:abcdef", "watch", f"{CSRS}?fieldSelector=metadata.name%3Dcsr-b&watch=true"),
    event(11, "system:node:a-worker-1", "patch", "/api/v1/nodes/a-worker-1/status", body={"status": {}}),
    event(10, "system:node:a-worker-1", "create", "/api/v1/nodes", code=201, body={"kind": "Node"}),
    event(12, "system:node:a-worker-1", "patch", "/api/v1/namespaces/kube-system/pods/kube-proxy-x/status", body={}),
    event(13, "system:node:a-worker-1", "watch", "/api/v1/pods?watch=true&resourceVersion=77", stage="ResponseStarted"),
    event(14, "system:node:a-control-plane", "get", "/api/v1/nodes/a-control-plane"),
]


def test_every_node_gets_what_it_sent_in_order():
    first, second = recording.joins(LOG, NODES)
    assert [(one.method, one.target) for one in first.own] == [
        ("POST", "/api/v1/nodes"),
        ("PATCH", "/api/v1/nodes/a-worker-1/status"),
        ("GET", "/api/v1/pods?watch=true&resourceVersion=77"),
    ]
    assert [one.watch for one in first.own] == [False, False, True]
    assert [one.content_type for one in first.own] == ["application/json", "application/strategic-merge-patch+json", ""]
    assert second.own == ()


def test_requests_that_name_no_node_are_distributed():
    first, second = recording.joins(LOG, NODES)
    assert [len(join.anonymous) for join in (first, second)] == [1, 1]
    assert [one.body for one in first.token] == [{"number": 1}, None]
    assert [one.body for one in second.token] == [{"number": 2}, None]
    assert (first.count, second.count) == (6, 3)


def test_a_watch_that_ended_counts_once():
    lines = [
        event(1, "system:node:a-worker-1", "watch", "/api/v1/pods?watch=true", stage=stage)
        for stage in ("ResponseStarted", "ResponseComplete")
    ]
    assert recording.joins(lines, NODES)[0].count == 1


def test_values_of_the_server_are_taken_from_its_responses():
    known = _Known()
    _learn(b'{"kind": "CertificateSigningRequest", "metadata": {"name": "csr-new", "resourceVersion": "9"}}', known)
    target = f"{CSRS}?fieldSelector=metadata.name%3Dcsr-old12&resourceVersion=1234&watch=true"
    assert _target(target, known) == f"{CSRS}?fieldSelector=metadata.name%3Dcsr-new&resourceVersion=9&watch=true"
    _learn(b'{"kind": "Node", "metadata": {"name": "a-worker-1", "uid": "u-1", "resourceVersion": "10"}}', known)
    lease = {"kind": "Lease", "metadata": {"name": "a-worker-1", "ownerReferences": [{"uid": "u-0", "kind": "Node"}]}}
    assert json.loads(_body(lease, known) or b"") == {
        "kind": "Lease",
        "metadata": {"name": "a-worker-1", "ownerReferences": [{"uid": "u-1", "kind": "Node"}]},
    }
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "u-0"


def test_an_update_carries_the_version_of_its_own_object():
    known = _Known()
    _learn(b'{"kind": "Lease", "metadata": {"name": "a-worker-1", "resourceVersion": "20", "uid": "u-2"}}', known)
    _learn(b'{"kind": "PodList", "metadata": {"resourceVersion": "31"}}', known)
    renewed = {"kind": "Lease", "metadata": {"name": "a-worker-1", "resourceVersion": "7", "uid": "u-0"}}
    assert json.loads(_body(renewed, known) or b"")["metadata"] == {"name": "a-worker-1", "resourceVersion": "20", "uid": "u-2"}
    assert _target("/api/v1/pods?resourceVersion=5&watch=true", known) == "/api/v1/pods?resourceVersion=31&watch=true"


def test_the_loop_has_the_concurrency_of_the_fleet():
    from kubewright.fleet.nodes import JOINS

    assert AT_ONCE == JOINS
