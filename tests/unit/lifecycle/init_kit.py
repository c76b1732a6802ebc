"""A machine in a temporary directory, requests for `init`, and runs of its phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kubewright.apis.detected import Detected
from kubewright.apis.layout import Layout
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.events import Line, RecordingReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.base.waiting import InstantWaiter
from kubewright.host.facts import Facts, Machine
from kubewright.host.files import Files
from kubewright.host.found import ServiceState
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.init import acting, calls, planning, stand_ins
from kubewright.lifecycle.init.request import InitRequest

TOKEN = "abcdef.0123456789abcdef"
DETECTED = Detected(host_name="node1", default_ipv4="10.98.0.11", cri_sockets=("unix:///var/run/containerd/containerd.sock",))
FAST = "encryptionAlgorithm: ECDSA-P256\n"


def documents(*, cluster="", init=""):
    """A configuration with quick keys, and more fields of its kinds as YAML."""
    text = (
        f"apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.2\n{FAST}{cluster}"
        f"---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nbootstrapTokens: [{{token: {TOKEN}}}]\n{init}"
    )
    return yaml.load_all(text, source="kubeadm.yaml")


def asked(*, cluster="", init="", **more: object):
    return InitRequest(documents=documents(cluster=cluster, init=init), from_file=True, **more)


class Services:
    """A service manager that notes what it is told. A kubelet that it starts makes its client certificate."""

    def __init__(self, *, running=True, known=True) -> None:
        self.running = running
        self.known = known
        self.makes = None
        self.since = 0.0
        self.done = []

    def state(self, name, /):
        return ServiceState(running=self.running, enabled=True, since=self.since) if self.known else None

    def start(self, name, /, *, verb="start"):
        self.done.append((verb, name))
        self.running = True
        self.makes.parent.mkdir(parents=True, exist_ok=True)
        self.makes.write_text("certificate")

    def restart(self, name, /):
        self.start(name, verb="restart")

    def refuse(self, name, /):
        raise AssertionError(name)

    stop = enable = disable = refuse


@dataclass
class Box:
    """A machine below a directory: real files, nothing else of the machine that runs the test."""

    root: Path
    services: Services = field(default_factory=Services)
    detected: Detected = DETECTED
    reporter: RecordingReporter = field(default_factory=RecordingReporter)
    clock: FakeClock = field(default_factory=FakeClock)
    kube: RecordingKube = field(default_factory=RecordingKube)

    def __post_init__(self) -> None:
        self.services.makes = Path(self.layout.kubelet_client_current)

    @property
    def layout(self):
        return Layout.below(PurePosixPath(self.root))

    def machine(self, layout):
        host = RealHost(layout=layout, services=self.services, files=Files(durable=False), environment={})
        host.__dict__["facts"] = Facts(detected=self.detected, machine=Machine())
        return host

    def call(self, request):
        means = calls.Means(clock=self.clock, random=SeededRandom(len(self.reporter.events)), reporter=self.reporter)
        return calls.Call.of(request, machine=self.machine, means=means, layout=self.layout)

    def plan(self, request, *, observe=lambda _: None):
        return planning.plan(self.call(request), observe=observe)

    def act(self, request):
        return acting.act(self.call(request), lock_directory=self.layout.run)

    def run(self, request, *, overlay=False, kubelet_makes=()):
        """Run the phases: on the real files, or over them; against a cluster that only remembers. Returns all changes."""
        call = self.call(request)
        host = OverlayHost(call.host) if overlay else call.host
        for body in stand_ins.objects(call.configuration):
            self.kube._stand_ins.setdefault(("", "nodes", None, body["metadata"]["name"]), body)
        with calls.context(call, host, waiter=InstantWaiter(), connect=lambda _: self.kube, kubelet_makes=kubelet_makes) as ctx:
            return calls.run(ctx, call).changes

    def lines(self, topic=None):
        return [event.text for event in self.reporter.events if isinstance(event, Line) and topic in (None, event.topic)]

    def warnings(self):
        return [event.text for event in self.reporter.events if isinstance(event, Warned)]

    def snapshot(self):
        """Every file and directory with mode and content."""
        return {
            str(path.relative_to(self.root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else b"")
            for path in sorted(self.root.rglob("*"))
        }


def names(changes):
    """What was really changed, in order."""
    return [change.target for change in changes if change]
