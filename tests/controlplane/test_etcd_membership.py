"""Membership of a real etcd cluster: a member added, promoted and removed, one at a time, with members that are dead or never came."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from etcd_kit import Cluster
from local_kit import binaries_version, eventually, program

from kubewright.base.change import Action
from kubewright.base.clock import FakeClock, SystemClock
from kubewright.base.errors import APIError, Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter, Waiting
from kubewright.base.records import replace
from kubewright.base.wait import InstantWaiter, PollingWaiter
from kubewright.etcd import voters
from kubewright.etcd.api import (
    Credentials,
    LearnerNotInSync,
    MemberExists,
    MemberNotFound,
    NotLearner,
    TooManyLearners,
    UnhealthyCluster,
    by_peer_url,
    initial_cluster,
    quorum,
)
from kubewright.etcd.client import EtcdClient
from kubewright.etcd.membership import EtcdMember, Joining, remove_member
from kubewright.etcd.recording import RecordingEtcd
from kubewright.etcd.voters import Voters
from kubewright.http.failures import NoAnswer, Reason

PATIENCE = 600.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster of one member, `one`."""
    made = Cluster(tmp_path)
    try:
        made.start("one")
        client = made.client("one")
        _joining(client).look()
        client.close()
        yield made
    finally:
        made.stop()


def _joining(client: EtcdClient, *, reporter: RecordingReporter | None = None, within: float = PATIENCE) -> Joining:
    clock = SystemClock()
    return Joining(etcd=client, clock=clock, waiter=PollingWaiter(clock=clock, reporter=reporter or RecordingReporter()), within=within)


def _member(cluster: Cluster, name: str) -> EtcdMember:
    return EtcdMember(name=name, peer_url=cluster.peer(name), has_data=(cluster.root / f"{name}.data" / "member").is_dir())


def _start(cluster: Cluster, joining: Joining, name: str) -> None:
    cluster.start(name, cluster=initial_cluster(joining.look(), name=name, peer_url=cluster.peer(name)))


def _join(cluster: Cluster, name: str, *, reporter: RecordingReporter | None = None) -> None:
    joining = _joining(cluster.client("one"), reporter=reporter)
    joining.add(_member(cluster, name))
    _start(cluster, joining, name)
    joining.promote(_member(cluster, name))
    _require_named(cluster, joining, name)


def _require_named(cluster: Cluster, joining: Joining, name: str) -> None:
    """Wait until the others know a member by its name: it tells them in its own time, also after it has got its vote."""

    def named() -> bool:
        found = by_peer_url(joining.look(), cluster.peer(name))
        return found is not None and found.name == name

    eventually(named, f"{name} to tell its name")


def test_a_member_is_added_learns_and_votes(cluster: Cluster) -> None:
    client = cluster.client("one")
    joining = _joining(client)
    assert client.reach(cluster.peer("one")) == ""  # though it hangs up: the client's certificate has a name of another host
    assert cluster.peer("two") in client.reach(cluster.peer("two"))  # nobody is there yet
    assert joining.add(_member(cluster, "two")).action is Action.CREATE
    added = by_peer_url(joining.look(), cluster.peer("two"))
    assert added is not None
    assert (added.name, added.learner) == ("", True)
    _start(cluster, joining, "two")
    assert joining.promote(_member(cluster, "two")).action is Action.UPDATE
    _require_named(cluster, joining, "two")
    assert sorted((member.name, member.learner) for member in joining.look()) == [("one", False), ("two", False)]
    # a second time nothing is left to do
    assert joining.add(_member(cluster, "two")).action is Action.NONE
    assert joining.promote(_member(cluster, "two")).action is Action.NONE


def test_a_killed_run_continues_with_the_learner_that_it_added(cluster: Cluster) -> None:
    client = cluster.client("one")
    client.add_learner(cluster.peer("two"))
    joining = _joining(client)
    assert joining.add(_member(cluster, "two")).action is Action.NONE
    _start(cluster, joining, "two")
    joining.promote(_member(cluster, "two"))
    assert len(joining.look()) == 2


def test_a_member_whose_data_is_lost_is_added_again(cluster: Cluster) -> None:
    client = cluster.client("one")
    _join(cluster, "two")
    _join(cluster, "three")
    joining = _joining(client)
    before = by_peer_url(joining.look(), cluster.peer("three"))
    cluster.kill("three")
    change = joining.add(EtcdMember(name="three", peer_url=cluster.peer("three"), has_data=False))
    assert change.action is Action.UPDATE
    after = by_peer_url(joining.look(), cluster.peer("three"))
    assert before is not None
    assert after is not None
    assert (after.id != before.id, after.learner, after.name) == (True, True, "")


def test_refusals_have_classes(cluster: Cluster) -> None:
    client = cluster.client("one")
    (one,) = client.members()
    client.add_learner(cluster.peer("two"))
    two = by_peer_url(client.members(), cluster.peer("two"))
    assert two is not None
    with pytest.raises(MemberExists):
        client.add_learner(cluster.peer("two"))
    with pytest.raises(TooManyLearners):
        client.add_learner(cluster.peer("three"))
    with pytest.raises(LearnerNotInSync):
        client.promote(two.id)
    with pytest.raises(NotLearner):
        client.promote(one.id)
    with pytest.raises(MemberNotFound):
        client.promote(4711)
    with pytest.raises(MemberNotFound):
        client.remove(4711)
    assert client.alarms() == []


def test_two_members_that_join_at_once_take_turns(cluster: Cluster) -> None:
    """The second one begins while the first is a learner, and goes on when that has its vote."""
    reporter = RecordingReporter()
    for name in ("two", "three"):
        cluster.address(name)
    first = _joining(cluster.client("one"))
    first.add(_member(cluster, "two"))
    with ThreadPoolExecutor(1) as threads:  # a member ends with the thread that started it
        second = threads.submit(_join, cluster, "three", reporter=reporter)
        eventually(lambda: any("one learner at a time" in reason for reason in _waits(reporter)), "the second one to wait for its turn")
        _start(cluster, first, "two")
        first.promote(_member(cluster, "two"))
        _require_named(cluster, first, "two")
        second.result(600)
        members = first.look()
    assert sorted((member.name, member.learner) for member in members) == [("one", False), ("three", False), ("two", False)]


def _waits(reporter: RecordingReporter) -> list[str]:
    return [event.reason for event in reporter.events if isinstance(event, Waiting)]


def test_a_learner_that_never_came_up_is_named_with_the_way_to_remove_it(cluster: Cluster) -> None:
    client = cluster.client("one")
    client.add_learner(cluster.peer("lost"))
    lost = by_peer_url(client.members(), cluster.peer("lost"))
    assert lost is not None
    with pytest.raises(WaitTimeout) as caught:
        _joining(client, within=5).add(_member(cluster, "two"))
    assert cluster.peer("lost") in caught.value.detail
    assert "has not started yet" in caught.value.detail
    assert f"etcdctl member remove {lost.hex_id}" in caught.value.remedy
    assert len(client.members()) == 2


def test_a_learner_that_never_came_up_is_removed_after_ten_minutes(cluster: Cluster) -> None:
    """Its ID tells when it was added."""
    client, later = cluster.client("one"), FakeClock(SystemClock().now() + timedelta(minutes=11))
    client.add_learner(cluster.peer("lost"))
    joining = replace(_joining(client), clock=later)
    change = joining.add(_member(cluster, "two"))
    assert (change.action, cluster.peer("lost") in change.reason) == (Action.CREATE, True)
    assert sorted(member.peer_urls[0] for member in client.members()) == sorted(map(cluster.peer, ("one", "two")))


def test_a_learner_that_does_not_start_is_reported(cluster: Cluster) -> None:
    joining = _joining(cluster.client("one"), within=5)
    joining.add(_member(cluster, "two"))
    with pytest.raises(WaitTimeout) as caught:
        joining.promote(_member(cluster, "two"))
    assert "has not started, or is not in sync" in caught.value.detail


def test_a_member_is_removed_by_its_peer_url(cluster: Cluster) -> None:
    client, clock = cluster.client("one"), SystemClock()
    assert remove_member(client, cluster.peer("one"), clock=clock, within=PATIENCE).reason == "it is the only member"
    _join(cluster, "two")
    assert remove_member(client, cluster.peer("two"), clock=clock, within=PATIENCE).action is Action.DELETE
    assert remove_member(client, cluster.peer("two"), clock=clock, within=PATIENCE).reason == "it is not a member"
    assert [member.name for member in _joining(client).look()] == ["one"]


def test_a_dead_member_is_reported_and_the_others_are_queried(cluster: Cluster) -> None:
    _join(cluster, "two")
    _join(cluster, "three")
    client = cluster.client("one", "two", "three")
    client.follow(_joining(client).look())
    eventually(lambda: all(status.serves for status in client.statuses()), "all of them to be healthy")
    cluster.kill("two")
    health = {cluster.url("one"): True, cluster.url("two"): False, cluster.url("three"): True}
    eventually(lambda: {status.endpoint: status.serves for status in client.statuses()} == health, "the others to have a leader")
    eventually(lambda: quorum(client.statuses()), "a quorum")
    assert len(_joining(client).look()) == 3  # asked of those that answer
    looks: list[Voters] = []

    def two_is_dead() -> bool:
        looks.append(voters.look(client))
        return [one.member.name for one in looks[-1].dead] == ["two"]

    eventually(two_is_dead, "only the killed one to count as dead: on a busy machine the others may be electing a leader just now")
    found = looks[-1]
    assert sorted(one.name for one in found.living) == ["one", "three"]
    assert f"two at {cluster.peer('two')}: {cluster.url('two')}: " in found.dead[0].reason
    assert found.has_quorum
    with pytest.raises(UnhealthyCluster):  # which is why nobody joins before that
        client.add_learner(cluster.peer("four"))
    eventually(lambda: voters.look(client, without=cluster.peer("two")).dead == [], "the others to have a leader")


def test_without_quorum_the_reason_is_reported(cluster: Cluster) -> None:
    _join(cluster, "two")
    cluster.kill("two")
    client = cluster.client("one", "two", timeout=5)  # some requests are never answered
    statuses = client.statuses()
    assert not quorum(statuses)
    assert len(client.members(agreed=False)) == 2  # as one of them remembers
    with pytest.raises(APIError) as caught:
        _joining(client, within=5).look()
    assert str(caught.value)
    assert caught.value.remedy
    with pytest.raises(APIError):
        remove_member(client, cluster.peer("two"), clock=SystemClock(), within=5)


def test_clients_without_a_certificate_are_refused(cluster: Cluster) -> None:
    client = EtcdClient([cluster.url("one")], credentials=Credentials(ca=cluster.authority.cert_pem.bytes()))
    with pytest.raises(Unreachable) as caught:
        client.members()
    assert isinstance(caught.value, NoAnswer)
    assert caught.value.reason in {Reason.TLS, Reason.RESET}


def test_a_plan_shows_the_member_and_adds_none(cluster: Cluster) -> None:
    client = cluster.client("one")
    recording = RecordingEtcd(client)
    joining = Joining(etcd=recording, clock=SystemClock(), waiter=InstantWaiter(), within=1)
    change = joining.add(_member(cluster, "two"))
    assert (change.action, change.target) == (Action.CREATE, f"member two at {cluster.peer('two')}")
    joining.promote(_member(cluster, "two"))
    assert [verb for verb, _ in recording.actions] == ["add"]
    assert len(client.members()) == 1


EXTERNAL = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 10.98.0.11}}
nodeRegistration: {{name: localhost, criSocket: "unix:///none/containerd.sock", imagePullPolicy: Never}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: {version}
etcd: {{external: {{endpoints: ["{url}"]}}}}
"""


def test_an_external_etcd_that_speaks_plain_http_passes_preflight_as_with_kubeadm(tmp_path: Path) -> None:
    made = Cluster(tmp_path)
    try:
        url = made.start_plain("one")
        client = EtcdClient([url], credentials=None)
        eventually(lambda: client.status(url).serves, "etcd to answer")
        (tmp_path / "kubeadm.yaml").write_text(EXTERNAL.format(version=binaries_version(), url=url))
        words = ["init", "phase", "preflight", f"--config={tmp_path}/kubeadm.yaml", "--ignore-preflight-errors=all"]
        for tool in ([program("kubeadm")], [sys.executable, "-m", "kubewright"]):
            done = subprocess.run([*tool, *words], check=False, capture_output=True, text=True, timeout=900)
            assert done.returncode == 0, done.stderr
            assert done.stderr.count("[WARNING CRI]") == 1
            assert "ExternalEtcd" not in done.stderr
    finally:
        made.stop()


def test_a_member_that_has_lost_its_data_neither_makes_a_cluster_of_its_own_nor_comes_back(cluster: Cluster) -> None:
    """With the manifest that an upgrade or a restore writes: only the member itself, in a cluster that exists."""
    own = f"one={cluster.peer('one')}"
    client = cluster.client("one")
    [before] = _joining(client).look()
    cluster.kill("one")
    cluster.start("one", cluster=own)  # with its data these flags mean nothing
    assert _joining(client).look() == [before]
    cluster.kill("one")
    (cluster.root / "one.data").rename(cluster.root / "one.lost")
    cluster.start("one", cluster=own)
    assert cluster.processes["one"].wait(timeout=900) != 0
    assert "could not retrieve cluster information" in (cluster.root / "one.log").read_text()
    with pytest.raises(Unreachable):
        client.members(agreed=False)
    client.close()
