"""`etcd member replace` with a made-up machine and cluster: kills at each change, and refusals."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from certs_kit import ControlPlane, Machine1
from test_backup_restores import Killed, Kubelet
from test_etcd_health import FakeEtcd, member, status
from test_etcd_this_member import pod

from kubewright.base import records
from kubewright.base.clock import SystemClock, rfc3339_micro
from kubewright.base.durations import Duration
from kubewright.base.errors import CheckFailed, HostError, KubewrightError, UsageError, WaitTimeout
from kubewright.base.events import Line, RecordingReporter, Waited, Warned
from kubewright.base.randomness import SystemRandom
from kubewright.base.wait import Condition, InstantWaiter
from kubewright.etcd.api import Alarm, Hash, Member, NoQuorum, Status, TooManyLearners
from kubewright.etcd.membership import Joining
from kubewright.host.desired import File
from kubewright.http.messages import Response
from kubewright.kube.credentials import Access
from kubewright.kube.lease_rules import given_back
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import LEASE
from kubewright.lifecycle import engine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.etcd import replace
from kubewright.lifecycle.etcd.context import ReplaceContext
from kubewright.lifecycle.etcd.request import ReplaceOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.steps import checkpoint, operation_lease
from kubewright.lifecycle.steps.checkpoint import State
from kubewright.manifests.static_pods import ENDPOINT

ADDRESS = "10.0.0.1"
FLAGS = {
    "name": "one",
    "initial-advertise-peer-urls": f"https://{ADDRESS}:2380",
    "listen-client-urls": f"https://127.0.233.9:2379,https://{ADDRESS}:2379",
    "listen-peer-urls": f"https://{ADDRESS}:2380",
    "initial-cluster": f"one=https://{ADDRESS}:2380",
}
OTHERS = [member(2), member(3)]


class Looking(InstantWaiter):
    """Looks a few times, without pauses. `meanwhile` is called after each look in vain; `waits` are the limits."""

    def __init__(self, meanwhile: Callable[[], None], waits: dict[str, float]) -> None:
        super().__init__()
        self._meanwhile = meanwhile
        self._waits = waits

    def until(self, condition: Condition, /, *, within: float, saying: str, **more: Any) -> Waited:
        said, self._waits[saying] = None, within
        for _ in range(3):
            said = condition()
            if said is None:
                return Waited(what=saying, seconds=0.0)
            self._meanwhile()
        raise WaitTimeout(f"{saying}: {said}")


class Watch:
    """A diagnosis that knows nothing."""

    def explained(self, condition: Condition, /) -> Condition:
        return condition

    def diagnose(self) -> str:
        return ""

    remedy = diagnose


@records.dataclass(frozen=True, kw_only=True)
class Instant(TargetMachine):
    """A machine on which nothing takes time. `meanwhile` happens while it waits."""

    box: Any
    meanwhile: Callable[[], None] = lambda: None
    waits: dict[str, float] = records.field(default_factory=dict)

    def client(self, access: Access, *, timeout: float, proxied: bool = True) -> Any:
        return Servers(access.server, timeout, self.box)

    def waiter(self, reporter: Any) -> Looking:
        return Looking(self.meanwhile, self.waits)

    def diagnosis(self, names: Any, *, host: Any, bootstrap: Any = None) -> Any:
        return Watch()


class Cluster(FakeEtcd):
    """Three members, of which the first is this machine's. A member that is promoted has received its data."""

    def __init__(self, box: Box) -> None:
        super().__init__([member(1), *OTHERS], [])
        self.box = box
        self.raised: list[Alarm] = []
        self.differs = False
        self.starting = False
        self.elections = 0
        """How many requests for the members come while there is no leader."""

    def members(self, *, agreed: bool = True) -> list[Member]:
        if self.elections:
            self.elections -= 1
            raise NoQuorum("etcd has no leader")
        return super().members(agreed=agreed)

    def status(self, endpoint: str, /) -> Status:
        known = super().members()
        if "127.0.233.9" in endpoint:
            own = next((one for one in known if one.peer_urls == member(1).peer_urls), None)
            runs = own is not None and not self.starting and Path(self.box.layout.manifest("etcd")).exists()
            return (
                status(1, endpoint=endpoint, member_id=own.id if own else 0, learner=own.learner)
                if runs and own
                else self._refused(endpoint)
            )
        found = next((one for one in known if endpoint in one.client_urls), None)
        return status(found.id, endpoint=endpoint, leader_id=2) if found else self._refused(endpoint)

    def _refused(self, endpoint: str) -> Status:
        return Status(endpoint=endpoint, problem="refused")

    def statuses(self) -> list[Status]:
        return [self.status(url) for one in super().members() for url in one.client_urls]

    def alarms(self) -> list[Alarm]:
        return self.raised

    def hash(self, endpoint: str, /, *, revision: int = 0) -> Hash:
        return Hash(value=2 if self.differs and "127.0.233.9" in endpoint else 1, revision=revision, compact_revision=0)

    def remove(self, member_id: int, /) -> list[Member]:
        return self.box.effect(super().remove(member_id))

    def add_learner(self, peer_url: str, /) -> list[Member]:
        if any(one.learner for one in self.members()):
            raise TooManyLearners("too many learner members in cluster")
        return self.box.effect(super().add_learner(peer_url))

    def promote(self, member_id: int, /) -> list[Member]:
        data = Path(self.box.layout.etcd_data) / "member/db"
        data.parent.mkdir(exist_ok=True)
        data.write_bytes(b"of the others")
        return self.box.effect(super().promote(member_id))


class Servers(RecordingKube):
    """A client of an API server of the cluster; one whose URL is in `unready` says so."""

    def __init__(self, server: str, timeout: float, box: Box) -> None:
        super().__init__()
        self.server, self.timeout, self.box = server, timeout, box

    def send(self, call: Any, /) -> Any:
        self.box.limits.setdefault(call.name, set()).add(self.timeout)
        return self.box.kube.send(call)

    def close(self) -> None:
        pass

    def exchange(self, request: Any, /) -> Response:
        if self.box.starting:
            self.box.starting -= 1
            return Response(status=500, headers={}, body=b"[-]poststarthook/start-apiextensions-controllers failed\n")
        ready = not {self.server, "all"} & self.box.unready
        return Response(status=200 if ready else 500, headers={}, body=b"ok" if ready else b"[-]etcd failed\n")


@records.dataclass(frozen=True, kw_only=True)
class Context(ReplaceContext):
    """A run with the made-up cluster."""

    box: Any = None

    @functools.cached_property
    def own(self) -> Any:
        return self.bound.connections.etcd(lambda: self.box.etcd)

    @functools.cached_property
    def cluster(self) -> Any:
        return self.bound.connections.etcd(lambda: self.box.etcd)

    @property
    def own_server_ready(self) -> Condition:
        return lambda: (self.box.own_server or None) if self.box.etcd.members()[0] == member(1) else None


class Box:
    """A control plane of three, and what happens to it."""

    def __init__(self, root: Path, capsys: Any) -> None:
        self.root = root / "machine"
        plane = ControlPlane(self.root, capsys).fill(address=ADDRESS)
        self.layout = plane.layout
        data = {"name": "etcd-data", "hostPath": {"path": str(self.layout.etcd_data)}}
        server = pod("kube-apiserver", "x:v1.36.3", {"advertise-address": "127.0.233.9", "secure-port": "6443"}, volumes=[])
        for name, content in (("etcd", pod("etcd", "etcd:3.6.8-0", FLAGS, volumes=[data])), ("kube-apiserver", server)):
            plane.host.ensure(File(path=self.layout.manifest(name), content=content, mode=0o600))
        plane.host.ensure(File(path=self.layout.etcd_data / "member/db", content=b"old"))
        self.server = Path(self.layout.manifest("kube-apiserver")).read_bytes()
        shutil.copytree(self.root, root / "first")
        self.begin()

    def begin(self) -> None:
        """Let everything be as it was at first."""
        shutil.rmtree(self.root)
        shutil.copytree(self.root.with_name("first"), self.root)
        self.kube, self.unready, self.own_server = RecordingKube(), set[str](), ""
        self.starting = 0
        """How many answers to /readyz say that an API server has just been started."""
        self.etcd = Cluster(self)
        self.reporter, self.services = RecordingReporter(), Kubelet()
        self.done, self.dies = 0, 0
        self.meanwhile: Callable[[], None] = lambda: None
        self.waits: dict[str, float] = {}
        self.limits: dict[str | None, set[float]] = {}
        """The time limits of the requests for objects of a name, in seconds."""

    def effect(self, made: Any) -> Any:
        """Count an effect, if there was one, and return it; the run dies after one of them."""
        self.done += bool(made)
        if self.dies and self.done >= self.dies:
            raise Killed
        return made

    def run(self, *, mode: Mode = Mode.APPLY, dies: int = 0, **wish: Any) -> Any:
        host: Any = Machine1(layout=self.layout, services=self.services, environment={})
        self.done, self.dies = 0, dies

        def counted(verb: Callable[..., Any]) -> Callable[..., Any]:
            return lambda *arguments, **more: self.effect(verb(*arguments, **more))

        for name in ("ensure", "remove", "move"):
            setattr(host, name, counted(getattr(host, name)))
        row = records.replace(replace.ROW, context=lambda request, task, bound: Context(bound=bound, request=request, task=task, box=self))
        machine = Instant(
            at=lambda _: host,
            clock=SystemClock(),
            random=SystemRandom(),
            layout=self.layout,
            box=self,
            meanwhile=self.meanwhile,
            waits=self.waits,
        )
        return engine.run(row, ReplaceOptions(**{"yes": True, **wish}), machine, reporter=self.reporter, mode=mode)

    def states(self) -> list[State]:
        return [one.state for one in checkpoint.every(Machine1(layout=self.layout))]

    def said(self) -> list[str]:
        return [event.text for event in self.reporter.events if isinstance(event, (Line, Warned))]

    def require_unchanged(self) -> None:
        assert (self.etcd.actions, self.states(), self.services.running) == ([], [], False)
        assert (Path(self.layout.etcd_data) / "member/db").read_bytes() == b"old"


@pytest.fixture
def box(tmp_path: Path, capsys: Any) -> Box:
    return Box(tmp_path, capsys)


def _require_replaced(box: Box) -> None:
    [own] = [one for one in box.etcd.members() if one.peer_urls == member(1).peer_urls]
    assert (own.id > 3, own.learner, [one for one in box.etcd.members() if one is not own]) == (True, False, OTHERS)
    place = Path(box.layout.etcd_data)
    [aside] = place.glob("member.before-*")
    assert ((aside / "db").read_bytes(), (place / "member/db").read_bytes()) == (b"old", b"of the others")
    assert sorted(path.name.partition(".")[0] for path in place.iterdir()) == ["member", "member"]
    manifest = Path(box.layout.manifest("etcd")).read_text()
    assert [f"{one}=https://10.0.0.{number}:2380" in manifest for number, one in enumerate(("one", "two", "three"), 1)] == [True] * 3
    assert ("--initial-cluster-state=existing" in manifest, Path(box.layout.manifest("kube-apiserver")).read_bytes()) == (True, box.server)
    assert (box.states()[-1], box.services.running) == (State.DONE, True)


def test_a_member_is_removed_and_comes_back_with_the_data_of_the_others(box: Box) -> None:
    plan = box.run(mode=Mode.PLAN).plan
    assert any("renamed to" in change.reason for change in plan.changes)
    box.require_unchanged()
    box.run()
    _require_replaced(box)
    assert [verb for verb, _ in box.etcd.actions] == ["remove", "add", "promote"]
    spec = box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]
    assert (spec["holderIdentity"], [line for line in box.said() if "no API server is ready" in line]) == ("", [])


def test_a_replacement_waits_while_the_other_members_elect_a_leader(box: Box) -> None:
    box.etcd.elections = 3
    box.run()
    _require_replaced(box)
    assert box.etcd.elections == 0


def test_a_replacement_that_is_killed_after_a_change_continues_to_the_same_result(box: Box) -> None:
    killed = 0
    for number in range(1, 60):
        box.begin()
        try:
            box.run(dies=number)
        except Killed:
            killed += 1
            box.run()
            _require_replaced(box)
            assert [verb for verb, _ in box.etcd.actions] == ["remove", "add", "promote"]
            continue
        break
    assert 10 < killed == box.done < 50


def test_a_replacement_that_was_killed_keeps_a_member_whose_etcd_starts_at_this_moment(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    data, look, killed = Path(box.layout.etcd_data) / "member/db", Joining.look, 0
    while not (killed and Path(box.layout.manifest("etcd")).exists() and box.etcd.members()[-1].learner):
        box.begin()
        killed += 1
        with pytest.raises(Killed):
            box.run(dies=killed)
    assert not data.exists()

    def starting(joining: Joining) -> list[Member]:
        data.parent.mkdir(exist_ok=True)
        data.write_bytes(b"of the others")
        return [records.replace(one, name=one.name or "one") for one in look(joining)]

    monkeypatch.setattr(Joining, "look", starting)
    box.run()
    assert [verb for verb, _ in box.etcd.actions] == ["remove", "add", "promote"]
    monkeypatch.undo()
    _require_replaced(box)


@pytest.mark.parametrize(
    ("wish", "within", "serves"), [({}, 60.0, False), ({}, 60.0, True), ({"after": Duration.parse("5s")}, 5.0, False)], ids=str
)
def test_a_member_that_does_not_serve_gets_some_time_before_the_question(
    box: Box, wish: dict[str, Any], within: float, serves: bool
) -> None:
    asked: list[str] = []
    box.etcd.starting = True
    box.meanwhile = lambda: setattr(box.etcd, "starting", not serves)
    with pytest.raises(UsageError, match="the answer was not y"):
        box.run(yes=False, ask=lambda question: asked.append(question) or "n", **wish)
    assert (box.waits["the member to serve"], [" It serves now. " in one for one in asked]) == (within, [serves])
    box.require_unchanged()


def test_a_member_that_serves_is_asked_about_and_with_yes_any_is_replaced_at_once(box: Box) -> None:
    asked: list[str] = []
    with pytest.raises(UsageError, match="the answer was not y"):
        box.run(yes=False, ask=lambda question: asked.append(question) or "n")
    box.etcd.starting = True
    box.meanwhile = lambda: setattr(box.etcd, "starting", False)
    box.run()
    _require_replaced(box)
    assert ("the member to serve" in box.waits, [" It serves now. " in one for one in asked]) == (False, [True])


def test_a_replaced_member_that_serves_is_replaced_again_only_on_request(box: Box) -> None:
    box.run()
    assert (len(box.run(mode=Mode.PLAN).plan.changes), len(box.run().changes), box.said()[-1]) == (
        0,
        0,
        "one has been replaced already, and serves; nothing is changed. --again replaces it once more",
    )
    _require_replaced(box)
    assert len(box.run(mode=Mode.PLAN, again=True).plan.changes) > 3
    box.run(again=True)
    assert [verb for verb, _ in box.etcd.actions] == ["remove", "add", "promote"] * 2


@pytest.mark.parametrize("lost", ["its vote", "its data"])
def test_a_replaced_member_that_does_not_serve_is_replaced_again(box: Box, lost: str) -> None:
    box.run()
    if lost == "its data":
        box.etcd.differs = True
    else:
        box.etcd.remove(box.etcd.members()[-1].id)
    before = len(box.etcd.actions)
    with suppress(WaitTimeout):  # the data stays different
        box.run()
    assert [verb for verb, _ in box.etcd.actions[before:]] == [*(["remove"] if lost == "its data" else []), "add", "promote"]


def test_a_replacement_that_is_killed_repeatedly_continues_to_the_same_result(box: Box) -> None:
    killed = 0
    for number in range(1, 60):
        try:
            box.run(dies=number)
        except Killed:
            killed += 1
            continue
        break
    assert killed > 2
    _require_replaced(box)


def test_several_requests_for_the_lease_of_a_replacement_may_time_out_before_it_expires(box: Box) -> None:
    box.run()
    (limit,) = box.limits[operation_lease.TERMS.name]
    assert 3 * limit <= operation_lease.TERMS.seconds


def test_without_an_api_server_a_member_is_replaced_with_a_warning(box: Box) -> None:
    box.unready = {"all"}
    box.run()
    _require_replaced(box)
    assert ["so other machines are not kept from being changed" in line for line in box.said()].count(True) == 1
    assert box.kube.writes == []


def _other_pod(box: Box) -> None:
    metadata = {
        "name": "kube-apiserver-two",
        "namespace": "kube-system",
        "labels": {"component": "kube-apiserver", "tier": "control-plane"},
        "annotations": {ENDPOINT: "10.0.0.2:7443"},
    }
    box.kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "two"}})
    box.unready = {"https://10.0.0.2:7443"}


def _learner(box: Box) -> None:
    box.etcd._told = [member(1), member(2), member(3, learner=True)]


def _alarm(box: Box) -> None:
    box.etcd.raised = [Alarm(member_id=2, kind="NOSPACE"), Alarm(member_id=1, kind="CORRUPT"), Alarm(member_id=9, kind="CORRUPT")]


def test_a_learner_whose_machine_never_came_does_not_keep_a_member_from_being_replaced(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = records.replace(member(3, learner=True), name="", client_urls=())
    box.etcd._told = [member(1), member(2), lost]
    monkeypatch.setattr(type(box.etcd), "reach", lambda _, url: "no answer" if url in lost.peer_urls else "")
    box.run()
    assert [one.learner for one in box.etcd.members()] == [False] * 2
    assert _initial_cluster(box) == ["two=https://10.0.0.2:2380", "one=https://10.0.0.1:2380"]


def _initial_cluster(box: Box) -> list[str]:
    """Return the members in the manifest: an etcd without data exits if there are others than these."""
    [found] = re.findall("--initial-cluster=(.*)", Path(box.layout.manifest("etcd")).read_text())
    return str(found).split(",")


def test_a_replacement_continues_with_the_members_of_that_time(box: Box) -> None:
    """Since it was interrupted, one member has left and another one has joined."""
    for number in range(1, 60):
        box.begin()
        with pytest.raises(Killed):
            box.run(dies=number)
        if box.etcd.actions and not Path(box.layout.manifest("etcd")).exists():
            break
    assert [verb for verb, _ in box.etcd.actions] == ["remove"]
    box.etcd._members = [member(2), records.replace(member(3), id=4, name="four", peer_urls=("https://10.0.0.4:2380",))]
    box.run()
    assert _initial_cluster(box) == ["two=https://10.0.0.2:2380", "four=https://10.0.0.4:2380", "one=https://10.0.0.1:2380"]


@pytest.mark.parametrize(
    ("wrong", "kind", "detail"),
    [
        (_other_pod, HostError, "two: not yet: etcd"),
        (_learner, CheckFailed, "three at https://10.0.0.3:2380 has no vote yet"),
        (_alarm, CheckFailed, "two at https://10.0.0.2:2380 has raised the alarm NOSPACE: until it is disarmed, etcd accepts no writes"),
    ],
    ids=["no other API server", "a learner", "an alarm"],
)
def test_no_member_is_replaced_while_the_cluster_is_not_fit_for_it(
    box: Box, wrong: Callable[[Box], None], kind: type[KubewrightError], detail: str
) -> None:
    wrong(box)
    with pytest.raises(kind) as caught:
        box.run()
    assert caught.value.detail == detail
    box.require_unchanged()


@pytest.mark.parametrize("name", ["server", "peer"])
def test_no_member_is_replaced_whose_certificates_the_others_would_refuse(box: Box, name: str) -> None:
    path = Path(box.layout.certificate(f"etcd/{name}"))
    wrong = Path(box.layout.certificate("apiserver-etcd-client"))
    path.write_bytes(wrong.read_bytes())
    with pytest.raises(CheckFailed, match="certificates of etcd on this machine would be refused") as caught:
        box.run()
    assert caught.value.detail.startswith(f"etcd/{name}.crt is not for 10.0.0.1")
    box.require_unchanged()


def test_a_machine_waits_while_another_one_replaces_its_member(box: Box) -> None:
    """That member has no vote until then, and while a member has none, no other one is replaced."""
    spec = {"holderIdentity": "three", "leaseDurationSeconds": 30, "renewTime": rfc3339_micro(datetime.now(UTC))}
    metadata = {"name": "kubewright-operation", "namespace": "kube-system"}
    lease = box.kube.create({"apiVersion": LEASE.api_version, "kind": "Lease", "metadata": metadata, "spec": spec})
    _learner(box)
    waited: list[bool] = []

    def ends() -> None:
        waited.append(box.etcd.actions == [])
        box.etcd._told = [member(1), *OTHERS]
        box.kube.update(given_back(lease))

    box.meanwhile = ends
    box.run()
    _require_replaced(box)
    assert waited == [True]


def test_a_lease_that_a_killed_run_has_kept_is_released_although_the_api_server_has_just_been_started(box: Box) -> None:
    box.run()
    lease = box.kube.get(LEASE, "kubewright-operation", "kube-system")
    box.kube.update({**lease, "spec": {**lease["spec"], "holderIdentity": "one"}})
    box.starting = 4
    box.run()
    assert (box.starting, box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]["holderIdentity"]) == (0, "")


def test_a_member_that_an_upgrade_could_not_bring_back_is_replaced(box: Box) -> None:
    """Its manifest is the old one again. While it is not, the upgrade has to go back first."""
    host, path = Machine1(layout=box.layout), box.layout.manifest("etcd")
    file = File(path=path, content=Path(path).read_bytes() + b"# new\n", mode=0o600)
    kept = checkpoint.prepare(host, operation="upgrade", goal="v1.36.4", files=[file], at=datetime.now(UTC))
    kept = checkpoint.mark(host, kept, State.IN_PROGRESS)
    checkpoint.put_new(host, kept, path)
    with pytest.raises(HostError, match=r"an operation on this machine was interrupted: upgrade to v1\.36\.4"):
        box.run()
    assert (box.etcd.actions, box.states()) == ([], [State.IN_PROGRESS])
    checkpoint.put_old(host, kept, path)
    box.run()
    _require_replaced(box)
    assert box.states() == [State.ROLLED_BACK, State.DONE]


def test_an_api_server_that_is_not_ready_may_be_stopped(box: Box) -> None:
    _other_pod(box)
    box.own_server = "etcd does not answer"
    box.run()
    _require_replaced(box)
