"""The health of etcd's members, and finding etcd's endpoints, with synthetic answers and manifests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, CertificateError, CheckFailed, HostError, Unreachable, UsageError
from kubewright.base.records import replace
from kubewright.etcd.api import Member, Status
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.desired import Directory, File
from kubewright.host.real import RealHost
from kubewright.lifecycle.etcd import access, health
from kubewright.lifecycle.etcd.access import EtcdFlags

NAMES = ("one", "two", "three")


def member(number: int, **more: Any) -> Member:
    """Return the member of a machine by its number."""
    urls = {"peer_urls": (f"https://10.0.0.{number}:2380",), "client_urls": (f"https://10.0.0.{number}:2379",)}
    return Member(**{"id": number, "name": NAMES[number - 1], **urls, **more})


def status(number: int, **more: Any) -> Status:
    """Return the status of a member that follows the first one."""
    return Status(**{"endpoint": f"https://10.0.0.{number}:2379", "member_id": number, "leader_id": 1, "cluster_id": 7, **more})


class FakeEtcd(RecordingEtcd):
    """Returns the configured answers: members, or an error in their place; statuses."""

    def __init__(self, members: Sequence[Member] | APIError, statuses: Sequence[Status]) -> None:
        super().__init__()
        self._told = members
        self._statuses = {one.endpoint: one for one in statuses}

    def members(self, *, agreed: bool = True) -> list[Member]:
        if isinstance(self._told, APIError):
            raise self._told
        return self._members if self._members is not None else list(self._told)

    def statuses(self) -> list[Status]:
        return list(self._statuses.values())

    def status(self, endpoint: str, /) -> Status:
        return self._statuses.get(endpoint) or Status(endpoint=endpoint, problem="refused")

    def reach(self, peer_url: str, /) -> str:
        return "" if self.status(peer_url.replace("2380", "2379")).problem == "" else "refused"


THREE = [member(number) for number in (1, 2, 3)]


def test_serving_members_have_no_problems() -> None:
    found = health.look(FakeEtcd(THREE, [status(1), status(2), status(3)]))
    assert (found.problems, found.has_majority, found.serving) == ([], True, 3)
    assert [one.leads for one in found.members] == [True, False, False]
    found.require_healthy()
    assert found.as_map()["leader"] == "one"


@pytest.mark.parametrize(
    ("statuses", "majority", "problems", "remedy"),
    [
        ([status(1), status(2), status(3, problem="refused", leader_id=0)], True, ["three: refused"], "etcd member remove NAME"),
        (
            [status(1, problem="refused"), status(2, problem="refused"), status(3, leader_id=0, errors=("etcdserver: no leader",))],
            False,
            [
                "one: refused",
                "two: refused",
                "three: it has no leader",
                "no majority: 0 of 3 voting members serve, so etcd takes no writes",
            ],
            "start the other members again",
        ),
        (
            [status(number, errors=("memberID:2 alarm:NOSPACE ",)) for number in (1, 2, 3)],
            True,
            ["two: alarm NOSPACE"],
            "etcdctl compaction, defrag, alarm disarm",
        ),
        (
            [status(1), status(2), status(3, errors=("memberID:99 alarm:CORRUPT ", "odd"))],
            True,
            ["three: odd", "63: alarm CORRUPT"],
            "disarm the alarm (etcdctl alarm disarm), and then replace the member",
        ),
        (
            [status(1), status(2), status(3, cluster_id=8)],
            True,
            ["the members are of different clusters"],
            "kubewright etcd member replace",
        ),
        ([status(1), status(2)], True, ["three: it was not queried"], "start"),
    ],
)
def test_each_problem_is_reported_once(statuses: list[Status], majority: bool, problems: list[str], remedy: str) -> None:
    found = health.look(FakeEtcd(THREE, statuses))
    assert (list(found.problems), found.has_majority) == (problems, majority)
    with pytest.raises(CheckFailed) as caught:
        found.require_healthy()
    assert caught.value.detail.splitlines() == problems
    assert remedy in caught.value.remedy
    assert found.as_map()["healthy"] is False


def test_learners_have_no_vote_and_unstarted_ones_are_reported() -> None:
    learner = member(3, learner=True)
    found = health.look(FakeEtcd([*THREE[:2], learner], [status(1), status(2), status(3, learner=True)]))
    assert (found.serving, len(found.voters), found.problems) == (2, 2, [])
    new = replace(learner, name="", client_urls=())
    found = health.look(FakeEtcd([*THREE[:2], new], [status(1), status(2)]))
    assert (found.problems, found.members[2].name) == (["3: it has never started"], "3")


def test_each_endpoint_is_reported_if_none_answers() -> None:
    found = health.look(FakeEtcd(Unreachable("nobody answers"), [Status(endpoint="https://10.0.0.1:2379", problem="refused")]))
    assert not found.has_majority
    assert list(found.problems) == ["no endpoint returns the members: nobody answers", "https://10.0.0.1:2379: refused"]
    with pytest.raises(CheckFailed) as caught:
        found.require_healthy()
    assert caught.value.remedy.startswith("find out why etcd does not run: `crictl ps -a --name etcd`")


@pytest.fixture
def host(tmp_path: Path) -> RealHost:
    """A machine without any file."""
    return RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={})


def _manifest(host: RealHost, name: str, **arguments: str) -> None:
    command = ", ".join(f'"--{key.replace("_", "-")}={value}"' for key, value in arguments.items())
    host.ensure(Directory(path=host.layout.manifests, mode=0o700))
    content = f"kind: Pod\nspec: {{containers: [{{command: [{name}, {command}]}}]}}\n"
    host.ensure(File(path=host.layout.manifest(name), content=content.encode(), mode=0o600))


def test_a_machine_with_a_member_uses_it_and_then_its_peers(host: RealHost) -> None:
    _manifest(
        host,
        "etcd",
        listen_client_urls="https://127.0.0.1:2379,https://10.0.0.1:2379",
        initial_advertise_peer_urls="https://10.0.0.1:2380",
        initial_cluster="one=https://10.0.0.1:2380,two=https://10.0.0.2:2380",
    )
    found = access.find(host, EtcdFlags())
    assert found.endpoints == ("https://127.0.0.1:2379", "https://10.0.0.1:2379", "https://10.0.0.2:2379")
    assert found.files is not None
    assert (found.member, found.files.key) == (True, host.layout.pki / "etcd/healthcheck-client.key")
    with pytest.raises(CertificateError, match="a file of it is missing") as caught:
        access.connect(host, found, clock=SystemClock())
    assert caught.value.detail.count("healthcheck-client") == 2


def test_a_machine_with_an_external_etcd_uses_the_settings_of_its_api_server(host: RealHost) -> None:
    files = {"etcd_cafile": "/srv/ca.crt", "etcd_certfile": "/srv/client.crt", "etcd_keyfile": "/srv/client.key"}
    _manifest(host, "kube-apiserver", etcd_servers="https://10.0.0.8:2379,https://10.0.0.9:2379", **files)
    found = access.find(host, EtcdFlags())
    assert found.endpoints == ("https://10.0.0.8:2379", "https://10.0.0.9:2379")
    assert found.files is not None
    assert (found.member, *map(str, (found.files.ca, found.files.certificate, found.files.key))) == (False, *files.values())


def test_given_endpoints_are_used_and_etcd_without_tls_needs_no_certificate(host: RealHost) -> None:
    found = access.find(host, EtcdFlags(endpoints=("http://127.0.0.1:9",), cert_dir="/elsewhere"))
    assert (found.endpoints, found.files, found.pki) == (("http://127.0.0.1:9",), None, PurePosixPath("/elsewhere"))
    client = access.connect(host, found, clock=SystemClock())  # nothing listens there: errors are reported when it is used
    assert client.endpoints == ("http://127.0.0.1:9",)
    assert [bool(one.problem) for one in client.statuses()] == [True]


@pytest.mark.parametrize("given", ["10.0.0.1:2379", "ftp://10.0.0.1", "https://", "https://[::1", "https://10.0.0.1:99999"])
def test_endpoints_that_are_no_urls_are_named(host: RealHost, given: str) -> None:
    for find in (lambda: access.find(host, EtcdFlags(endpoints=("https://10.0.0.2:2379", given))), lambda: access.require_urls([given])):
        with pytest.raises(UsageError, match=re.escape(f"--endpoints: {given} is not a client URL of etcd")) as caught:
            find()
        assert "https://10.0.0.1:2379" in caught.value.remedy


def test_a_machine_without_etcd_gives_a_hint(host: RealHost) -> None:
    with pytest.raises(HostError, match="the endpoints of etcd are not known on this machine") as caught:
        access.find(host, EtcdFlags())
    assert "--endpoints" in caught.value.remedy
