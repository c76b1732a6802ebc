"""A machine of a cluster, below a directory: its files, services, pods and mounts, and resets of it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.errors import HostError
from kubewright.base.events import Line, RecordingReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.etcd.api import Member
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.filesystem.files import Files
from kubewright.host.programs.packet_filter import Rules
from kubewright.host.real import RealHost
from kubewright.host.states import Sandbox, ServiceState
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle import machine as lifecycle
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.reset import operation as reset
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.reset.request import ResetOptions

DETECTED = Detected(host_name="node1", default_ipv4="10.0.0.1", cri_sockets=("unix:///run/containerd/containerd.sock",))
OWN, OTHER = "https://10.0.0.1:2380", "https://10.0.0.2:2380"
NODES = (
    Member(id=1, name="node1", peer_urls=(OWN,), client_urls=("https://10.0.0.1:2379",)),
    Member(id=2, name="node2", peer_urls=(OTHER,), client_urls=("https://10.0.0.2:2379",)),
)
PODS = ("coredns-a", "etcd-node1", "kube-apiserver-node1")


def etcd_manifest(data, *, cluster=f"node2={OTHER},node1={OWN}"):
    words = [f"--initial-advertise-peer-urls={OWN}", f"--initial-cluster={cluster}", "--listen-client-urls=https://127.0.0.1:2379"]
    volumes = [{"name": "etcd-data", "hostPath": {"path": str(data)}}]
    return pod("etcd", words, volumes)


def pod(name, words, volumes=(), **more: object):
    spec = {"containers": [{"name": name, "command": [name, *words]}], "volumes": list(volumes), **more}
    return yaml.dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


class Services:
    """A service manager that knows a kubelet."""

    def __init__(self) -> None:
        self.running = True
        self.stopped = 0
        self.refuses = ""
        self.disabled = []

    def state(self, name, /):
        return ServiceState(running=self.running)

    def stop(self, name, /):
        if self.refuses:
            raise HostError(self.refuses)
        self.running = False
        self.stopped += 1

    def refuse(self, name, /):
        raise AssertionError(name)

    start = restart = enable = refuse

    def disable(self, name, /):
        self.disabled.append(name)

    def reload(self):
        """Read units again: there are none."""


class Runtime:
    """A container runtime with pods; those in `stays` cannot be removed."""

    def __init__(self, services) -> None:
        self.pods = [Sandbox(id=name, name=name, namespace="kube-system") for name in PODS]
        self.services = services
        self.stays = set()
        self.fails = None
        self.failing = None
        self.lock = threading.Lock()  # pods are removed in threads, and `list.remove` compares in Python

    def sandboxes(self):
        """Fail with `fails`: always, or as often as `failing` says."""
        if self.fails is not None and self.failing != 0:
            self.failing = self.failing and self.failing - 1
            raise self.fails
        return list(self.pods)

    def remove_sandbox(self, sandbox, /):
        assert not self.services.running, "the kubelet would start it again"
        if sandbox.name in self.stays:
            raise HostError(f"{sandbox.name} does not end")
        with self.lock:
            self.pods.remove(sandbox)
        return Change(target=sandbox.target, action=Action.DELETE)


class PacketFilter:
    def __init__(self) -> None:
        self.rules = [Rules(target="nftables table ip kube-proxy", argv=("nft", "delete", "table", "ip", "kube-proxy"))]

    def found(self):
        return list(self.rules)

    def remove(self, rules, /):
        self.rules.remove(rules)
        return Change(target=rules.target, action=Action.DELETE)


class ResetHost(RealHost):
    """This machine with simulated mounts and packet filter. Unmounting is recorded; busy mounts stay."""

    box: Box

    @property
    def facts(self):
        return Facts(detected=DETECTED, machine=MachineInfo())

    @property
    def packet_filter(self):
        return self.box.packets

    def mounts(self, directory, /):
        return [path for path in self.box.mounts if path.is_relative_to(directory)]

    def unmount(self, path, /, *, flags=()):
        self.box.unmounted.append((path, tuple(flags)))
        if path in self.box.busy:
            raise HostError(f"{path} cannot be unmounted", detail="Device or resource busy", remedy="end what uses it")
        self.box.mounts.remove(path)
        return Change(target=f"mount {path}", action=Action.DELETE)


@dataclass
class Box:
    """A machine below a directory."""

    root: Path
    services: Services = field(default_factory=Services)
    reporter: RecordingReporter = field(default_factory=RecordingReporter)
    packets: PacketFilter = field(default_factory=PacketFilter)
    mounts: list[PurePosixPath] = field(default_factory=list)
    busy: set[PurePosixPath] = field(default_factory=set)
    unmounted: list = field(default_factory=list)
    etcd: RecordingEtcd = field(default_factory=RecordingEtcd)
    kube: RecordingKube = field(default_factory=RecordingKube)
    asked: list[str] = field(default_factory=list)
    answer: str = "y\n"
    etcd_asked: list[tuple[str, ...]] = field(default_factory=list)
    etcd_fails: Exception | None = None
    row: object = reset.RESET

    def __post_init__(self) -> None:
        self.runtime = Runtime(self.services)
        self.etcd._members = list(NODES)

    @property
    def layout(self):
        return Layout.below(PurePosixPath(self.root))

    def write(self, name, text=""):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def make_worker(self):
        """Add the files of a worker that kubeadm joined."""
        for name in ("kubernetes/kubelet.conf", "kubernetes/pki/ca.crt", "kubelet/config.yaml", "kubelet/pki/kubelet.crt", "cni/f"):
            self.write(name)
        (self.root / "kubernetes/manifests").mkdir()
        return self

    def make_control_plane(self):
        """Add the files of a control plane."""
        self.make_worker()
        for name in ("ca.key", "etcd/ca.crt", "etcd/server.crt", "etcd/healthcheck-client.crt"):
            self.write(f"kubernetes/pki/{name}")
        for name in ("admin", "super-admin", "controller-manager", "scheduler"):
            self.write(f"kubernetes/{name}.conf")
        self.write("etcd/member/wal/0.wal")
        self.write("kubernetes/manifests/etcd.yaml", etcd_manifest(self.layout.etcd_data))
        volumes = [{"name": "k8s-certs", "hostPath": {"path": str(self.layout.pki)}}]
        words = ["--etcd-servers=https://127.0.0.1:2379", "--advertise-address=10.0.0.1"]
        self.write("kubernetes/manifests/kube-apiserver.yaml", pod("kube-apiserver", words, volumes))
        return self

    def machine(self, layout):
        host = ResetHost(layout=layout, services=self.services, runtime=self.runtime, files=Files(durable=False), environment={})
        host.box = self
        return host

    def request(self, *, text="", **asked: object):
        document = f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\n{text}"
        return ResetOptions(documents=yaml.load_all(document, source="reset.yaml"), from_file=True, ask=self.ask, **asked)

    def run(self, mode, *, text="", **asked: object):
        environment = {"XDG_STATE_HOME": str(self.root / "run")}  # for ordinary users
        whole = lifecycle.TargetMachine(
            at=self.machine, clock=FakeClock(), random=SeededRandom(1), layout=self.layout, environment=environment
        )
        return run(self.row, self.request(text=text, **asked), whole, reporter=self.reporter, mode=mode)

    def call(self, *, text="", **asked: object):
        whole = lifecycle.TargetMachine(at=self.machine, clock=FakeClock(), random=SeededRandom(1), layout=self.layout)
        return reset.prepare(self.request(text=text, **asked), whole)

    def reset(self, *, text="", **asked: object):
        """Reset it. The user that runs the test counts as root."""
        return self.run(Mode.APPLY, text=f"ignorePreflightErrors: [all]\n{text}", **asked)

    def plan(self, **asked: object):
        return self.run(Mode.PLAN, **asked).plan

    def dry_run(self, **asked: object):
        return self.run(Mode.NARRATE, text="ignorePreflightErrors: [all]\n", **asked)

    def ask(self, question):
        self.asked.append(question)
        return self.answer

    def reach_etcd(self, ctx, endpoints):
        self.etcd_asked.append(endpoints)
        if self.etcd_fails is not None:
            raise self.etcd_fails
        return self.etcd

    def lines(self, topic="reset"):
        return [event.text for event in self.reporter.events if isinstance(event, Line) and event.topic == topic]

    def warnings(self):
        return [event.text for event in self.reporter.events if isinstance(event, Warned)]

    def left(self):
        """Everything below the machine except its lock."""
        found = (str(path.relative_to(self.root)) for path in sorted(self.root.rglob("*")))
        return [name for name in found if not name.startswith("run")]

    def install(self, monkeypatch):
        """Replace the real etcd and cluster by those of the test."""

        box = self

        class Context(ResetContext):
            def connect(self):
                return self.bound.connections._over(box.kube, ())

            def etcd_client(self, endpoints):
                return box.reach_etcd(self, endpoints)

        def context(request, task, bound):
            made = reset.context(request, task, bound)
            return Context(bound=bound, configuration=made.configuration, inventory=made.inventory, request=request)

        self.row = replace(reset.RESET, context=context)
        return self


def names(changes):
    return [change.target for change in changes if change]


__all__ = ["Box", "names"]
