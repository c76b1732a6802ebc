"""The small parts of `up` and `down`: preflight, claims, choosing addresses, the launch file, the machine's seams, clearing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from kubewright.apis.machine import Ports
from kubewright.base.clock import FakeClock
from kubewright.base.errors import (
    BinariesError,
    CheckFailed,
    ComponentFailed,
    ConfigurationChanged,
    DocumentError,
    HostError,
    KubewrightError,
    UsageError,
    ValidationError,
)
from kubewright.base.events import SilentReporter
from kubewright.base.records import dataclass, field, fields, replace
from kubewright.binaries import BinarySources
from kubewright.host.detached import DetachedProcess
from kubewright.host.network.interfaces import PortOwner, RealNetwork
from kubewright.host.network.listeners import Listener
from kubewright.host.processes import Identity
from kubewright.http.failures import NoAnswer, Reason
from kubewright.local import daemon_process, record, state_directory
from kubewright.local.cluster import allocation, down, preflight, status, up
from kubewright.local.cluster.allocation import AddressClaims
from kubewright.local.cluster.context import UpRun, require_alive, require_components
from kubewright.local.cluster.daemon_client import ControlClient, Daemon, Reply
from kubewright.local.cluster.machine import machine_host
from kubewright.local.daemon_process import DaemonSettings
from kubewright.local.paths import ClusterPaths
from kubewright.local.programs import COMPONENTS
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from unix_sockets import bind

MACHINE = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
PROGRAMS = dict.fromkeys(COMPONENTS, Path("/bin/true"))


@pytest.fixture
def where(tmp_path: Path) -> ClusterPaths:
    root = tmp_path / "one"
    root.mkdir(mode=0o700)
    return ClusterPaths(root)


StandIn = Callable[[ClusterPaths], Identity]


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    """Create a process with a cluster's mark that is recorded as its daemon."""
    started: list[subprocess.Popen[bytes]] = []

    def make(paths: ClusterPaths) -> Identity:
        process = subprocess.Popen(["sleep", "60"], env={**os.environ, **daemon_process.mark_of(paths).variables})
        started.append(process)
        while not Path(f"/proc/{process.pid}/environ").read_bytes():  # the kernel updates it a moment after exec
            os.sched_yield()
        found = Identity.of(process.pid)
        assert found is not None
        paths.daemon_record.write_text(f"{found}\n")
        return found

    yield make
    for process in started:
        process.kill()
        process.wait()


@dataclass()
class FakeNetwork:
    """A network in which some ports are in use."""

    held: dict[int, PortOwner] = field(default_factory=dict)

    def owner_of_port(self, address: str, port: int) -> PortOwner | None:
        assert address == MACHINE.address
        return self.held.get(port)

    def listeners(self) -> list[Listener]:
        return []

    def connected(self, port: int) -> list[str]:
        return []

    def free_loopback(self, ports: Collection[int], *, avoid: Collection[str] = ()) -> str:
        raise NotImplementedError

    def free_ports(self, address: str, wanted: Sequence[int]) -> list[int]:
        raise NotImplementedError

    def interface_addresses(self) -> list[object]:
        return []

    def default_address(self, *, family: object) -> str | None:
        return None

    def loopback_global(self) -> str | None:
        return None


@dataclass()
class Dying(FakeNetwork):
    """A network in which a process without a name uses a port until it ends."""

    clock: FakeClock = field(default_factory=FakeClock)
    until: float = 0.0

    def owner_of_port(self, address: str, port: int) -> PortOwner | None:
        return PortOwner(user=0) if port == 6443 and self.clock.monotonic() < self.until else None


def subject(where: ClusterPaths, **parts: object) -> preflight.Subject:
    wanted = {
        "paths": where,
        "record": ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)),
        "programs": PROGRAMS,
        "network": FakeNetwork(),
        "running": False,
        **parts,
    }
    return preflight.Subject(**wanted)  # type: ignore[arg-type]


# -- preflight


def test_a_port_of_a_dying_process_is_waited_for(where: ClusterPaths) -> None:
    clock = FakeClock()
    dying = Dying(clock=clock, until=clock.monotonic() + 0.25)
    preflight.run(subject(where, network=dying), clock=clock)
    assert 0.25 <= clock.monotonic() < 0.45


def test_a_complete_machine_passes(where: ClusterPaths) -> None:
    preflight.run(subject(where), clock=FakeClock())


def test_every_failure_is_reported_at_once(where: ClusterPaths) -> None:
    held = {6443: PortOwner(user=0, pid=7, program="haproxy"), 10250: PortOwner(user=1000)}
    programs = {**PROGRAMS, "etcd": Path("/nonexistent/etcd")}
    del programs["kube-scheduler"]
    with pytest.raises(CheckFailed) as caught:
        preflight.run(subject(where, network=FakeNetwork(held), programs=programs), clock=FakeClock())
    assert caught.value.detail.splitlines() == [
        "binaries: etcd is missing; get it with `kubewright binaries fetch etcd`",
        "binaries: kube-scheduler is missing; get it with `kubewright binaries fetch kube-scheduler`",
        "ports: port 6443 at 127.0.0.11, for kube-apiserver, is held by haproxy (pid 7); stop it (`kill 7`)",
        "ports: port 10250 at 127.0.0.11, for the node agents, is held by a process of user 1000; stop it (find it as root with `ss -ltnp`)",
    ]
    assert '"one"' in caught.value.what


def test_ports_of_a_running_cluster_are_its_own(where: ClusterPaths) -> None:
    held = dict.fromkeys(MACHINE.ports.values(), PortOwner(user=0, pid=7, program="etcd"))
    preflight.run(subject(where, network=FakeNetwork(held), running=True), clock=FakeClock())


def test_ports_of_a_new_machine_are_checked_while_the_others_run(where: ClusterPaths) -> None:
    held = dict.fromkeys(MACHINE.ports.values(), PortOwner(user=0, pid=7, program="etcd"))
    new = LocalMachineRecord(name="one-control-plane-2", address=MACHINE.address)
    cluster = ClusterRecord(name="one", id="1" * 32, machines=(MACHINE, new))
    wanted = subject(where, record=cluster, network=FakeNetwork(held), running=True, fresh=frozenset({new.name}))
    with pytest.raises(CheckFailed) as caught:
        preflight.run(wanted, clock=FakeClock())
    assert len(caught.value.detail.splitlines()) == len(preflight.PORT_USERS)


def test_the_table_of_ports_is_complete() -> None:
    assert set(preflight.PORT_USERS) == {one.name for one in fields(Ports)}


def test_more_nodes_than_open_files_are_refused(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 1024))
    preflight.run(subject(where, record=ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,), nodes=100)), clock=FakeClock())
    with pytest.raises(CheckFailed, match="not ready") as caught:
        preflight.run(subject(where, record=ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,), nodes=1000)), clock=FakeClock())
    assert "open-files: 1001 nodes need 4260 open files, the hard limit is 1024" in caught.value.detail


@pytest.mark.parametrize(("mode", "fits"), [(0o700, True), (0o500, True), (0o710, False), (0o701, False), (0o777, False)])
def test_a_state_directory_is_private(tmp_path: Path, mode: int, fits: bool) -> None:
    tmp_path.chmod(mode)
    if fits:
        state_directory.require_private(tmp_path)
        return
    with pytest.raises(HostError) as caught:
        state_directory.require_private(tmp_path)
    assert f"chmod 0700 {tmp_path}" in caught.value.remedy


# -- claims and addresses


def test_an_address_is_claimed_by_one_process_at_a_time() -> None:
    address = f"127.9.{os.getpid() % 250}.{os.getpid() // 250 % 250}"
    with AddressClaims() as mine, AddressClaims() as other:
        assert mine.take(address)
        assert mine.take(address)
        assert not other.take(address)
        code = f"from kubewright.local.cluster.allocation import AddressClaims; raise SystemExit(AddressClaims().take({address!r}))"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with AddressClaims() as next_one:
        assert next_one.take(address)


def _listening(monkeypatch: pytest.MonkeyPatch, *pairs: tuple[str, int]) -> None:
    found = [Listener(address=address, port=port, user=0, inode=1) for address, port in pairs]
    monkeypatch.setattr(RealNetwork, "listeners", lambda _: found)


def _chosen(where: ClusterPaths, claims: AddressClaims) -> LocalMachineRecord:
    return allocation.new_machine(where, "one-control-plane", claims=claims)


def test_a_machine_gets_the_first_free_address(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    _listening(monkeypatch, ("127.0.0.11", 6443), ("127.0.0.12", 10257), ("127.0.0.13", 80))
    with AddressClaims() as claims:
        machine = _chosen(where, claims)
    assert machine.name == "one-control-plane"
    assert machine.ports == LocalMachineRecord(name="", address="").ports
    assert machine.address == "127.0.0.13"


def test_every_control_plane_has_its_own_address(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    _listening(monkeypatch, ("127.0.0.12", 6443))
    with AddressClaims() as claims:
        found = allocation.resized(where, ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)), control_planes=4, claims=claims)
        addresses = [machine.address for machine in found.machines]
        assert addresses[0] == "127.0.0.11"
        assert len(set(addresses)) == 4
        assert "127.0.0.12" not in addresses
        assert [machine.name for machine in found.further] == [f"one-control-plane-{number}" for number in (2, 3, 4)]
        assert allocation.resized(where, found, control_planes=4, claims=claims) == found


def test_addresses_of_stopped_clusters_and_claims_of_others_are_not_used(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    _listening(monkeypatch)
    (where.root.parent / "two").mkdir()
    record.save(
        ClusterRecord(name="two", id="1" * 32, machines=(replace(MACHINE, name="two-control-plane", address="127.0.0.11"),)),
        where.root.parent / "two" / "cluster.json",
    )
    (where.root.parent / "bad").mkdir()
    (where.root.parent / "bad" / "cluster.json").write_text("{")
    with AddressClaims() as others, AddressClaims() as claims:
        others.take("127.0.0.12")
        assert _chosen(where, claims).address not in {"127.0.0.11", "127.0.0.12"}


def test_an_address_with_a_listener_after_the_claim_is_not_used(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between our check and our claim, another start went from its claim to its listeners."""
    begun = [Listener(address="127.0.0.11", port=6443, user=0, inode=1)]
    looks = iter([[], begun, begun, begun])
    monkeypatch.setattr(RealNetwork, "listeners", lambda _: next(looks))
    with AddressClaims() as claims:
        assert _chosen(where, claims).address not in {"", "127.0.0.11"}


def test_ports_that_are_taken_at_every_address_are_avoided(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    _listening(monkeypatch, ("0.0.0.0", 6443), ("::", 2380), ("127.0.0.11", 10250), ("127.0.0.12", 80))
    with AddressClaims() as claims:
        machine = _chosen(where, claims)
    assert machine.address != "127.0.0.11"
    assert machine.ports["api_server"] == 6444
    assert machine.ports["kubelet"] == 10250
    assert not {6443, 2380} & set(machine.ports.values())
    assert len(set(machine.ports.values())) == len(machine.ports) == 8


def test_a_request_that_fails_before_anything_starts_leaves_nothing(tmp_path: Path) -> None:
    where = ClusterPaths(tmp_path / "one")
    nothing = BinarySources(cache=tmp_path / "cache", allow_download=False, allow_build=False)
    with pytest.raises(BinariesError):
        up.up(where, up.UpOptions(), sources=nothing, reporter=SilentReporter())
    assert not where.root.exists()


MADE = ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,), nodes=2, kubernetes_version="v1.36.3", config="", made=True)
CLUSTER_KIND = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ("kind: [", DocumentError, "--config is not YAML"),
        (f"{CLUSTER_KIND}networkign: {{}}\n", ValidationError, "networkign"),
        (f"{CLUSTER_KIND}networking: {{podSubnet: ten}}\n", ValidationError, "networking.podSubnet"),
        (f"{CLUSTER_KIND}kubernetesVersion: one\n", ValidationError, "kubernetesVersion: Invalid value"),
        (f"{CLUSTER_KIND}clusterName: other\n", ConfigurationChanged, "+clusterName: other"),
    ],
    ids=["no YAML", "a misspelt field", "a wrong value", "a wrong version", "nothing wrong"],
)
def test_a_file_for_an_existing_cluster_is_checked_before_it_is_compared(
    where: ClusterPaths, config: str, error: type[KubewrightError], said: str
) -> None:
    record.save(MADE, where.record)
    options = up.UpOptions(config=config)
    with pytest.raises(error) as caught:
        up.up(where, options, sources=BinarySources(cache=where.root, allow_download=False, allow_build=False), reporter=SilentReporter())
    assert said in str(caught.value)
    assert record.load(where.record) == MADE
    assert {path.name for path in where.root.iterdir()} == {where.record.name, where.lock.name}


# -- launching


def test_settings_of_the_daemon_are_read_back(where: ClusterPaths) -> None:
    told = DaemonSettings(programs={"etcd": "/bin/etcd"}, owner="1:2:3")
    daemon_process.write_settings(told, where)
    assert daemon_process.read_settings(where) == told
    (where.root / "launch.json").write_text("[]")
    with pytest.raises(HostError, match=r"launch\.json"):
        daemon_process.read_settings(where)


def test_a_daemon_is_identified_by_more_than_its_pid(where: ClusterPaths, stand_in: StandIn) -> None:
    assert daemon_process.identity(where) is None
    mine = stand_in(where)
    assert daemon_process.identity(where) == mine
    for text in (f"{mine.pid}:{mine.start_time + 1}:{mine.boot_id}", f"{mine.pid}:{mine.start_time}:other", "nonsense", ""):
        where.daemon_record.write_text(text)
        assert daemon_process.identity(where) is None


def test_a_copied_state_directory_does_not_own_the_daemon(where: ClusterPaths, stand_in: StandIn) -> None:
    record.save(ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)), where.record)
    daemon = stand_in(where)
    copy = ClusterPaths(where.root.parent / "copy")
    shutil.copytree(where.root, copy.root)
    assert daemon_process.identity(copy) is None
    down.down(copy)
    assert daemon_process.identity(where) == daemon


@pytest.mark.parametrize("lost", [False, True])
def test_processes_of_another_cluster_at_the_same_path_are_not_its_own(where: ClusterPaths, stand_in: StandIn, lost: bool) -> None:
    record.save(ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)), where.record)
    daemon = stand_in(where)
    record.save(ClusterRecord(name="one", id="2" * 32, machines=(MACHINE,)), where.record)
    if lost:
        where.record.unlink()
    assert (daemon_process.identity(where), daemon_process.marked_processes(where)) == ((daemon, [daemon]) if lost else (None, []))


def test_reading_the_last_lines_of_a_log_never_fails(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert daemon_process.last_lines(path) == []
    path.write_bytes(b"\xff\n" * 5 + b"x" * 100_000 + b"\nlast\n")
    assert daemon_process.last_lines(path, lines=1) == ["last"]
    assert len(daemon_process.last_lines(path, lines=3)[0]) <= 16384


def test_a_started_process_may_be_forgotten_without_a_warning() -> None:
    started = DetachedProcess(["sleep", "60"])
    identity = Identity.of(started.pid)
    assert identity is not None
    del started  # warnings are errors here
    os.kill(identity.pid, signal.SIGKILL)
    for _ in range(200):
        daemon_process.reap(identity)
        if not Path(f"/proc/{identity.pid}").exists():
            break
        os.sched_yield()
    daemon_process.reap(identity)


def test_a_process_whose_start_was_interrupted_may_be_forgotten_too() -> None:
    never = DetachedProcess.__new__(DetachedProcess)
    never.pid = None  # type: ignore[assignment]  # as the parent class leaves it until there is one
    never.__del__()
    del never.pid
    never.__del__()


# -- the machine


def test_a_local_machine_has_no_service_but_the_kubelet(where: ClusterPaths) -> None:
    host = machine_host(where, MACHINE.name, programs={}, daemon=Daemon(where))
    services = host._services  # the seam below `ensure`
    assert services.state("containerd") is None
    found = services.state("kubelet")
    assert found is not None
    assert (found.running, found.enabled) == (False, True)
    refused: list[Callable[[], None]] = [
        lambda: services.start("containerd"),
        lambda: services.stop("kubelet"),
        lambda: services.disable("kubelet"),
        lambda: services.enable("containerd"),
    ]
    for call in refused:
        with pytest.raises(HostError, match="on a local machine"):
            call()


@pytest.mark.parametrize(
    ("image", "there"),
    [
        ("registry.k8s.io/etcd:3.6.8-0", True),
        ("registry.k8s.io/kube-apiserver:v1.36.3", True),
        ("localhost:5000/a/b/etcd@sha256:0", True),
        ("etcd", True),
        ("registry.k8s.io/coredns/coredns:v1.14.2", False),
    ],
)
def test_an_image_exists_if_its_program_does(where: ClusterPaths, image: str, there: bool) -> None:
    runtime = machine_host(where, MACHINE.name, programs=PROGRAMS, daemon=Daemon(where)).runtime
    assert runtime.has_image(image) is there
    if not there:
        with pytest.raises(BinariesError, match=image):
            runtime.pull(image)


def test_a_dead_daemon_is_reported_with_its_last_output(where: ClusterPaths) -> None:
    where.daemon_log.write_text("error: no luck today\n")
    with pytest.raises(ComponentFailed) as caught:
        Daemon(where).require_alive()
    assert (caught.value.what, caught.value.detail) == ('the daemon of cluster "one" ended', "error: no luck today")


class Busy(ControlClient):
    """A daemon that ignores the first requests to retry. One component crashes until a request is heard, and again when told so."""

    def __init__(self, paths: ClusterPaths, *, deaf: int) -> None:
        super().__init__(paths)
        self.deaf = deaf
        self.retries = 0
        self.state = "CrashLoop"

    def retry(self) -> Reply:
        self.retries += 1
        if self.retries <= self.deaf:
            raise NoAnswer("no usable answer", reason=Reason.TIMED_OUT)
        self.state = "Waiting"
        return {}

    def status(self) -> Reply:
        return {"components": [{"machine": MACHINE.name, "name": "etcd", "state": self.state, "reason": "exit code 1"}]}


@pytest.mark.parametrize("deaf", [0, 1, 3])
def test_a_component_counts_as_failed_only_after_a_retry(where: ClusterPaths, stand_in: StandIn, deaf: int) -> None:
    stand_in(where)
    control = Busy(where, deaf=deaf)
    daemon = Daemon(where, control=control)
    run = cast("UpRun", SimpleNamespace(daemon=daemon, cluster=ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,))))
    daemon.retry()
    for _ in range(5):
        require_alive(run, control)
    assert control.retries == deaf + 1
    control.state = "CrashLoop"
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        require_alive(run, control)


def test_a_daemon_that_refuses_a_retry_is_not_asked_again(where: ClusterPaths) -> None:
    class Old(Busy):
        def retry(self) -> Reply:
            self.retries += 1
            raise HostError('the daemon of cluster "one" refused POST /retry')

    control = Old(where, deaf=0)
    daemon = Daemon(where, control=control)
    daemon.retry()
    assert daemon.retried()
    assert control.retries == 1


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("open /x: no space left on device", "free some space"),
        ("listen tcp 127.0.0.11:10259: bind: address already in use", "`ss -ltnp`"),
        ("open /x: permission denied", "owner and the mode"),
        ("unknown flag: --x", "extraArgs"),
    ],
)
def test_the_hint_follows_from_the_last_output(words: str, remedy: str) -> None:
    component = {"machine": "one", "name": "etcd", "state": "CrashLoop", "reason": "exit code 1", "lastWords": [words]}
    with pytest.raises(ComponentFailed, match="etcd does not stay up") as caught:
        require_components({"components": [component]})
    assert words in caught.value.detail
    assert remedy in caught.value.remedy
    require_components({"components": [{**component, "state": "Waiting"}]})
    with pytest.raises(ComponentFailed):
        require_components({"components": [{**component, "state": "Waiting", "refused": True}]})


# -- clearing, and reports of leftovers


def _tree(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def _fill(where: ClusterPaths) -> None:
    files = ["cluster.json", "lock", "launch.json", "nodes/one-worker-1/kubelet.conf"]
    machine = "machines/one-control-plane"
    files += [f"{machine}/{name}" for name in ("etcd/member/db", "kubernetes/pki/etcd/ca.key", "kubernetes/admin.conf", "logs/etcd.log")]
    for name in files:
        (where.root / name).parent.mkdir(parents=True, exist_ok=True)
        (where.root / name).write_text("")


def test_clearing_removes_everything_except_kept_data(where: ClusterPaths) -> None:
    _fill(where)
    down.clear(where, keep_data=True)
    machine = "machines/one-control-plane"
    assert _tree(where.root) == {"cluster.json", "lock", f"{machine}/etcd/member/db", f"{machine}/kubernetes/pki/etcd/ca.key"}
    down.clear(where, keep_data=False)
    assert _tree(where.root) == {"lock"}
    down.clear(where, keep_data=False)


def test_data_by_which_several_control_planes_find_each_other_is_kept(where: ClusterPaths) -> None:
    _fill(where)
    further = where.machine("one-control-plane-2")
    for name in ("etcd/member/db", "kubernetes/manifests/etcd.yaml", "kubernetes/manifests/kube-scheduler.yaml", "kubernetes/kubelet.conf"):
        (further / name).parent.mkdir(parents=True, exist_ok=True)
        (further / name).write_text("")
    down.clear(where, keep_data=True)
    left = {path.removeprefix("machines/one-control-plane-2/") for path in _tree(where.root) if "-2/" in path}
    assert left == {"etcd/member/db", "kubernetes/manifests/etcd.yaml", "kubernetes/kubelet.conf"}


def test_clearing_follows_no_link(where: ClusterPaths, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")
    (where.root / "link").symlink_to(tmp_path)
    down.clear(where, keep_data=False)
    assert (tmp_path / "precious").exists()


def test_a_tree_deeper_than_the_recursion_limit_is_cleared(where: ClusterPaths) -> None:
    for depth in range(1, sys.getrecursionlimit() + 50):
        (where.root / ("d/" * depth)).mkdir()
    down.clear(where, keep_data=False)
    assert list(where.root.iterdir()) == []


def test_the_end_of_an_owner_waits_for_running_commands(where: ClusterPaths) -> None:
    _fill(where)
    from pathlib import PurePosixPath

    from kubewright.host.locks import Lock

    with Lock(PurePosixPath(where.lock), doing="up"):
        down.remove_own(where)
        assert (where.root / "cluster.json").exists()
    down.remove_own(where)
    assert not where.root.exists()


def test_a_missing_cluster_is_reported_with_the_existing_ones(where: ClusterPaths) -> None:
    record.save(ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)), where.record)
    with pytest.raises(UsageError) as caught:
        status.status(ClusterPaths(where.root.parent / "two"))
    assert "kubewright up --name two" in caught.value.remedy
    assert "there are: one" in caught.value.remedy


def test_stopped_clusters_and_hanging_daemons_have_their_own_states(where: ClusterPaths, stand_in: StandIn) -> None:
    record.save(ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,), nodes=2), where.record)
    found = status.status(where)
    assert (found["state"], found["problem"], found["nodes"]) == ("Stopped", "", {"ready": 0, "total": 3})
    daemon = stand_in(where)  # it is alive and serves no control socket
    found = status.status(where)
    assert found["state"] == "NoAnswer"
    assert f"kill -9 {daemon.pid}" in found["problem"]


def test_a_foreign_socket_at_the_path_is_no_daemon(where: ClusterPaths) -> None:
    record.save(ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,)), where.record)
    with socket.socket(socket.AF_UNIX) as stale:
        bind(stale, where.socket)
    assert status.status(where)["state"] == "Stopped"
