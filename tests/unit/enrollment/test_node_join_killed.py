"""`node join` killed before and after each persistent step: the same command ends well, with one request and files that fit each other."""

from __future__ import annotations

import copy
from pathlib import Path, PurePosixPath

import pytest
from hub_kit import API_CA, CLOCK
from tenants_kit import LOADED, Killed, Killer, PreparedKeys

from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.apis.machine import Layout
from kubewright.apis.node_join_requests import Condition
from kubewright.base import yaml
from kubewright.base.errors import APIError, ConfigurationChanged, HostError, TrustError
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment import answers, issuing, requests
from kubewright.enrollment.node.joining import RequestRefused
from kubewright.enrollment.node.operation import NODE_JOIN
from kubewright.enrollment.node.request import NodeJoinRequest
from kubewright.host.files import Files
from kubewright.host.real import RealHost
from kubewright.host.seam import Host
from kubewright.kube.recording import RecordingKube
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import Machine
from kubewright.pki import certificates
from operation_kit import stand_in_machine

TOKEN = "abcdef.0123456789abcdef"
LEFT_OUT = ("preflight", "kubelet-install", "kubelet-start", "node-ready")
HUB_KEY = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "oneinfra-join", "namespace": "oneinfra-system"}}


class HubCluster(RecordingKube):
    """A cluster whose hub answers at once, and where each request for a name is answered once."""

    loaded = LOADED
    lease: tuple[str, ...] = ()

    def __init__(self, **data: str) -> None:
        super().__init__()
        self.create({**HUB_KEY, "data": {"joinKey": LOADED.public_key, **data}})
        self.killer = Killer()
        self.condition = Condition(status="True", reason="Issued")
        self.change = lambda answer: answer
        self.created = 0

    def send(self, call):
        if call.verb != "create" or call.resource.kind != "NodeJoinRequest":
            return super().send(call)
        last = self.killer.before()
        found = super().send(self.answered(call))
        self.created += 1
        if last:
            raise Killed
        return found

    def answered(self, call):
        wanted = requests.read(call.body, join_key=LOADED.join_key)
        given = {"lease": self.lease, "key_source": PreparedKeys(), "started": CLOCK.now(), "random": SeededRandom(5)}
        issued = issuing.issue(self.loaded, call.name, wanted, **given)
        status = answers.write(self.change(issued.answer), wanted.key, random=SeededRandom(6))
        changed = copy.copy(call)
        changed.__dict__["body"] = {**call.body, "status": {**status, "conditions": [self.condition.document(CLOCK.now())]}}
        return changed


class KilledHost(RealHost):
    killer: Killer

    def ensure(self, desired, /):
        last = self.killer.before()
        change = super().ensure(desired)
        if last:
            raise Killed
        return change

    def remove(self, path, /):
        last = self.killer.before()
        change = super().remove(path)
        if last:
            raise Killed
        return change


class Box:
    def __init__(self, root: Path) -> None:
        self.layout = Layout.below(PurePosixPath(root))
        self.cluster = HubCluster()
        self.reporter = RecordingReporter()

    def join(self, *, killer: Killer | None = None, mode: Mode = Mode.APPLY, **more: object):
        chosen = killer or Killer()
        self.cluster.killer = chosen
        machine = Machine(
            at=lambda layout: self.host(layout, chosen), clock=CLOCK, random=SeededRandom(7), layout=self.layout, environment={}
        )
        given = {"node": "worker", "server": "https://10.0.0.1:6443", "ca_pem": API_CA[0].encode(), "token": TOKEN, "skip": LEFT_OUT}
        pin = {"fingerprint": str(LOADED.recipient.pin), "sans": ("10.0.0.5",)}
        reached = stand_in_machine(machine, client=lambda _: self.cluster)
        return run(NODE_JOIN, NodeJoinRequest(**{**given, **pin, **more}), reached, mode=mode, reporter=self.reporter)

    def host(self, layout: Layout, killer: Killer) -> Host:
        host = KilledHost(layout=layout, files=Files(durable=False), environment={})
        host.killer = killer
        return host

    def require_whole(self) -> None:
        place = Path(self.layout.oneinfra)
        pair = certificates.pair_of((place / "kubelet.crt").read_bytes(), (place / "kubelet.key").read_bytes(), source="serving")
        assert pair.leaf.names.ips == ("127.0.0.1", "::1", "10.0.0.5")
        user = require_usable(parse(yaml.load_one((place / "kubelet.conf").read_bytes(), source="kubelet.conf"))).user
        client = certificates.pair_of(user.client_certificate_data, user.client_key_data, source="client")
        assert client.leaf.common_name == "system:node:worker"
        assert {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()} == dict.fromkeys(
            ("kubelet.crt", "kubelet.key", "kubelet-client-ca.crt", "kubelet.conf"), 0o600
        )
        assert not (Path(self.layout.state) / "node-join.key").exists()


@pytest.fixture
def box(tmp_path):
    return Box(tmp_path)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_same_command_ends_well_after_a_kill_at_any_step(tmp_path, after):
    kills = 0
    for number in range(40):
        box = Box(tmp_path / str(number))
        try:
            box.join(killer=Killer(number, after=after))
        except Killed:
            kills += 1
        else:
            break
        box.join()
        box.require_whole()
        assert box.cluster.created == 1
        assert box.join().changes == ()
    assert kills >= 9


def test_another_name_on_a_machine_that_has_begun_is_refused(box):
    box.join()
    with pytest.raises(ConfigurationChanged) as refused:
        box.join(node="other")
    assert "nodeName: other" in refused.value.detail


def test_a_refusal_is_the_hubs_and_nothing_is_written(box):
    box.cluster.condition = Condition(status="False", reason="SanNotAllowed", message="not this one")
    with pytest.raises(RequestRefused, match="does not let worker in: SanNotAllowed") as refused:
        box.join()
    assert refused.value.detail == "not this one"
    assert not Path(box.layout.oneinfra).exists()


def test_an_answer_that_is_not_as_asked_for_is_not_written(box):
    box.cluster.change = lambda answer: replace(answer, client_ca=answer.serving_certificate)
    with pytest.raises(TrustError, match="the authority of clients that the hub sent cannot be used"):
        box.join()
    assert not Path(box.layout.oneinfra).exists()


def test_without_a_pin_there_is_a_warning_and_with_a_wrong_one_nothing_is_sent(box, tmp_path):
    box.join(fingerprint="")
    assert next(event.text for event in box.reporter.events if isinstance(event, Warned)).startswith(
        "the join key of the hub is not pinned"
    )
    other = Box(tmp_path / "other")
    with pytest.raises(TrustError, match="is not the one you pinned"):
        other.join(fingerprint=f"sha256:{'0' * 64}")
    assert other.cluster.created == 0


def test_a_cluster_without_a_hub_is_told(box):
    box.cluster.delete(CONFIG_MAP, "oneinfra-join", "oneinfra-system")
    with pytest.raises(APIError, match="has no configmap oneinfra-system/oneinfra-join") as told:
        box.join()
    assert "hub cluster list" in told.value.remedy


def test_no_key_and_no_token_is_in_what_is_told(box):
    box.join()
    told = repr(box.reporter.events) + repr(box.join().changes)
    key = (Path(box.layout.oneinfra) / "kubelet.key").read_text().splitlines()[1]
    for secret in (TOKEN.partition(".")[2], key):
        assert secret not in told
    record = Path(box.layout.machine_record).read_text()
    assert TOKEN.partition(".")[2] not in record


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"server": "http://10.0.0.1"}, "is not the URL of an API server"),
        ({"server": "https://10.0.0.1:x"}, "is not the URL of an API server"),
        ({"node": "Worker"}, "cannot have the name"),
        ({"token": "short"}, "bootstrap token"),
        ({"ca_pem": b"nothing"}, "holds no certificate"),
        ({"fingerprint": "md5:00"}, "public key pin"),
        ({"sans": [f"10.0.0.{number}" for number in range(17)]}, "more than 16"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_before_anything_is_done(box, more, error):
    with pytest.raises(Exception, match=error):
        box.join(**more)
    assert box.cluster.created == 0
    assert not Path(box.layout.oneinfra).exists()


def test_hosts_that_fail_leave_a_key_that_is_used_again(box):
    class Full(Killer):
        def before(self) -> bool:
            if self.steps == 8:
                raise HostError("no space is left")
            self.steps += 1
            return False

    with pytest.raises(HostError):
        box.join(killer=Full())
    box.join()
    box.require_whole()
