"""The machine's member of etcd: what is kept, cleared, created again and removed. etcd is in memory, pods are only recorded."""

from __future__ import annotations

import itertools
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

from kubewright.apis.kubeadm.types import (
    ClusterConfiguration,
    ComponentConfig,
    Configuration,
    Etcd,
    ExternalEtcd,
    InitConfiguration,
    LocalEtcd,
    NodeRegistration,
    Timeouts,
)
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.durations import Duration
from kubewright.base.errors import HostError, NotFound, Stopped, Unreachable, WaitTimeout
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.etcd.api import Member, NoQuorum, Status
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.decisions import decide_emptying
from kubewright.host.desired import File
from kubewright.host.network.listeners import Listener
from kubewright.host.states import FileState, Kind
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.deferred_manifests import DeferredManifests
from kubewright.lifecycle.join import etcd_learner, etcd_member, peers
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.lifecycle.steps import static_pods

ONE = Member(id=1, name="one", peer_urls=("https://10.0.0.1:2380",))
LAYOUT = Layout()
DATA, MANIFEST = LAYOUT.etcd_data, LAYOUT.manifest("etcd")
WRITTEN = [f"directory {DATA}", f"directory {LAYOUT.manifests}", f"file {MANIFEST}"]
OURS = "https://10.0.0.2:2380"
OLD = b"spec: {containers: [{command: [etcd, --initial-cluster=one=https://10.0.0.1:2380, --name=two]}]}\n"


class Machine:
    """Files by path, and the operations on them."""

    def __init__(self, files) -> None:
        self.files = {PurePosixPath(path): content for path, content in files.items()}
        self.done: list[str] = []
        self.connected: list[str] = []
        self.layout = LAYOUT
        self.network = SimpleNamespace(listeners=list, connected=lambda port: self.connected if port == 2380 else [])

    def read(self, path):
        return self.files.get(path)

    def state(self, path):
        return FileState(kind=Kind.FILE, mode=0o600, owner=0, group=0, size=len(self.files[path])) if path in self.files else None

    def entries(self, path):
        return sorted({path / one.relative_to(path).parts[0] for one in self.files if path in one.parents})

    def ensure(self, desired):
        if isinstance(desired, File):
            self.files[desired.path] = desired.content
            self.done.append(f"wrote {desired.path.stem}")
        return Change(target=desired.target, action=Action.CREATE)

    def flag(self, name):
        """Return the value of a flag that etcd.yaml has."""
        [container] = yaml.load(self.files[MANIFEST], source="")["spec"]["containers"]
        return next(word.partition("=")[2] for word in container["command"] if word.startswith(f"--{name}="))

    def remove(self, path):
        found = self.files.pop(path, None)
        if found is not None:
            self.done.append(f"removed {path.name}")
        return Change(target=f"file {path}", action=Action.NONE if found is None else Action.DELETE)

    def empty(self, path, *, own=()):
        change = decide_emptying(self.entries(path), path, layout=LAYOUT, own=own)  # a real machine empties nothing else
        for one in [one for one in self.files if path in one.parents]:
            del self.files[one]
        self.done.append(f"emptied {path}")
        return change


class Members(RecordingEtcd):
    """An etcd in memory. `down`: it answers no writes."""

    def __init__(self, *members: Member, statuses=()) -> None:
        super().__init__()
        self._members = list(members)
        self._statuses = list(statuses)
        self.down = False
        self.probed: list[str] = []
        self.barred: dict[str, str] = {}

    def statuses(self):
        return self._statuses

    def reach(self, peer_url, /):
        self.probed.append(peer_url)
        return self.barred.get(peer_url, "")

    def remove(self, member_id, /):
        if self.down:
            raise NoQuorum("nobody agrees")
        return super().remove(member_id)


def configured(etcd, within=2):
    """The cluster's configuration, with this machine's part in it."""
    timeouts = replace(Timeouts(), etcd_api_call=Duration.of_seconds(within))
    init = replace(InitConfiguration(), node_registration=NodeRegistration(name="two"), timeouts=timeouts)
    component = ComponentConfig(document={})
    return Configuration(
        init=init, cluster=ClusterConfiguration(etcd=etcd, kubernetes_version="v1.36.3"), kubelet=component, kube_proxy=component
    )


@pytest.fixture
def run(monkeypatch):
    """Returns the context of a run of the phase, whose machine records the operations on it."""

    def join(*members: Member, files=(), resumed=False, external=False, fails=None, layout=LAYOUT, within=2):
        machine = Machine(dict(files))
        machine.connected = [url.removeprefix("https://").removesuffix(":2380") for one in members for url in one.peer_urls]

        def learn(ctx, pod):
            machine.done.append("learned")
            yield from ()

        def serving(ctx):
            if fails is not None:
                raise fails
            return Change(target="it serves", action=Action.NONE)

        monkeypatch.setattr(etcd_learner, "learn", learn)
        monkeypatch.setattr(etcd_learner, "serving", serving)
        clock, reporter = FakeClock(), RecordingReporter()
        etcd = Etcd(external=ExternalEtcd(endpoints=("https://e:2379",))) if external else Etcd(local=LocalEtcd())
        configuration, addresses = configured(etcd, within), Addresses.of_machine("10.0.0.2")
        lasts = []
        ctx = SimpleNamespace(
            cluster=configuration.cluster,
            configuration=configuration,
            addresses=addresses,
            inputs=static_pods.Inputs(
                configuration=configuration,
                layout=layout,
                addresses=addresses,
                detected=Detected(host_name="two"),
                overrides=lambda component: {},
                external_ca=False,
            ),
            patched=lambda name, pod: pod,
            bound=SimpleNamespace(manifests=DeferredManifests(machine), settle=lasts.append),
            lasts=lasts,
            node_name="two",
            layout=layout,
            host=machine,
            etcd=Members(*members, statuses=[Status(endpoint=f"https://{one.name}", member_id=one.id, leader_id=1) for one in members]),
            clock=clock,
            waiter=PollingWaiter(clock=clock, reporter=reporter),
            reporter=reporter,
            resumed=resumed,
            said=[],
        )
        ctx.say = lambda topic, text: ctx.said.append(f"[{topic}] {text}")
        return ctx

    return join


def test_a_new_member_learns_serves_and_votes(run):
    ctx = run(ONE)
    changes = [step for step in etcd_member.join(ctx) if isinstance(step, Change) and step]
    assert [change.target for change in changes] == [f"member two at {OURS}", *WRITTEN]
    assert ctx.host.done == ["learned", "wrote etcd"]
    assert [verb for verb, _ in ctx.etcd.actions] == ["add", "promote"]
    assert ctx.host.flag("initial-cluster") == f"one=https://10.0.0.1:2380,two={OURS}"
    assert ctx.host.flag("initial-cluster-state") == "existing"
    assert ctx.lasts == [True]


def test_a_member_that_votes_keeps_its_manifest(run):
    mine = Member(id=2, name="two", peer_urls=(OURS,))
    later = Member(id=3, name="three", peer_urls=("https://10.0.0.3:2380",))
    ctx = run(ONE, mine, later, files={MANIFEST: OLD, DATA / "member" / "wal": b""})
    changes = list(etcd_member.join(ctx))
    assert ctx.host.flag("initial-cluster") == "one=https://10.0.0.1:2380"
    assert ctx.host.done == ["wrote etcd"]
    assert ctx.etcd.actions == []
    assert [change.target for change in changes if change] == WRITTEN


@pytest.mark.parametrize("old", [b"", b"{}", b"spec: {containers: []}", b"\x00", b"spec: {containers: [{command: [etcd]}]}"])
def test_a_manifest_without_peers_is_rewritten_with_the_existing_members(run, old):
    mine = Member(id=2, name="two", peer_urls=(OURS,))
    ctx = run(ONE, mine, files={MANIFEST: old, DATA / "member" / "wal": b""})
    list(etcd_member.join(ctx))
    assert ctx.host.flag("initial-cluster") == f"one=https://10.0.0.1:2380,two={OURS}"


def test_leftovers_of_a_killed_run_are_removed_before_the_member_is_added_again(run):
    learner = LAYOUT.manifest("etcd-learner")
    ctx = run(ONE, files={learner: b"{}", MANIFEST: OLD, DATA / "member" / "wal": b""}, resumed=True)
    list(etcd_member.join(ctx))
    assert ctx.host.done == ["removed etcd-learner.yaml", "removed etcd.yaml", f"emptied {DATA}/member", "learned", "wrote etcd"]


def test_data_in_a_moved_directory_is_removed_and_nothing_next_to_it(run):
    """`etcd.local.dataDir` may be any directory, with other contents: only what etcd has created there is removed."""
    moved = LAYOUT.at(pki=str(LAYOUT.pki), etcd_data="/srv/disk")
    other = PurePosixPath("/srv/disk/lost+found/x")
    ctx = run(ONE, files={other: b"", moved.etcd_data / "member" / "wal": b""}, resumed=True, layout=moved)
    list(etcd_member.join(ctx))
    assert ctx.host.done == ["emptied /srv/disk/member", "learned", "wrote etcd"]
    assert list(ctx.host.files) == [other, MANIFEST]


THREE = Member(id=3, name="three", peer_urls=("https://10.0.0.3:2380",))


def test_a_member_is_added_only_if_this_machine_reaches_the_others(run):
    ctx = run(ONE, THREE)
    ctx.etcd.barred = {"https://10.0.0.3:2380": "no answer in 2 s"}
    with pytest.raises(WaitTimeout) as caught:
        list(etcd_member.join(ctx))
    assert "https://10.0.0.3:2380: no answer in 2 s" in caught.value.detail
    assert "10.0.0.1" not in caught.value.detail
    assert "2380" in caught.value.remedy
    assert ctx.etcd.actions == []
    assert (ctx.host.done, ctx.clock.monotonic()) == ([], pytest.approx(2.0))


FOUR = Member(id=0x8E9E, name="four", peer_urls=("https://10.0.0.4:2380",), client_urls=("https://10.0.0.4:2379",))
CREDENTIALS = " ".join(f"--{name}=/etc/kubernetes/pki/etcd/{file}" for name, file in
    (("cacert", "ca.crt"), ("cert", "healthcheck-client.crt"), ("key", "healthcheck-client.key")))  # fmt: skip


@pytest.mark.parametrize("phase", [etcd_member.check, etcd_member.join])
def test_a_dead_voting_member_is_reported_with_the_command_that_removes_it(run, phase):
    ctx = run(ONE, THREE, FOUR)
    ctx.etcd.barred = {"https://10.0.0.4:2380": "connection refused"}
    ctx.etcd._statuses[2] = Status(endpoint="https://10.0.0.4:2379", problem="connection refused")
    with pytest.raises(WaitTimeout) as caught:
        list(phase(ctx))
    assert caught.value.what == "etcd accepts no new member while a voting one is dead: four at https://10.0.0.4:2380"
    assert caught.value.detail == "four at https://10.0.0.4:2380: https://10.0.0.4:2379: connection refused"
    removal = f"`kubectl -n kube-system exec etcd-one -- etcdctl {CREDENTIALS} member remove 8e9e`"
    assert caught.value.remedy.startswith(f"start it again; if its machine no longer exists, remove the member: {removal}; ")
    assert (ctx.etcd.actions, ctx.host.done, ctx.clock.monotonic()) == ([], [], pytest.approx(2.0))


@pytest.mark.parametrize("phase", [etcd_member.check, etcd_member.join])
@pytest.mark.parametrize(
    ("kind", "effect", "remedy"),
    [
        ("NOSPACE", "etcd accepts no writes", "compact and defragment etcd, then disarm the alarm"),
        ("CORRUPT", "etcd serves no data", "disarm the alarm (etcdctl alarm disarm), and then replace the member"),
    ],
)
def test_no_member_is_added_while_an_alarm_is_raised_but_nobody_counts_as_dead(run, phase, kind, effect, remedy):
    """All members report the alarm of one of them."""
    ctx = run(ONE, THREE)
    ctx.etcd._statuses = [replace(one, errors=(f"memberID:3 alarm:{kind} ",)) for one in ctx.etcd._statuses]
    with pytest.raises(HostError) as caught:
        list(phase(ctx))
    assert caught.value.what == "etcd has raised an alarm, so no member is added"
    assert caught.value.detail == f"three at https://10.0.0.3:2380 has raised the alarm {kind}: until it is disarmed, {effect}"
    assert caught.value.remedy.startswith(remedy)
    assert (ctx.etcd.actions, ctx.host.done, ctx.clock.monotonic()) == ([], [], 0.0)


@pytest.mark.parametrize(
    "changes",
    [
        {"learner": True},
        {"peer_urls": (OURS,)},
        {"peer_urls": ("https://10.0.0.5:2380",)},
    ],
    ids=["a learner", "the member of this machine", "one whose clients' port is barred from here"],
)
def test_members_that_do_not_block_etcd_are_not_waited_for(run, changes):
    ctx = run(ONE, THREE, replace(FOUR, **changes))
    ctx.etcd.barred = {"https://10.0.0.4:2380": "connection refused"}
    ctx.etcd._statuses[2] = Status(endpoint="https://10.0.0.4:2379", problem="connection refused")
    assert len(list(etcd_member.check(ctx))) == 2
    assert ctx.clock.monotonic() == 0.0


def test_a_member_that_never_started_counts_as_dead_and_removal_needs_a_quorum(run):
    lost = Member(id=9, peer_urls=("https://10.0.0.9:2380",))
    ctx = run(ONE, lost)
    ctx.etcd._statuses.pop()
    with pytest.raises(WaitTimeout) as caught:
        list(etcd_member.join(ctx))
    assert caught.value.detail == "9 at https://10.0.0.9:2380: it has never started"
    assert caught.value.remedy.startswith("make sure that most of the other control planes run")


def test_peers_are_checked_only_if_a_member_is_added(run):
    mine = Member(id=2, name="two", peer_urls=(OURS,))
    ctx = run(ONE, mine, files={MANIFEST: OLD, DATA / "member" / "wal": b""}, resumed=True)
    list(etcd_member.join(ctx))
    assert ctx.etcd.probed == []


def test_a_member_is_promoted_only_if_the_others_reach_this_machine(run):
    ctx = run(ONE, THREE)
    ctx.host.connected = ["10.0.0.1", "10.0.0.2"]
    with pytest.raises(WaitTimeout) as caught:
        list(etcd_member.join(ctx))
    assert "reach port 2380 of this machine" in caught.value.what
    assert caught.value.detail == f"three at https://10.0.0.3:2380 has no connection to {OURS}"
    assert "firewall" in caught.value.remedy
    assert [verb for verb, _ in ctx.etcd.actions] == ["add", "remove"]
    assert ctx.clock.monotonic() == pytest.approx(2.0)


@pytest.mark.parametrize("connected", [["10.0.0.1", "192.0.2.7"], ["127.0.0.1"], ["fd00::1"]])
def test_connections_from_unknown_addresses_count_as_members_behind_nat(run, connected):
    ctx = run(ONE, THREE)
    ctx.host.connected = connected
    list(etcd_member.join(ctx))
    assert [verb for verb, _ in ctx.etcd.actions] == ["add", "promote"]


def test_members_with_peer_names_need_not_be_found(run):
    ctx = run(ONE, Member(id=3, name="three", peer_urls=("https://three.test:2380",)))
    ctx.host.connected = ["10.0.0.1"]
    list(etcd_member.join(ctx))
    assert [verb for verb, _ in ctx.etcd.actions] == ["add", "promote"]


@pytest.mark.parametrize("phase", [etcd_member.check, etcd_member.join])
def test_a_request_that_etcd_does_not_answer_is_repeated(run, phase):
    """On a busy machine any of them may time out."""

    def requests(unanswered=None):
        ctx, number = run(ONE, THREE), itertools.count()
        members = ctx.etcd.members

        def listed(**options: bool):
            if next(number) == unanswered:
                raise Unreachable("timed out")
            return members(**options)

        ctx.etcd.members = listed
        list(phase(ctx))
        assert list(dict.fromkeys(verb for verb, _ in ctx.etcd.actions)) == (["add", "promote"] if phase is etcd_member.join else [])
        return next(number)

    count = requests()
    assert count >= (5 if phase is etcd_member.join else 1)
    assert min(requests(number) for number in range(count)) == count + 1


def test_an_etcd_that_stops_answering_is_not_mistaken_for_one_with_dead_members(run):
    ctx = run(ONE, THREE)

    def silent(**options: bool):
        raise Unreachable("nobody answers", detail="timed out")

    ctx.etcd.members = silent
    with pytest.raises(WaitTimeout, match="etcd to report its members") as caught:
        list(etcd_member.check(ctx))
    assert "nobody answers" in caught.value.detail
    assert caught.value.remedy.startswith("make sure that most of the other control planes run")


def test_a_slow_etcd_is_asked_as_long_as_the_configuration_says(run):
    ctx = run(ONE, THREE, within=120)
    members = ctx.etcd.members

    def listed(**options: bool):
        if ctx.clock.monotonic() < 60:
            raise Unreachable("timed out")
        return members(**options)

    ctx.etcd.members = listed
    assert [event.what for event in etcd_member.check(ctx)] == ["etcd to be healthy", "etcd to report its members"]
    assert 60 <= ctx.clock.monotonic() < 70


def test_late_members_are_waited_for(run):
    ctx = run(ONE)
    looks = iter([[], [], ["10.0.0.1"]])
    ctx.host.network.connected = lambda port: next(looks)
    list(etcd_member.join(ctx))
    assert next(looks, None) is None
    assert 0 < ctx.clock.monotonic() < 1


def arrivals(run, *, listening: list[bool], connected: list[list[str]]):
    """Check once a second for a minute. Returns the context and the error that ended it."""
    ctx = run(ONE, THREE)
    port = Listener(address="10.0.0.2", port=2380, user=0, inode=0)
    ctx.host.network.listeners = lambda: [port] if (listening.pop(0) if listening else True) else []
    ctx.host.network.connected = lambda port: connected.pop(0) if connected else ["10.0.0.1", "10.0.0.3"]
    watched = peers.Arrivals(ctx)
    for _ in range(60):
        try:
            watched.require()
        except WaitTimeout as error:
            return ctx, error
        ctx.clock.sleep(1.0)
    return ctx, None


def test_an_unreachable_learner_fails_soon(run):
    ctx, error = arrivals(run, listening=[False, False, True, False], connected=[["10.0.0.3"]])
    assert "one at https://10.0.0.1:2380 has no connection" in error.detail
    assert "2380" in error.remedy
    assert ctx.clock.monotonic() == pytest.approx(6.0)


def test_a_slow_reachable_learner_is_waited_for(run):
    ctx, error = arrivals(run, listening=[], connected=[])
    assert error is None
    assert ctx.etcd.probed == []


@pytest.mark.parametrize("known", [(), (f"{DATA}/other",)], ids=["no run before", "it was there before an earlier run"])
def test_data_of_another_etcd_is_not_touched(run, known):
    ctx = run(ONE, files={DATA / "member" / "wal": b""}, resumed=bool(known))
    if known:
        machine_record.save(ctx.host, MachineRecord(workflow="join", configuration="", free=dict.fromkeys(known)))
    ctx.host.done.clear()
    with pytest.raises(HostError, match="contains the data of another etcd") as caught:
        list(etcd_member.join(ctx))
    assert "reset" in caught.value.remedy
    assert (ctx.host.done, ctx.etcd.actions) == ([], [])


@pytest.mark.parametrize("resumed", [False, True])
def test_a_learner_that_never_serves_is_removed(run, resumed):
    before = [Member(id=2, peer_urls=(OURS,), learner=True)] if resumed else []
    ctx = run(ONE, *before, fails=WaitTimeout("gave up waiting"), resumed=resumed, files={MANIFEST: OLD} if resumed else {})
    with pytest.raises(WaitTimeout):
        list(etcd_member.join(ctx))
    assert ctx.etcd.members() == [ONE]
    assert ctx.said[-1] == f"[etcd] Removed member two at {OURS} again, because it did not start: gave up waiting"
    assert MANIFEST not in ctx.host.files
    assert ctx.lasts == [True, False]


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Stopped(15), BrokenPipeError()])
def test_a_learner_is_removed_however_the_join_ends(run, stop):
    ctx = run(ONE, fails=stop)
    with pytest.raises(type(stop)):
        list(etcd_member.join(ctx))
    assert ctx.etcd.members() == [ONE]
    assert ctx.etcd.actions[-1][0] == "remove"


def test_a_join_interrupted_after_adding_its_member_removes_it(run):
    ctx = run(ONE)
    steps = etcd_member.join(ctx)
    assert next(step for step in steps if isinstance(step, Change)).target == f"member two at {OURS}"
    steps.close()
    assert ctx.etcd.members() == [ONE]


def test_a_join_interrupted_while_adding_its_member_removes_it(run):
    ctx = run(ONE)
    add = ctx.etcd.add_learner

    def stopped(peer_url, /):
        add(peer_url)
        raise Stopped(1)

    ctx.etcd.add_learner = stopped
    with pytest.raises(Stopped):
        list(etcd_member.join(ctx))
    assert ctx.etcd.members() == [ONE]


def test_a_voting_member_is_never_removed_by_join(run):
    mine = Member(id=2, name="two", peer_urls=(OURS,))
    ctx = run(ONE, mine, fails=NotFound("gone", code=404), files={MANIFEST: OLD, DATA / "member" / "wal": b""})
    with pytest.raises(NotFound):
        list(etcd_member.join(ctx))
    assert (ctx.etcd.members(), ctx.lasts) == ([ONE, mine], [True])


def test_a_member_that_could_not_be_added_leaves_nothing(run):
    ctx = run(ONE)

    def refuse(peer_url, /):
        raise NoQuorum("etcd has no leader")

    ctx.etcd.add_learner = refuse
    with pytest.raises(WaitTimeout):
        list(etcd_member.join(ctx))
    assert (ctx.etcd.members(), ctx.lasts) == ([ONE], [True, False])


def test_a_member_that_cannot_be_removed_is_reported(run):
    ctx = run(ONE, fails=WaitTimeout("gave up waiting"))
    ctx.etcd.down = True
    with pytest.raises(WaitTimeout):
        list(etcd_member.join(ctx))
    (warning,) = [event.text for event in ctx.reporter.events if isinstance(event, Warned)]
    assert f"member two at {OURS}" in warning
    assert "Run the same join again, or reset" in warning
    assert ctx.lasts == [True]


def test_an_external_etcd_is_not_touched(run):
    ctx = run(external=True)
    assert [*etcd_member.check(ctx), *etcd_member.join(ctx)] == []
    assert ctx.said == ["[check-etcd] Skipping etcd check in external mode"]


def test_health_is_waited_for_and_unhealthy_members_are_reported(run):
    ctx = run(ONE)
    well, dead = Status(endpoint="https://a", leader_id=1), Status(endpoint="https://b", problem="connection refused")
    ctx.etcd = Members(ONE, statuses=[well, well, dead])
    assert len(list(etcd_member.check(ctx))) == 2
    ctx.etcd = Members(ONE, statuses=[well, dead])
    with pytest.raises(WaitTimeout) as caught:
        list(etcd_member.check(ctx))
    assert "https://b: connection refused" in caught.value.detail
    assert "make sure that most of the other control planes run" in caught.value.remedy


def test_the_member_of_this_machine_need_not_be_healthy_before_it_is_started(run):
    ctx = run(ONE)
    well, own = Status(endpoint="https://a", leader_id=1), Status(endpoint="https://10.0.0.2:2379", problem="connection refused")
    ctx.etcd = Members(ONE, statuses=[well, own])
    assert len(list(etcd_member.check(ctx))) == 2
    assert ctx.clock.monotonic() == 0.0
