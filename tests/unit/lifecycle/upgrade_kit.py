"""A control plane in a temporary directory that is upgraded.

Its kubelet starts what the manifests say, and its components report their image's tag.
"""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from init_kit import Box, Services, asked

from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.errors import Forbidden, Unreachable
from kubewright.base.records import dataclass as record
from kubewright.base.records import replace
from kubewright.etcd.api import Alarm, Hash, Member, Status
from kubewright.etcd.recording import RecordingEtcd
from kubewright.host.programs.commands import RealPrograms
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Container, ContainerState, Sandbox
from kubewright.http.messages import Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import CONFIG_MAP, NODE
from kubewright.lifecycle import recovery
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.upgrade import operation, rollback, status
from kubewright.lifecycle.upgrade.context import UpgradeContext
from kubewright.lifecycle.upgrade.request import RollbackOptions, UpgradeOptions
from kubewright.pki import table
from operation_kit import stand_in_machine
from snapshot_files import database, snapshot

OLD, NEW = "v1.36.2", "v1.36.3"
PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
MIRROR = "kubernetes.io/config.mirror"
PORTS = {10257: "kube-controller-manager", 10259: "kube-scheduler"}


VERBS = ("ensure", "remove", "move", "remove_units")
"""What changes a machine."""


class Killed(BaseException):
    """What ends a run at once, like a signal that cannot be caught."""


def kill(*_: object, **__: object):
    raise Killed


@functools.cache
def _tag(manifest: str) -> str:
    """Return the tag of the image that a manifest names. Waits ask for it many times."""
    return yaml.load(manifest, source="a manifest")["spec"]["containers"][0]["image"].rpartition(":")[2]


class Runtime:
    """The containers that the kubelet has started from the manifests. `broken` components end at once if their image has the tag of `at`."""

    def __init__(self, box: ControlPlane) -> None:
        self.box = box
        self.broken: set[str] = set()
        self.at = NEW
        self.missing: set[str] = set()
        """The images that it does not have."""
        self.starts: list[str] = []
        self.stopped: list[str] = []
        self.held: dict[str, Callable[[], bool]] = {}
        """Components of the new version that the kubelet does not start before a condition holds."""
        self.ends: dict[str, Callable[[], bool]] = {}
        """Components of the new version that have ended, and run again, once a condition holds."""
        self.kubelet, self.looks = "", 0
        """What the UIDs of the kubelet's pods end with, and how often one can look until its containers are those of these pods."""
        self._follows = ""

    def containers(self, *, namespace):
        if self.looks:
            self.looks -= 1
        else:
            self._follows = self.kubelet
        found = [self._container(name) for name in PODS if Path(self.box.layout.manifest(name)).exists() and not self._waits(name)]
        return [one for one in found if one is not None]

    def _waits(self, name):
        return name in self.held and self.box.tag(name) == self.at and not self.held[name]()

    def fails(self, name):
        return name in self.broken and self.box.tag(name) == self.at

    def _container(self, name):
        path = Path(self.box.layout.manifest(name))
        uid = f"{name} {path.read_text()}{self._follows}"
        if uid not in self.starts:
            self.starts.append(uid)
        if name in self.ends and self.box.tag(name) == self.at and self.ends[name]():
            uid += " again"
        ends = self.fails(name)
        state = ContainerState.EXITED if ends else ContainerState.RUNNING
        return Container(
            id=uid,
            name=name,
            pod=f"{name}-node1",
            namespace="kube-system",
            state=state,
            pod_uid=uid,
            created=self.box.clock.now().timestamp() if ends else path.stat().st_mtime,
            attempt=3 if ends else 0,
            code=1 if ends else 0,
        )

    def has_image(self, image):
        return image not in self.missing

    def image_directories(self):
        return [Path(self.box.root)]

    def last_lines(self, pod, *, count, container=""):
        if container:
            return [f"the last words of {pod}, which has ended"]
        return [f"the last words of {pod}"] if pod in self.broken else []

    def sandboxes(self):
        return [Sandbox(id=f"of {name}", name=f"{name}-node1", namespace="kube-system") for name in (*PODS, table.CONTROLLERS.name)]

    def stop_sandbox(self, sandbox):
        self.stopped.append(sandbox.id)
        return Change(target=sandbox.target, action=Action.UPDATE)

    def version(self):
        return RuntimeVersion(name="fake", version="1")

    def sandbox_image(self):
        return ""

    def cgroup_driver(self):
        return "systemd"


class Answers(KubeAPI):
    """The cluster of a machine, and what its components report, as one client sees it."""

    def __init__(self, box: ControlPlane, server: str, timeout: float) -> None:
        self.box, self.server, self.timeout = box, server, timeout

    def send(self, call, /):
        self.box.limits.setdefault(call.name, set()).add(self.timeout)
        if self.box.server and call.verb == "list" and "fieldSelector" not in call.query:
            raise Forbidden(f"a kubelet may not list {call.resource.plural}", code=403)
        if call.name == "kubeadm-config" and call.verb == "get" and self.box.refused:
            self.box.refused -= 1
            raise Forbidden("no relationship found", code=403)
        writes, renews = call.verb not in ("get", "list"), threading.current_thread() is not threading.main_thread()
        return self.box.effect(self.box.kube.send(call), counts=writes and not renews)  # a lease is renewed at any time

    def exchange(self, request, /):
        if request.target == "/pods":
            return Response(status=200, headers={}, body=json.dumps({"items": self.box.pods()}).encode())
        name = PORTS.get(int(self.server.rpartition(":")[2]), "kube-apiserver")
        if self.server in self.box.unready or (request.target == "/readyz" and self.box.refused > 0):
            return Response(status=500, headers={}, body=b"[-]etcd failed: reason withheld\n")
        if self.box.runtime.fails(name):
            raise Unreachable(f"{name} does not answer")
        tag = self.box.server or self.box.tag(name)
        text = {
            "/version": json.dumps({"gitVersion": tag}),
            "/metrics": f'kubernetes_build_info{{git_version="{tag}"}} 1\n{self.box.metrics}',
        }
        return Response(status=200, headers={}, body=text.get(request.target, "ok").encode())


@record(frozen=True, kw_only=True)
class Context(UpgradeContext):
    """Asks the components of the machine in the directory."""

    box: object = None

    def health_endpoint(self, server, path):
        name = PORTS.get(int(server.rpartition(":")[2]), "kubelet")
        return lambda: "it is not healthy" if self.box.runtime.fails(name) else None

    @property
    def etcd(self):
        return Etcd(self.box)

    @property
    def members(self):
        return Etcd(self.box)


@record(frozen=True, kw_only=True)
class StatusView(Context, status.StatusContext):
    """The same for reading the cluster."""


class Etcd(RecordingEtcd):
    """Members of etcd by name, this machine's first; those in `dead` do not answer."""

    def __init__(self, box) -> None:
        super().__init__()
        self.box = box

    def members(self, *, agreed=True):
        addresses = {"node1": "10.98.0.11", **{name: f"10.98.1.{number}" for number, name in enumerate(self.box.others)}}
        return [
            Member(
                id=number,
                name=name,
                peer_urls=(f"https://{at}:2380",),
                client_urls=(f"https://{at}:2379",),
                learner=name in self.box.learners,
            )
            for number, (name, at) in enumerate(addresses.items(), 1)
        ]

    def statuses(self):
        return [self.status(member.client_urls[0]) for member in self.members()]

    def status(self, endpoint, /):
        member = next(one for one in self.members() if endpoint in one.client_urls)
        if member.name in self.box.dead:
            return Status(endpoint=endpoint, problem="connection refused")
        tag = self.box.tag("etcd")
        leader = 0 if tag == self.box.cut_off_at else self.box.leader
        revision = 0 if member.id == 1 and tag == self.box.empty_at else 7
        version = tag.partition("-")[0]
        return Status(
            endpoint=endpoint,
            member_id=member.id,
            leader_id=leader,
            version=version,
            revision=revision,
            size=self.box.etcd_size,
            errors=tuple(f"memberID:{one.member_id} alarm:{one.kind} " for one in self.box.alarms),
        )

    def hash(self, endpoint, /, *, revision=0):
        own = endpoint in self.members()[0].client_urls
        return Hash(value=2 if own and self.box.tag("etcd") == self.box.differs_at else 1, revision=revision, compact_revision=0)

    def alarms(self):
        return list(self.box.alarms)

    def snapshot(self, endpoint, /):
        yield self.box.snapshot_of_etcd

    def move_leader(self, endpoint, target, /):
        self.box.leader = target

    def reach(self, peer_url, /):
        return "connection refused" if any(peer_url in one.peer_urls and one.name in self.box.dead for one in self.members()) else ""


class Kubelet(Services):
    """The kubelet's service, which has written nothing."""

    box = None
    agent = False
    """Whether kubewright's agent runs as well."""

    def state(self, name, /):
        return super().state(name) if name == "kubelet" or (self.agent and name == "kubewright-agent") else None

    def told(self, name=""):
        """Ignores units that come and go in addition to the kubelet."""

    stop = enable = disable = reload = told

    def last_lines(self, name, /, *, count):
        return []

    def start(self, name, /, *, verb="start"):
        super().start(name, verb=verb)
        if self.box is not None:
            self.box.kubelet_started()


@dataclass
class ControlPlane(Box):
    """A first control plane that `init` has created with the version before ours."""

    services: Kubelet = field(default_factory=Kubelet)
    others: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()
    learners: tuple[str, ...] = ()
    limits: dict[str | None, set[float]] = field(default_factory=dict)
    """The time limits of the requests for objects of a name, in seconds."""
    unready: tuple[str, ...] = ()
    alarms: tuple[Alarm, ...] = ()
    leader: int = 1
    cut_off_at: str = ""
    """The tag of etcd's image with which it runs, but follows no leader."""
    empty_at: str = ""
    differs_at: str = ""
    """The tags with which this machine's member has no data, and with which its data differ from those of the others."""
    server: str = ""
    """The version of the API server that a worker uses, whose kubelet's identity may list nothing of others; '' on a control plane."""
    refused: int = 0
    """How many requests an API server that has just been started still refuses; negative for one that is ready."""
    metrics: str = ""
    """More metrics of the components."""
    dies: int = 0
    """The number of the change of the machine or the cluster after which a run is killed; 0 for none."""
    done: int = 0
    etcd_size: int = 4096
    snapshot_of_etcd: bytes = snapshot(database(1))
    clock: FakeClock = field(default_factory=lambda: FakeClock(datetime.now(UTC) + timedelta(hours=1)))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runtime = Runtime(self)
        self.services.box = self
        self.run(asked())
        node = self.kube.get(NODE, "node1")
        self.kube.update({**node, "status": {"nodeInfo": {"kubeletVersion": OLD}}})
        for name in PODS:
            self.kube.create(self.mirror(name))
        self.runtime.containers(namespace="kube-system")

    def mirror(self, name):
        body = yaml.load(self.text(name), source=name)
        metadata = {**body["metadata"], "name": f"{name}-node1", "annotations": {**body["metadata"].get("annotations", {}), MIRROR: "x"}}
        return {**body, "metadata": metadata, "spec": {**body["spec"], "nodeName": "node1"}}

    def kubelet(self, version, *, path=None):
        """Write a program that reports that it is a kubelet: by default that of the machine."""
        program = path or self.root / "bin/kubelet"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
        program.chmod(0o755)
        return str(program)

    def kubelet_started(self):
        """The kubelet of the machine reports its version, unless it is one of the `broken`."""
        program = self.root / "bin/kubelet"
        version = program.read_text().split()[-1] if program.exists() else OLD
        if version not in self.runtime.broken:
            node = self.kube.get(NODE, "node1")
            status = {"nodeInfo": {"kubeletVersion": version}, "conditions": [{"type": "Ready", "status": "True"}]}
            self.kube.update({**node, "status": status})

    def become_worker(self, *, server):
        """Leave only what a worker has."""
        for name in PODS:
            Path(self.layout.manifest(name)).unlink()
        self.server = server

    def pods(self):
        """What the kubelet lists."""
        return [{"metadata": {"name": f"{name}-node1", "uid": f"{name} {self.text(name)}{self.runtime.kubelet}"}} for name in PODS]

    def text(self, name):
        return Path(self.layout.manifest(name)).read_text()

    def tag(self, name):
        """The tag of the image that a manifest names."""
        return _tag(self.text(name))

    def tags(self):
        return [self.tag(name) for name in PODS]

    def machine(self, layout, *, files=None):
        host = super().machine(layout, files=files)
        host._runtime = self.runtime
        host.programs = RealPrograms(environment={"PATH": str(self.root / "bin")})
        for verb in VERBS if self.dies else ():
            setattr(host, verb, self._counted(getattr(host, verb)))
        return host

    def _counted(self, verb):
        return lambda *arguments, **more: self.effect(verb(*arguments, **more))

    def effect(self, made, *, counts=True):
        """Count an effect, if there was one, and return it. After that with the number `dies`, no further one is possible."""
        self.done += bool(made) and counts
        if self.dies and counts and self.done >= self.dies:
            raise Killed
        return made

    def killed(self, number, call):
        """Whether a call is killed after so many changes. It may also end before."""
        self.dies, self.done = number, 0
        try:
            call()
        except Killed:
            return True
        finally:
            self.dies = 0
        return False

    def upgrade(self, *, section="apply", version=NEW, mode=Mode.APPLY, only=(), ask=None, options=None, **flags: object):
        """Upgrade it, with checks that report nothing. `options` are fields of the request."""
        row = {"apply": operation.APPLY, "node": operation.NODE}[section]

        def context(request, task, bound):
            made = operation.context(request, task, bound)
            return Context(bound=bound, addresses=made.addresses, task=task, request=request, box=self)

        request = UpgradeOptions(
            section=section,
            flags={"ignore_preflight_errors": ("all",), **flags},
            arguments=(version,) if section == "apply" else (),
            only=only,
            yes=ask is None,
            ask=ask,
            **(options or {}),
        )
        machine = stand_in_machine(self.whole(), client=lambda access, timeout: Answers(self, access.server, timeout))
        return run(replace(row, context=context), request, machine, reporter=self.reporter, mode=mode)

    def rollback(self, *, mode=Mode.APPLY, ask=None):
        """Roll back the last upgrade."""

        def context(request, task, bound):
            made = rollback.ROLLBACK.context(request, task, bound)
            return Context(bound=bound, addresses=made.addresses, task=task, request=made.request, box=self)

        machine = stand_in_machine(self.whole(), client=lambda access, timeout: Answers(self, access.server, timeout))
        row = replace(rollback.ROLLBACK, context=context)
        return run(row, RollbackOptions(yes=ask is None, ask=ask), machine, reporter=self.reporter, mode=mode)

    def recover(self):
        """Do what the unit does at boot, and return the targets of what changed."""
        changes = run(recovery.RECOVER, None, stand_in_machine(self.whole(), client=None), reporter=self.reporter).changes
        return [change.target for change in changes if change]

    def status(self):
        """Read the cluster from this machine."""

        def context(request, task, bound):
            made = operation.context(request, task, bound)
            return StatusView(bound=bound, addresses=made.addresses, task=task, request=request, box=self)

        machine = stand_in_machine(self.whole(), client=lambda access, timeout: Answers(self, access.server, timeout))
        row = replace(status.STATUS, context=context)
        return run(row, UpgradeOptions(section="node"), machine, reporter=self.reporter).context.found

    def manifests(self):
        return {name: self.text(name) for name in PODS}


def stored(box):
    """The ClusterConfiguration that the cluster stores."""
    return yaml.load(box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")["data"]["ClusterConfiguration"], source="stored")


def store(box, **fields: object):
    """Change fields of the ClusterConfiguration that the cluster stores."""
    config = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")
    box.kube.update({**config, "data": {"ClusterConfiguration": yaml.dump({**stored(box), **fields})}})


def with_another_control_plane(box, **ready: str):
    """Add a control plane node2 whose API server has the earlier version, and whose Node has a condition."""
    pod = box.mirror("kube-apiserver")
    box.kube.create({**pod, "metadata": {**pod["metadata"], "name": "kube-apiserver-node2"}, "spec": {**pod["spec"], "nodeName": "node2"}})
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "node2"},
        "status": {"nodeInfo": {"kubeletVersion": OLD}, "conditions": [{"type": "Ready", **ready}]},
    }
    box.kube.create(node)
