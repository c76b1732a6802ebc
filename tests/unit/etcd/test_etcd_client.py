"""The client of etcd with fake transports: which endpoint is used, what its responses mean, and that no response breaks it."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import APIError, Unreachable
from kubewright.etcd import alarms, api
from kubewright.etcd.api import Alarm, EtcdError, Member, Status, by_peer_url, initial_cluster, quorum, refusal
from kubewright.etcd.client import EtcdClient
from kubewright.http.failures import Reason, no_answer
from kubewright.http.messages import Response

ONE = Member(id=10, name="one", peer_urls=("https://10.0.0.1:2380",), client_urls=("https://10.0.0.1:2379",))
NEW = Member(id=0x2A, peer_urls=("https://10.0.0.2:2380",), learner=True)
TWO = Member(id=11, name="two", peer_urls=("https://10.0.0.3:2380",), client_urls=("https://10.0.0.3:2379",), learner=True)


class Endpoints:
    """The response of each endpoint: a status and a body, or nothing."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, object]] = []
        self.patience: set[float] = set()
        self.together = threading.Barrier(1)
        self.closed = 0

    def make(self, endpoint):
        return _Transport(self, endpoint)

    def client(self):
        return EtcdClient([f"https://{name}:2379" for name in self.answers], credentials=None, transport=self.make)


class _Transport:
    def __init__(self, endpoints, endpoint) -> None:
        self.endpoints, self.endpoint = endpoints, endpoint

    def request(self, method, target, /, *, headers, body, timeout):
        assert method == "POST"
        name = self.endpoint.removeprefix("https://").removesuffix(":2379")
        self.endpoints.asked.append((name, target, json.loads(body)))
        self.endpoints.patience.add(timeout)
        self.endpoints.together.wait(600)
        answer = self.endpoints.answers[name]
        if answer is None:
            raise no_answer(self.endpoint, method, target, Reason.REFUSED)
        status, content = answer
        return Response(status=status, body=content if isinstance(content, bytes) else json.dumps(content).encode())

    def close(self):
        self.endpoints.closed += 1


def listed(*members: Member):
    rows = [{"ID": str(one.id), "name": one.name, "peerURLs": list(one.peer_urls), "clientURLs": list(one.client_urls)} for one in members]
    for row, one in zip(rows, members, strict=True):
        if one.learner:
            row["isLearner"] = True
    return 200, {"header": {}, "members": rows}


def refused(said, code=9):
    return 400, {"code": code, "message": said}


def test_members_are_read_from_the_response():
    endpoints = Endpoints(one=listed(ONE, NEW))
    assert endpoints.client().members() == [ONE, NEW]
    assert endpoints.asked == [("one", "/v3/cluster/member/list", {"linearizable": True})]


def test_keys_below_a_prefix_are_those_of_one_member_without_their_values():
    rows = [{"key": "L2EvYg==", "version": "1"}, {"key": "L2EvYw==", "version": "1"}]
    endpoints = Endpoints(one=(200, {"kvs": rows}), two=(200, {"header": {}}), three=(200, {"kvs": [{"key": "/"}]}), four=(200, [1]))
    client = endpoints.client()
    assert client.keys("https://one:2379", "/a/") == ["/a/b", "/a/c"]
    wanted = {"key": "L2Ev", "range_end": "L2Ew", "keys_only": True, "serializable": True}  # from /a/ to /a0
    assert endpoints.asked == [("one", "/v3/kv/range", wanted)]
    assert client.keys("https://two:2379", "/a/") == []
    for name in ("three", "four"):
        with pytest.raises(Unreachable, match="did not answer as etcd does when asked to list the keys below /a/"):
            client.keys(f"https://{name}:2379", "/a/")


def test_a_dead_endpoint_is_skipped_and_tried_last_afterwards():
    endpoints = Endpoints(dead=None, one=listed(ONE))
    client = endpoints.client()
    client.members()
    client.members()
    assert [name for name, _, _ in endpoints.asked] == ["dead", "one", "one"]


def test_a_member_without_quorum_or_vote_is_skipped_and_a_refusal_is_not():
    endpoints = Endpoints(
        lost=refused("etcdserver: no leader"), young=refused("etcdserver: rpc not supported for learner", 14), one=listed(ONE)
    )
    assert endpoints.client().members() == [ONE]
    endpoints = Endpoints(one=refused("etcdserver: too many learner members in cluster"), two=listed(ONE))
    with pytest.raises(api.TooManyLearners):
        endpoints.client().add_learner("https://10.0.0.9:2380")
    assert len(endpoints.asked) == 1


def test_the_errors_of_all_endpoints_are_reported():
    with pytest.raises(Unreachable, match="none of 2 members of etcd can be asked to") as caught:
        Endpoints(a=None, b=None).client().members()
    assert [f"https://{name}:2379" in line for name, line in zip("ab", caught.value.detail.splitlines(), strict=True)] == [True, True]
    assert "more than half of the members run" in caught.value.remedy
    with pytest.raises(api.NoQuorum):
        Endpoints(a=None, b=refused("etcdserver: no leader")).client().members()
    with pytest.raises(Unreachable, match="https://a:2379"):
        Endpoints(a=None).client().members()
    with pytest.raises(Unreachable):
        EtcdClient([], credentials=None).members()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("etcdserver: can only promote a learner member which is in sync with leader", api.LearnerNotInSync),
        ("etcdserver: can only promote a learner member", api.NotLearner),
        ("etcdserver: too many learner members in cluster", api.TooManyLearners),
        ("etcdserver: Peer URLs already exists", api.MemberExists),
        ("etcdserver: member ID already exist", api.MemberExists),
        ("etcdserver: member not found", api.MemberNotFound),
        ("etcdserver: unhealthy cluster", api.UnhealthyCluster),
        ("etcdserver: re-configuration failed due to not enough started members", api.UnhealthyCluster),
        ("etcdserver: rpc not supported for learner", api.StillLearning),
        ("etcdserver: no leader", api.NoQuorum),
        ("etcdserver: leader changed", api.NoQuorum),
        ("etcdserver: request timed out", api.NoQuorum),
        ("etcdserver: request timed out, possibly due to connection lost", api.NoQuorum),
        ("etcdserver: server stopped", api.NoQuorum),
        ("context deadline exceeded", api.NoQuorum),
        ("etcdserver: the local member is not connected to the cluster", api.NoQuorum),
        ("something else", EtcdError),
    ],
)
def test_every_refusal_has_an_error_class_and_a_hint(said, kind):
    error = refusal({"code": 2, "message": said}, server="https://one:2379", doing="do it")
    assert type(error) is kind
    assert error.remedy
    assert said in error.detail


def test_an_unavailable_server_counts_as_without_quorum():
    assert type(refusal({"code": 14, "message": "transport is closing"}, server="s", doing="d")) is api.NoQuorum


@given(
    body=st.binary(max_size=60)
    | st.builds(
        lambda value: json.dumps(value).encode(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["members", "ID", "header", "code", "message"]), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    ),
    status=st.sampled_from([200, 400, 500]),
)
def test_no_response_causes_an_internal_error(body, status):
    client = Endpoints(one=(status, body)).client()
    for ask in (client.members, client.alarms, lambda: client.promote(1)):
        try:
            ask()
        except APIError as error:
            assert error.what
    assert isinstance(client.status("https://one:2379"), Status)


def test_started_members_are_followed_learners_last():
    client = Endpoints(pod=listed(ONE)).client()
    client.follow([TWO, ONE, NEW])
    assert client.endpoints == ("https://10.0.0.1:2379", "https://10.0.0.3:2379")
    client.follow([NEW])
    assert client.endpoints == ("https://10.0.0.1:2379", "https://10.0.0.3:2379")


def test_a_member_serves_if_it_follows_a_leader_even_with_an_alarm():
    well = {"header": {"member_id": "10"}, "leader": "10", "version": "3.6.8"}
    endpoints = Endpoints(
        one=(200, well), full=(200, {**well, "errors": ["memberID:1 alarm:NOSPACE"]}), dead=None, lost=(200, {**well, "leader": "0"})
    )
    one, full, dead, lost = endpoints.client().statuses()
    assert (one.serves, one.version, one.reason) == (True, "3.6.8", "")
    assert (full.serves, full.reason) == (True, "")
    assert alarms.reported([one, full, dead, full]) == [Alarm(member_id=1, kind="NOSPACE")]
    assert "connection refused" in dead.reason
    assert "no leader" in lost.reason
    assert quorum([one, full, dead])
    assert not quorum([one, dead])
    assert not quorum([])


def test_a_peer_port_is_reachable_if_anything_answers():
    asked = []

    class Peer:
        def __init__(self, endpoint) -> None:
            self.endpoint = endpoint

        def request(self, method, target, /, *, timeout, headers=None, body=None):
            asked.append((method, self.endpoint + target))
            if "10.0.0.3" in self.endpoint:
                raise no_answer(self.endpoint, method, target, Reason.REFUSED)
            return Response(status=404, body=b"")

        def close(self):
            return

    client = EtcdClient(["https://10.0.0.1:2379"], credentials=None, transport=Peer)
    assert client.reach("https://10.0.0.1:2380") == ""
    assert "https://10.0.0.3:2380" in client.reach("https://10.0.0.3:2380")
    assert asked == [("GET", "https://10.0.0.1:2380/version"), ("GET", "https://10.0.0.3:2380/version")]


def test_a_dead_member_takes_two_seconds_at_most_because_all_are_asked_at_once():
    endpoints = Endpoints(one=None, two=None, three=None)
    endpoints.together = threading.Barrier(3)  # nothing answers before all are asked
    assert [status.serves for status in endpoints.client().statuses()] == [False] * 3
    assert endpoints.patience == {2}


def test_alarms_are_read():
    endpoints = Endpoints(one=(200, {"alarms": [{"memberID": "10", "alarm": "NOSPACE"}]}))
    assert [(alarm.member_id, alarm.kind) for alarm in endpoints.client().alarms()] == [(10, "NOSPACE")]


def test_the_initial_cluster_names_all_members_in_order():
    members = [NEW, ONE, Member(id=0x2B, peer_urls=("https://10.0.0.9:2380",))]
    assert initial_cluster(members, name="two", peer_url=NEW.peer_urls[0]) == (
        "two=https://10.0.0.2:2380,one=https://10.0.0.1:2380,2b=https://10.0.0.9:2380"
    )
    assert by_peer_url(members, "https://10.0.0.1:2380") is ONE
    assert by_peer_url(members, "https://10.0.0.7:2380") is None


def test_closing_twice_closes_once():
    endpoints = Endpoints(one=listed(ONE))
    client = endpoints.client()
    client.members()
    client.close()
    client.close()
    assert endpoints.closed == 1
