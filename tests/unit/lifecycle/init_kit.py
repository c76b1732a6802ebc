"""A machine in a temporary directory, requests for `init`, and runs of its phases."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from kubewright.apis.machine import Detected, Layout
from kubewright.base import yaml
from kubewright.base.clock import FakeClock
from kubewright.base.events import Line, RecordingReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.filesystem.files import Files
from kubewright.host.overlay import OverlayHost
from kubewright.host.real import RealHost
from kubewright.host.states import ServiceState
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle import machine
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.init import operation as init
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.steps import stand_ins
from operation_kit import observed, run_phases

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
    return InitOptions(documents=documents(cluster=cluster, init=init), from_file=True, **more)


class Services:
    """A service manager that records its calls. A kubelet that it starts creates its client certificate."""

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
    """A machine below a directory: real files, and nothing else of the machine that runs the test."""

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

    def machine(self, layout, *, files=None):
        host = RealHost(layout=layout, services=self.services, files=files or Files(durable=False), environment={})
        host.__dict__["facts"] = Facts(detected=self.detected, machine=MachineInfo())
        return host

    def whole(self, **more: object):
        """This machine, with its clock and separate randomness for each run."""
        given = {"at": self.machine, "clock": self.clock, "random": SeededRandom(len(self.reporter.events)), "layout": self.layout}
        given["environment"] = {"XDG_STATE_HOME": str(self.root / "run")}
        return machine.TargetMachine(**{**given, **more})

    def call(self, request):
        """Prepare a request, and report the warnings."""
        prepared = init.prepare(request, self.whole())
        for warning in prepared.warnings:
            self.reporter.emit(Warned(text=warning))
        return prepared

    def plan(self, request, *, observe=lambda _: None):
        return self.planned(request, observe=observe).plan

    def planned(self, request, *, observe=lambda _: None, mode=Mode.PLAN, **more: object):
        return run(observed(observe), request, self.whole(**more), reporter=self.reporter, mode=mode)

    def really(self, request, mode=Mode.PLAN, **more: object):
        """Plan or run it, with the cluster that the machine's own kubeconfig names."""
        return run(init.INIT, request, self.whole(**more), reporter=self.reporter, mode=mode)

    def dry_run(self, request, directory, *, observe=lambda _: None):
        """Returns the plan, and what was written into the directory."""
        there = {init.INIT.dry_run.variable: str(directory)}
        done = self.planned(request, observe=observe, mode=Mode.NARRATE, environment=there)
        return done.plan, done.written

    def act(self, request):
        return run(init.INIT, request, self.whole(), reporter=self.reporter).changes

    def run(self, request, *, overlay=False, kubelet_makes=()):
        """Run the phases on the real files or on an overlay, and with a cluster in memory. Returns all changes."""
        prepared = init.prepare(request, self.whole())
        host = OverlayHost(prepared.host) if overlay else prepared.host
        for body in stand_ins.objects(prepared.configuration):
            self.kube._stand_ins.setdefault(("", "nodes", None, body["metadata"]["name"]), body)
        return run_phases(prepared, request, self.whole(), kube=self.kube, reporter=self.reporter, host=host, kubelet_makes=kubelet_makes)

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
    """The real changes, in order."""
    return [change.target for change in changes if change]
