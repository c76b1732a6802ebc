"""A machine in a temporary directory that joins a cluster in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
from init_kit import Box

from kubewright.base import records, yaml
from kubewright.base.errors import APIError, Forbidden, HostError, Unauthorized
from kubewright.base.events import PhaseFinished, PhaseStarted
from kubewright.host.states import ServiceState
from kubewright.http.messages import Response
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.join import operation as join
from kubewright.lifecycle.join.request import JoinFlags, JoinOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.steps import stand_ins
from kubewright.pki.pins import pin
from kubewright.tokens import cluster_info, strings

TOKEN = "abcdef.0123456789abcdef"
SERVER = "https://cluster.test:6443"
PREFLIGHT = ("preflight",)


class Kube(RecordingKube):
    """The cluster as one identity sees it."""

    def __init__(self, cluster: Cluster, access: Access) -> None:
        super().__init__(stand_ins=cluster.objects)
        self.cluster, self.access = cluster, access

    def send(self, call, /):
        if call.resource.plural in self.cluster.answers:
            return self.cluster.answers[call.resource.plural](call)
        if call.verb != "get":
            return super().send(call)
        self.cluster.read.append(f"{call.resource.plural}/{call.name}")
        if self.cluster.down:
            raise APIError("the cluster is down")
        if not self.known():
            raise Unauthorized("who are you?", code=401)
        if call.resource.plural == "nodes" and self.cluster.ready:
            raise Forbidden("I know no rights yet", code=403)
        if call.name == cluster_info.NAME and self.cluster.said == 403 and not self.cluster.knows_rights:
            raise Forbidden("I know no rights yet", code=403)
        return super().send(call)

    def known(self):
        identity = self.access.identity
        return not isinstance(identity, BearerToken) or (identity.token == self.cluster.token and not self.cluster.unread)

    def ready(self):
        if not self.known():
            return 401
        codes = self.cluster.unread if isinstance(self.access.identity, Anonymous) else self.cluster.ready
        self.cluster.said = code = codes.pop(0) if codes else 200
        if code is None:
            raise APIError("the server is started again")
        return code

    def raw(self, method, path, *, body=None, headers=None, timeout=None):
        """Answer with the existing certificate requests, and whether the server is ready."""
        if (method, path) == ("GET", "/version"):
            return Response(status=200, headers={}, body=b"{}")
        if (method, path) == ("GET", "/readyz"):
            self.cluster.read.append("readyz")
            return Response(status=self.ready(), body=b"")
        assert (method, path.partition("?")[0]) == ("GET", "/apis/certificates.k8s.io/v1/certificatesigningrequests")
        self.cluster.read.append("certificatesigningrequests")
        if self.cluster.requests is None:
            return Response(status=403, body=b"no")
        return Response(status=200, body=json.dumps({"items": self.cluster.requests.pop(0) if self.cluster.requests else []}).encode())


@dataclass
class Cluster:
    """A cluster in memory. `token` is the one that it accepts, `read` the requested paths.

    `requests` are the certificate requests that it shows at each read, then none; None if it shows them to nobody.
    `ready` are the status codes for requests of readiness with a token, then 200; until then it refuses to show the
    Node. `unread` are those without a token (None: no answer); until then the server knows no token. After a 403
    (`said`) it refuses cluster-info too, unless it `knows_rights`. `answers` are returned to whatever explains a
    wait, by resource.
    """

    token: str = TOKEN
    down: bool = False
    asked: list[Access] = field(default_factory=list)
    read: list[str] = field(default_factory=list)
    requests: list[list[dict[str, Any]]] | None = field(default_factory=list)
    ready: list[int] = field(default_factory=list)
    unread: list[int | None] = field(default_factory=list)
    said: int | None = 200
    knows_rights: bool = False
    answers: dict[str, Callable[[Any], dict[str, Any]]] = field(default_factory=dict)
    authority: trustme.CA = field(default_factory=lambda: trustme.CA(key_type=trustme.KeyType.ECDSA))

    def __post_init__(self) -> None:
        self.ca = self.authority.cert_pem.bytes()
        plain, token = cluster_info.config_map(server=SERVER, ca_pem=self.ca), strings.parse(TOKEN)
        signatures = {f"jws-kubeconfig-{token.id}": cluster_info.detached_signature(plain["data"]["kubeconfig"], token)}
        self.objects = [*stand_ins.cluster_objects(), cluster_info.config_map(server=SERVER, ca_pem=self.ca, signatures=signatures)]

    @property
    def pin(self) -> str:
        return pin(self.ca)

    def connect(self, access: Access) -> Kube:
        self.asked.append(access)
        return Kube(self, access)


class Services:
    """A service manager. The kubelet that it starts gets its certificate at once, unless it is `broken`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.layout = None
        self.done: list[str] = []
        self.broken = False

    def state(self, name, /):
        return ServiceState(running=bool(self.done), enabled=True)

    def start(self, name, /, *, verb="start"):
        self.done.append(verb)
        kubeconfig = Path(self.layout.kubeconfig("kubelet"))
        if self.broken or kubeconfig.exists():
            return
        given = yaml.load(Path(self.layout.kubeconfig("bootstrap-kubelet")).read_bytes(), source="")
        current = Path(self.layout.kubelet_client_current)
        current.parent.mkdir(parents=True, exist_ok=True)
        current.write_bytes(self.cluster.authority.issue_cert("node1").private_key_and_cert_chain_pem.bytes())
        given["users"][0]["user"] = {"client-certificate": str(current), "client-key": str(current)}
        kubeconfig.write_text(yaml.dump(given))

    def restart(self, name, /):
        self.start(name, verb="restart")

    def last_lines(self, name, /, *, count):
        return ["kubelet: something is wrong"]

    def refuse(self, name, /):
        raise AssertionError(name)

    stop = enable = disable = refuse


@records.dataclass(frozen=True, kw_only=True)
class JoiningMachine(TargetMachine):
    """A machine that reaches one cluster only."""

    cluster: Cluster

    def client(self, access, *, timeout=0.0, proxied=True):
        return self.cluster.connect(access)


def vars_of(machine):
    return {name: getattr(machine, name) for name in ("at", "clock", "random", "layout", "environment")}


class JoinBox(Box):
    """A machine that joins."""

    def __init__(self, root: Path) -> None:
        self.cluster = Cluster()
        super().__init__(root, services=Services(self.cluster))
        self.services.layout = self.layout

    def __post_init__(self) -> None:
        return

    def machine(self, layout):
        host = super().machine(layout)
        host.service_lines = lambda name, /, *, count: self.services.last_lines(name, count=count)
        return host

    def request(self, *, token=TOKEN, skip=PREFLIGHT, only=(), file="", documents=(), **flags: object):
        trust = {"discovery_file": file, "tls_bootstrap_token": token} if file else {"endpoint": "cluster.test:6443", "token": token}
        given = JoinFlags(**{"ca_cert_hashes": () if file else (self.cluster.pin,), "skip_phases": skip, **trust, **flags})
        return JoinOptions(flags=given, only=only, documents=documents, from_file=bool(documents))

    def whole(self, **more: object):
        return JoiningMachine(cluster=self.cluster, **{**vars_of(super().whole()), **more})

    def call(self, request):
        return join.prepare(request, self.whole())

    def act(self, request=None):
        return run(join.JOIN, request or self.request(), self.whole(), reporter=self.reporter).changes

    def plan(self, request=None):
        return run(join.JOIN, request or self.request(), self.whole(), reporter=self.reporter, mode=Mode.PLAN).plan

    def dry_run(self, directory, request=None):
        """Returns the plan, and what was written into the directory."""
        there = self.whole(environment={join.JOIN.dry_run.variable: str(directory)})
        done = run(join.JOIN, request or self.request(), there, reporter=self.reporter, mode=Mode.NARRATE)
        return done.plan, done.written

    def phases(self):
        """What began and what ended, in order."""
        kinds = {PhaseStarted: "+", PhaseFinished: "-"}
        return [kinds[type(event)] + event.phase for event in self.reporter.events if type(event) in kinds]


__all__ = ["SERVER", "TOKEN", "HostError", "JoinBox", "Kube"]
