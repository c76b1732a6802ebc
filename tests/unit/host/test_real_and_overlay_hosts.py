"""The real host below a directory, and the overlay: a plan reports what a run does, and does nothing."""

import os
import signal
import socket
import subprocess
import threading
import time
from contextlib import ExitStack
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busy import HANGS
from kubewright.apis.machine import CRI_SOCKET, Detected, Layout
from kubewright.base.change import Action, Change
from kubewright.base.errors import HostError
from kubewright.host import facts
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.desired import Directory, File, Service
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost, flat_name, materialise
from kubewright.host.processes import Identity
from kubewright.host.real import RealHost
from kubewright.host.seam import Host, RuntimeVersion
from kubewright.host.states import Container, ContainerState, Kind, RuntimeStatus, Sandbox, ServiceState
from unix_sockets import bind, short_path

__all__ = ["short_path"]


class Manager:
    """A service manager that only records."""

    def __init__(self, **running: bool) -> None:
        self.running = running
        self.told = []

    def state(self, name):
        return ServiceState(running=self.running[name], enabled=False) if name in self.running else None

    def start(self, name):
        self.told.append(f"start {name}")
        self.running[name] = True

    def stop(self, name):
        self.told.append(f"stop {name}")
        self.running[name] = False

    def restart(self, name):
        self.told.append(f"restart {name}")

    def enable(self, name):
        self.told.append(f"enable {name}")

    def disable(self, name):
        self.told.append(f"disable {name}")

    def reload(self):
        self.told.append("reload")

    def last_lines(self, name, *, count):
        return [f"{name} said"] * count


class Runtime:
    """A container runtime with one image."""

    def version(self):
        return RuntimeVersion(name="none", version="1")

    def has_image(self, image):
        return image == "there"

    def last_lines(self, pod, *, count, container=""):
        return [f"{pod} said"] * count

    def pull(self, image):
        raise AssertionError("a plan pulls nothing")

    def status(self):
        return RuntimeStatus()

    def sandbox_image(self):
        return "pause:1"

    def image_directories(self):
        return [PurePosixPath("/var/lib/images")]

    def cgroup_driver(self):
        return "systemd"

    def sandboxes(self):
        return [Sandbox(id="1", name="etcd", namespace="kube-system"), Sandbox(id="2", name="web", namespace="default")]

    def containers(self, *, namespace):
        return [Container(id="1", name="etcd", pod="etcd-one", namespace=namespace, state=ContainerState.RUNNING)]

    def stop_sandbox(self, sandbox):
        raise AssertionError("a plan stops nothing")

    def remove_sandbox(self, sandbox):
        raise AssertionError("a plan removes nothing")


def machine(root, **more: object) -> Host:
    return RealHost(layout=Layout.below(PurePosixPath(root)), files=Files(durable=False), environment={}, **more)


@pytest.fixture
def host(tmp_path):
    return machine(tmp_path)


def snapshot(root):
    found = {}
    for directory, _, names in os.walk(root):
        found[directory] = None
        found |= {f"{directory}/{name}": Path(directory, name).read_bytes() for name in names}
    return found


def manifest(host, content=b"a: 1\n", **more: object):
    return File(path=host.layout.manifest("etcd"), content=content, directory_mode=0o700, **more)


def test_a_second_ensure_changes_nothing(host):
    assert [host.ensure(manifest(host)).action for _ in range(3)] == [Action.CREATE, Action.NONE, Action.NONE]
    assert host.ensure(manifest(host, b"a: 2\n")).action is Action.UPDATE
    assert host.read(host.layout.manifest("etcd")) == b"a: 2\n"


def test_an_unchanged_file_is_not_touched(host, tmp_path):
    host.ensure(manifest(host))
    before = (tmp_path / "kubernetes/manifests/etcd.yaml").stat()
    host.ensure(manifest(host))
    after = (tmp_path / "kubernetes/manifests/etcd.yaml").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_a_link_instead_of_a_file_is_refused(host, tmp_path):
    (tmp_path / "kubernetes/manifests").mkdir(parents=True)
    (tmp_path / "kubernetes/manifests/etcd.yaml").symlink_to("/etc/passwd")
    for either in (OverlayHost(host), host):
        with pytest.raises(HostError, match="is a symbolic link, not a file"):
            either.ensure(manifest(host))


def test_leftovers_of_dead_writers_are_removed_with_their_targets(host, tmp_path):
    """A kubeconfig that was never completed, and a directory that contains nothing else."""
    kubernetes, pki = Path(host.layout.kubernetes), Path(host.layout.pki)
    pki.mkdir(parents=True)
    for directory in (kubernetes, pki):
        (directory / ".x.kubewright-4000000-1-0a-0").write_text("secret")
    assert not host.remove(host.layout.kubeconfig("admin"))
    assert host.empty(host.layout.pki).action is Action.DELETE
    assert sorted(kubernetes.rglob("*")) == [pki]


def test_only_directories_of_the_layout_are_removed(host, tmp_path):
    (tmp_path / "mine").mkdir()
    for either in (OverlayHost(host), host):
        with pytest.raises(HostError, match="not ours to remove"):
            either.remove(PurePosixPath(tmp_path / "mine"))
    assert (tmp_path / "mine").exists()


def test_services_require_a_service_manager(host):
    with pytest.raises(HostError) as refused:
        host.ensure(Service(name="kubelet"))
    assert "--plan" in refused.value.remedy
    assert host.service("kubelet") is None


def test_the_runtime_of_this_machine_is_used(host, short_path, tmp_path, monkeypatch):
    monkeypatch.setattr(facts, "CRI_SOCKETS", tuple(f"unix://{short_path}/{name}" for name in "abc"))
    assert host.runtime is host.runtime
    assert host.runtime.endpoint == CRI_SOCKET
    with ExitStack() as opened:

        def bound(name):
            made = opened.enter_context(socket.socket(socket.AF_UNIX))
            made.bind(str(short_path / name))
            return made

        bound("a")
        assert machine(tmp_path).runtime.endpoint == f"unix://{short_path}/a"
        bound("b").listen()
        assert machine(tmp_path).runtime.endpoint == f"unix://{short_path}/b"
        bound("c").listen()
        with pytest.raises(HostError, match="several container runtimes") as caught:
            _ = machine(tmp_path).runtime
        assert caught.value.detail == f"unix://{short_path}/b, unix://{short_path}/c"


def test_a_service_gets_the_necessary_commands(tmp_path):
    manager = Manager(kubelet=False)
    host = machine(tmp_path, services=manager)
    kubelet = Service(name="kubelet", enabled=True)
    assert host.ensure(kubelet).reason == "enable, start"
    assert manager.told == ["enable kubelet", "start kubelet"]
    assert host.ensure(Service(name="kubelet")).action is Action.NONE
    assert host.ensure(Service(name="kubelet", restart=True)).reason == "restart"
    assert host.ensure(Service(name="kubelet", running=False)).reason == "stop"
    assert len(manager.told) == 4


def test_an_overlay_reads_what_was_written_and_writes_nothing(host, tmp_path):
    host.ensure(manifest(host))
    before = snapshot(tmp_path)
    over = OverlayHost(host)
    over.ensure(manifest(host, b"a: 2\n", mode=0o644))
    over.ensure(Directory(path=host.layout.etcd_data, mode=0o700))
    over.ensure(File(path=host.layout.kubelet_config, content=b"x"))
    over.remove(host.layout.manifests)
    assert over.read(host.layout.manifest("etcd")) is None
    assert over.state(host.layout.etcd_data).mode == 0o700
    assert over.state(host.layout.kubelet).kind is Kind.DIRECTORY
    assert over.entries(PurePosixPath(tmp_path)) == [PurePosixPath(tmp_path) / name for name in ("etcd", "kubelet", "kubernetes")]
    assert snapshot(tmp_path) == before
    assert [change.action for change in over.changes] == [Action.UPDATE, Action.CREATE, Action.CREATE, Action.DELETE]


def test_a_directory_may_be_a_link_to_another_one(host, tmp_path):
    (tmp_path / "disk").mkdir(mode=0o755)
    (tmp_path / "etcd").symlink_to("disk")
    assert host.ensure(Directory(path=host.layout.etcd_data, mode=0o700)).action is Action.NONE
    assert host.ensure(Directory(path=host.layout.etcd_data, mode=0o700, enforce=True)).action is Action.UPDATE
    assert ((tmp_path / "etcd").is_symlink(), (tmp_path / "disk").stat().st_mode & 0o777) == (True, 0o700)
    (tmp_path / "disk").rmdir()
    with pytest.raises(HostError, match="etcd is a symbolic link, not a directory"):
        host.ensure(Directory(path=host.layout.etcd_data, mode=0o700))


def test_removed_files_do_not_reappear_with_their_directory(host):
    host.ensure(manifest(host))
    over = OverlayHost(host)
    over.remove(host.layout.manifests)
    over.ensure(File(path=host.layout.manifest("other"), content=b""))
    assert over.entries(host.layout.manifests) == [host.layout.manifest("other")]
    assert over.read(host.layout.manifest("etcd")) is None
    assert over.ensure(manifest(host)).action is Action.CREATE


PLACES = ("kubernetes", "kubernetes/manifests", "kubernetes/a", "kubernetes/manifests/b", "kubelet", "kubelet/c")
ACTIONS = st.lists(
    st.tuples(st.sampled_from(["file", "directory", "remove"]), st.sampled_from(PLACES), st.sampled_from([b"", b"1\n"]), st.booleans()),
    max_size=7,
)


def perform(host, root, action, place, content, flag):
    path = PurePosixPath(root) / place
    try:
        if action == "file":
            return host.ensure(File(path=path, content=content, mode=0o644 if flag else 0o600))
        if action == "directory":
            return host.ensure(Directory(path=path, mode=0o700, enforce=flag))
        return host.remove(path)
    except HostError as error:
        return error.what


@given(first=ACTIONS, then=ACTIONS)
def test_a_plan_reports_what_a_run_does(tmp_path_factory, first, then):
    root = tmp_path_factory.mktemp("machine")
    host = machine(root)
    for step in first:
        perform(host, root, *step)
    before = snapshot(root)
    over = OverlayHost(host)
    planned = [perform(over, root, *step) for step in then]
    assert snapshot(root) == before
    view = [seen(over, path) for path in places(root)]
    done = [perform(host, root, *step) for step in then]
    assert planned == done
    assert view == [seen(host, path) for path in places(root)]


def seen(host, path):
    """What a host shows of a path, without the sizes of directories and times, which an overlay does not know."""
    found = host.state(path)
    content = host.read(path) if found is not None and found.kind is Kind.FILE else None
    return found and (found.kind, found.mode, found.owner), content, host.entries(path)


def places(root):
    return [PurePosixPath(root) / place for place in PLACES]


def test_an_overlay_records_services_and_their_stand_ins(tmp_path):
    manager = Manager(kubelet=True)
    over = OverlayHost(machine(tmp_path, services=manager))
    link = over.layout.kubelet_client_current
    stand_in = File(path=link, content=b"certificate")
    assert over.ensure(Service(name="kubelet")).action is Action.NONE
    assert over.ensure(Service(name="kubelet", running=False)).reason == "stop"
    assert over.read(link) is None
    assert over.ensure(Service(name="kubelet", stand_ins=(stand_in,))).reason == "start"
    assert over.service("kubelet") == ServiceState(running=True, enabled=False)
    assert over.read(link) == b"certificate"
    assert over.files == ()
    assert manager.told == []


def test_an_overlay_plans_for_an_unknown_service(host):
    over = OverlayHost(host)
    assert over.ensure(Service(name="kubelet")).reason == "start"
    assert over.ensure(Service(name="kubelet")).action is Action.NONE


def test_an_overlay_pulls_no_image(tmp_path):
    over = OverlayHost(machine(tmp_path, runtime=Runtime()))
    assert over.runtime.pull("there").action is Action.NONE
    assert [over.runtime.pull("etcd").action for _ in range(2)] == [Action.CREATE, Action.NONE]
    assert over.runtime.has_image("etcd")
    assert over.runtime.version().name == "none"
    assert (over.runtime.cgroup_driver(), over.runtime.sandbox_image()) == ("systemd", "pause:1")
    assert over.runtime.status().unready is None
    assert over.runtime.last_lines("etcd", count=2) == ["etcd said", "etcd said"]
    assert len(over.changes) == 3


def test_an_overlay_stops_and_removes_no_sandbox(tmp_path):
    over = OverlayHost(machine(tmp_path, runtime=Runtime()))
    first, second = over.runtime.sandboxes()
    assert over.runtime.stop_sandbox(second).action is Action.UPDATE
    assert [over.runtime.remove_sandbox(first).action for _ in range(2)] == [Action.DELETE, Action.NONE]
    assert over.runtime.sandboxes() == [second]
    assert [str(change.target) for change in over.changes if change] == ["pod default/web", "pod kube-system/etcd"]


def test_an_overlay_returns_output_of_services_and_containers(tmp_path):
    below = machine(tmp_path, runtime=Runtime(), services=Manager(kubelet=True))
    overlay = OverlayHost(below)
    assert overlay.service_lines("kubelet", count=2) == below.service_lines("kubelet", count=2) == ["kubelet said"] * 2
    assert overlay.runtime.containers(namespace="kube-system") == below.runtime.containers(namespace="kube-system")
    assert machine(tmp_path).service_lines("kubelet", count=2) == []


def test_an_overlay_sends_no_signal(host):
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        identity = Identity.of(process.pid)
        over = OverlayHost(host).processes
        assert over.signal(identity, signal.SIGKILL)
        assert over.alive(identity)
        assert over.of(process.pid) == identity
        assert over.group(process.pid) == [identity]
        end = time.monotonic() + HANGS
        while not over.usage(identity).rss_bytes:  # it has no memory at the instant of exec
            assert time.monotonic() < end
            time.sleep(0.001)
        os.close(over.handle(identity))
        assert identity not in over.marked({"PATH": "nothing like it"})
        process.kill()


def test_facts_can_be_given(host):
    facts = Facts(detected=Detected(host_name="node1", default_ipv4="10.98.0.11"), machine=MachineInfo())
    assert OverlayHost(host, facts=facts).facts is facts
    assert OverlayHost(host).facts is host.facts
    assert host.facts.machine.cores > 0
    assert OverlayHost(host).network is host.network


def test_overlays_can_be_stacked(host):
    below = OverlayHost(host)
    below.ensure(manifest(host))
    over = OverlayHost(below)
    assert over.ensure(manifest(host)).action is Action.NONE
    over.remove(host.layout.kubernetes)
    assert over.read(host.layout.manifest("etcd")) is None
    assert below.read(host.layout.manifest("etcd")) == b"a: 1\n"


def test_several_threads_write_to_an_overlay(host):
    over = OverlayHost(host)

    def work(number):
        for turn in range(50):
            over.ensure(File(path=host.layout.pki / f"{number}-{turn}.crt", content=b""))
            over.entries(host.layout.pki)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(over.files) == 200


def test_certificates_are_written_below_the_pki(host, tmp_path):
    store = HostCertificateStore(host)
    assert store.read("etcd/ca.key") is None
    change = store.write("etcd/ca.key", b"secret", mode=0o600)
    assert (change.action, change.diff, change.reason) == (Action.CREATE, "", "made on apply")
    assert store.read("etcd/ca.key") == b"secret"
    assert [(tmp_path / "kubernetes/pki" / name).stat().st_mode & 0o777 for name in ("", "etcd", "etcd/ca.key")] == [0o755, 0o755, 0o600]
    elsewhere = HostCertificateStore(host, directory=host.layout.kubernetes)
    elsewhere.write("admin.conf", b"x", mode=0o600)
    assert host.read(host.layout.kubeconfig("admin")) == b"x"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../ca.key", "etcd/../../x", "."])
def test_a_certificate_name_stays_below_the_pki(host, name):
    store = HostCertificateStore(host)
    for use in (lambda: store.read(name), lambda: store.write(name, b"", mode=0o600)):
        with pytest.raises(HostError, match="is not the name of a certificate file"):
            use()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/etc/kubernetes/pki/ca.crt", "ca.crt"),
        ("/etc/kubernetes/pki/etcd/ca.crt", "etcd/ca.crt"),
        ("/etc/kubernetes/admin.conf", "admin.conf"),
        ("/etc/kubernetes/manifests/etcd.yaml", "etcd.yaml"),
        ("/var/lib/kubelet/config.yaml", "config.yaml"),
        ("/var/lib/kubelet/pki/kubelet.crt", None),
        ("/var/lib/etcd/member", None),
        ("/etc/other", None),
    ],
)
def test_a_dry_run_puts_everything_flat(path, name):
    assert flat_name(Layout(), PurePosixPath(path)) == (name and PurePosixPath(name))


def test_a_moved_pki_stays_flat_in_a_dry_run():
    layout = Layout().at(pki="/etc/kubernetes/custom-pki", etcd_data=None)
    assert flat_name(layout, PurePosixPath("/etc/kubernetes/custom-pki/etcd/ca.crt")) == PurePosixPath("etcd/ca.crt")


def test_a_dry_run_is_written_into_its_directory(host, tmp_path):
    pki = HostCertificateStore(host)
    pki.write("ca.crt", b"reused", mode=0o644)
    over = OverlayHost(host)
    HostCertificateStore(over).write("etcd/server.key", b"key", mode=0o600)
    over.ensure(manifest(host))
    over.ensure(Directory(path=host.layout.etcd_data, mode=0o700))
    over.ensure(File(path=host.layout.kubelet_config, content=b"kubelet", mode=0o644))
    over.ensure(File(path=host.layout.run / "nowhere", content=b""))
    target = tmp_path / "dry"
    copies = [host.layout.certificate("ca"), host.layout.key("ca")]
    changes = materialise(over, PurePosixPath(target), writer=host, copies=copies)
    found = {
        str(path.relative_to(target)): (path.read_bytes(), path.stat().st_mode & 0o777) for path in target.rglob("*") if path.is_file()
    }
    assert found == {
        "ca.crt": (b"reused", 0o644),
        "etcd/server.key": (b"key", 0o600),
        "etcd.yaml": (b"a: 1\n", 0o600),
        "config.yaml": (b"kubelet", 0o644),
    }
    assert sorted(change.target for change in changes) == sorted(f"file {target / name}" for name in found)
    assert all(change.diff == "" for change in changes)
    assert target.stat().st_mode & 0o777 == 0o700
    assert not any(materialise(over, PurePosixPath(target), writer=host, copies=copies))


def test_sockets_are_recognised(host, tmp_path):
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        bind(listening, tmp_path / "run/s")
        assert host.state(host.layout.run / "s").kind is Kind.SOCKET


def test_changes_of_a_plan_are_values():
    assert Change(target="x", action=Action.NONE) == Change(target="x", action=Action.NONE)
