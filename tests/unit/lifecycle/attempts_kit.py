"""Failed attempts on a machine below a directory, and the results of another attempt: to be compared with those on a fresh machine."""

from __future__ import annotations

import base64
import functools
import json
import threading
from pathlib import Path

import join_kit
import trustme
from init_kit import TOKEN, Box, Services
from join_kit import JoiningMachine, vars_of

from certificate_summaries import of_certificate, of_key
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock
from kubewright.base.errors import HostError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Sandbox, ServiceState
from kubewright.http.messages import Response
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.init import operation as init
from kubewright.lifecycle.join import operation as join
from kubewright.lifecycle.join.request import JoinFlags, JoinOptions
from kubewright.lifecycle.steps import stand_ins
from kubewright.pki import certificates
from kubewright.workflow.phases import Phases
from operation_kit import KnownCluster

KEY = "ab" * 32
_AUTHORITY = trustme.CA(key_type=trustme.KeyType.ECDSA)
"""The pin of the one cluster that all machines join, which is in their records."""


def failing(row, name, error):
    """The row of an operation whose phase of this name fails."""

    def fail(_):
        raise error

    def changed(phase, above=""):
        full = f"{above}{phase.word}"
        children = tuple(changed(child, f"{full}/") for child in phase.children)
        return replace(phase, run=fail if full == name else phase.run, children=children)

    return replace(row, phases=Phases(*map(changed, row.phases.roots)))


class Kubelet(Services):
    """A kubelet that starts what it finds, and leaves what a real one leaves."""

    def __init__(self, box) -> None:
        super().__init__(running=False)
        self.box = box

    def state(self, name, /):
        return ServiceState(running=self.running, enabled=True) if name == "kubelet" else None

    def start(self, name, /, *, verb="start"):
        self.done.append((verb, name))
        self.running = True
        layout = self.box.layout
        self.box.cluster.sign(layout)
        for file in ("cpu_manager_state", "pki/kubelet.crt", "pods/1/etc-hosts", "device-plugins/kubelet.sock"):
            write(layout.kubelet / file)
        for manifest in sorted(Path(layout.manifests).glob("*.yaml")):
            self.box.runtime.add(manifest.stem)
            if manifest.stem == "etcd":
                document = yaml.load(manifest.read_bytes(), source="")
                data = next(one["hostPath"]["path"] for one in document["spec"]["volumes"] if one["name"] == "etcd-data")
                write(Path(data, "member/wal/0.wal"))

    def stop(self, name, /):
        self.done.append(("stop", name))
        self.running = False


def write(path, text="x"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


@functools.cache
def shared():
    return stand_ins.shared_certificates(KEY, clock=FakeClock(), random=SeededRandom(3))


class Cluster(join_kit.Cluster):
    """A cluster whose controllers sign the requests of kubelets, unless they wait for a person."""

    signs = True

    def keep_to(self, box):
        """Move the paths of control planes below a directory, and upload what they share with KEY."""
        for body in self.objects:
            data = body.get("data", {})
            if "ClusterConfiguration" in data:
                document = yaml.load(data["ClusterConfiguration"], source="")
                places = {"certificatesDir": str(box.layout.pki), "etcd": {"local": {"dataDir": str(box.layout.etcd_data)}}}
                data["ClusterConfiguration"] = yaml.dump({**document, **places, "encryptionAlgorithm": "ECDSA-P256"})
        self.objects.append(shared())

    def sign(self, layout):
        asked = Path(layout.kubeconfig("bootstrap-kubelet"))
        if not self.signs or not asked.exists() or Path(layout.kubeconfig("kubelet")).exists():
            return
        document = yaml.load(asked.read_bytes(), source="")
        write(layout.kubelet_client_current, self.authority.issue_cert("node1").private_key_and_cert_chain_pem.bytes().decode())
        current = str(layout.kubelet_client_current)
        document["users"][0]["user"] = {"client-certificate": current, "client-key": current}
        write(layout.kubeconfig("kubelet"), yaml.dump(document))


class Healthy:
    """A kubelet that reports that it is healthy."""

    def __init__(self, server: str, *, context: object) -> None:
        pass

    def request(self, method, target, /, *, timeout):
        return Response(status=200, body=b"ok")

    def close(self):
        pass


class Runtime:
    """The pods of a machine. Pods of others stay. One of `starting` cannot be removed at the first attempt."""

    def __init__(self, kubelet) -> None:
        self.kubelet = kubelet
        self.pods = [Sandbox(id="theirs", name="etcd-backup", namespace="default")]
        self.starting: set[str] = set()
        self.lock = threading.Lock()  # pods are removed in threads, and `list.remove` compares in Python

    def add(self, name):
        self.pods.append(Sandbox(id=name, name=f"{name}-node1", namespace="kube-system"))

    def sandboxes(self):
        return list(self.pods)

    def containers(self, *, namespace):
        return []

    def last_lines(self, pod, /, *, count, container=""):
        return []

    def cgroup_driver(self):
        return None

    def version(self):
        return RuntimeVersion(name="containerd", version="2.2.1")

    def remove_sandbox(self, sandbox, /):
        assert not self.kubelet.running, "the kubelet would start it again"
        if sandbox.id in self.starting:
            self.starting.remove(sandbox.id)
            raise HostError("container is in starting state, can't be removed")
        with self.lock:
            self.pods.remove(sandbox)
        return Change(target=sandbox.target, action=Action.DELETE)


class Attempts(Box):
    """A machine on which `init` and `join` fail at a phase; otherwise `init` runs everything that needs no API server."""

    def __post_init__(self) -> None:
        self.services = Kubelet(self)
        self.runtime = Runtime(self.services)
        self.cluster = Cluster(authority=_AUTHORITY)
        self.cluster.keep_to(self)

    def machine(self, layout, *, files=None):
        host = super().machine(layout, files=files)
        host._runtime = self.runtime
        host.service_lines = lambda name, /, *, count: []
        return host

    def init(self, request, *, fails="", error=None, mode=Mode.APPLY):
        def context(request, configuration, bound):
            made = init.context(request, configuration, bound)
            given = {"configuration": configuration, "layout": made.layout, "addresses": made.addresses, "request": request}
            return KnownCluster(bound=bound, kube=self.kube, asks_components=False, **given)

        row = replace(init.INIT, context=context)
        return run(failing(row, fails, error) if fails else row, request, self.whole(), reporter=self.reporter, mode=mode)

    def join(self, *, fails="", error=None, mode=Mode.APPLY, skip=("preflight",), token=TOKEN, **flags: object):
        trust = {"endpoint": "cluster.test:6443", "token": token, "ca_cert_hashes": (self.cluster.pin,)}
        request = JoinOptions(flags=JoinFlags(**{**trust, "skip_phases": skip, **flags}))
        whole = JoiningMachine(cluster=self.cluster, **vars_of(self.whole()))
        row = failing(join.JOIN, fails, error) if fails else join.JOIN
        return run(row, request, whole, reporter=self.reporter, mode=mode)


def state(root, layout):
    """Everything on a machine: directories, files with their modes, certificates and keys by their purpose."""
    authorities = {}
    for path in sorted(Path(root).rglob("*ca.crt")):
        authorities[str(path.relative_to(layout.pki))] = certificates.parse(path.read_bytes())[0]
    return {
        str(path.relative_to(root)): (oct(path.stat().st_mode), _content(path, Path(root), authorities))
        for path in sorted(Path(root).rglob("*"))
        if not str(path.relative_to(root)).startswith("run")
    }


def _content(path, root, authorities):
    if not path.is_file():
        return ""
    content = path.read_bytes()
    if b"CERTIFICATE" in content and path.suffix == ".crt":
        return of_certificate(certificates.parse(content)[0], authorities=authorities)
    if b"PRIVATE KEY" in content and path.suffix == ".key":
        return of_key(content, source=str(path))
    if path.suffix == ".pub":
        return "a public key"
    text = content.decode().replace(str(root), "ROOT")
    if path.suffix == ".conf" and "clusters:" in text:
        return _kubeconfig(yaml.load(text, source=str(path)), authorities)
    if path.name == "kubelet-client-current.pem":
        return "a certificate and its key"
    return _record(json.loads(text)) if path.name == "machine.json" else text


def _record(found):
    """A record, without the digests of values that are new in each run."""
    return found | {"free": {path: left and "a digest" for path, left in found.get("free", {}).items()}}


def _kubeconfig(document, authorities):
    for row in document["clusters"]:
        text = base64.b64decode(row["cluster"].pop("certificate-authority-data", ""))
        row["cluster"]["trusts"] = [name for name, one in authorities.items() if text and certificates.parse(text)[0].der == one.der]
    for row in document["users"]:
        text = base64.b64decode(row["user"].pop("client-certificate-data", ""))
        row["user"]["client-key-data"] = bool(row["user"].get("client-key-data"))
        told = of_certificate(certificates.parse(text)[0], authorities=authorities) if text else {}
        row["user"]["is"] = {name: value for name, value in told.items() if name != "validity_seconds"}  # it starts with its CA
    return document
