"""`node leave` that was interrupted after the hub had released the node: the same command succeeds, although nothing answers any more."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest
from hub_kit import CLOCK
from node_kit import Node, VPNCluster, killed_at_each_step

from kubewright.apis.join_records import IssuedCertificate
from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.apis.node_join_requests import LEAVE_ANSWER, LEAVE_PROOF, LEAVING_LABEL
from kubewright.base import yaml
from kubewright.base.errors import APIError, HostError, NotFound, Unreachable, WaitTimeout
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.node.leaving import NODE_LEAVE, LeaveRefused, NodeLeaveOptions
from kubewright.enrollment.protocol import leave_proofs
from kubewright.host.desired import File
from kubewright.host.facts import Facts
from kubewright.host.states import ServiceState
from kubewright.kube import core
from kubewright.kube.resources import NODE
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.engine import run
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.reset.operation import RESET
from kubewright.lifecycle.reset.request import ResetFlags, ResetOptions
from kubewright.manifests import kubelet
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.certificates import Pair
from kubewright.pki.keys import Algorithm
from kubewright.pki.specs import CertificateSpec
from operation_kit import stand_in_machine

SKIPPED = ("kubelet-stop", "cleanup-node")


class LeavingCluster(VPNCluster):
    """A cluster whose hub, while it runs, deletes a leaving Node at once, or refuses to; the cluster may be unreachable after that."""

    ends = False
    gone = False
    runs = True
    refuses = False

    def send(self, call):
        if self.gone and self.ends:
            raise Unreachable("no usable answer", remedy="check the load of the server")
        found = super().send(call)
        if self.runs and call.verb in {"patch", "create"} and call.resource == NODE and _leaves(node := self.get(NODE, call.name)):
            self.marks = node["metadata"]
            if self.refuses:
                super().send(core.patch(NODE, call.name, {"metadata": {"annotations": {LEAVE_ANSWER: "not proven"}}}, type="merge"))
                return found
            self.delete(NODE, call.name)
            self.gone = True
        return found


def _leaves(node):
    return (node["metadata"].get("labels") or {}).get(LEAVING_LABEL) == "true"


class LeavingNode(Node):
    def __init__(self, root, **more: object) -> None:
        super().__init__(root)
        self.cluster = LeavingCluster(ours=True)
        self.join(**more)
        self.cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker", "uid": "n1"}})

    def leave(self, **how: object):
        return leave(self, **how)


def leave(node, *, skip=SKIPPED, drain=None, seen=lambda _: None, mode=Mode.APPLY):
    def at(layout):
        seen(layout)
        return node.disk

    machine = TargetMachine(at=at, clock=CLOCK, random=SeededRandom(1), layout=node.layout, environment={})
    reached = stand_in_machine(machine, client=lambda *_: node.cluster)
    return run(NODE_LEAVE, NodeLeaveOptions(drain=drain, skip=skip), reached, mode=mode, reporter=node.reporter)


@pytest.fixture
def node(tmp_path):
    return LeavingNode(tmp_path)


def test_a_node_can_leave_with_a_renewed_certificate(node):
    kubeconfig = yaml.load_one(node.disk.read(node.layout.oneinfra / "kubelet.conf"), source="kubelet.conf")
    user = require_usable(parse(kubeconfig)).user
    given = certificates.first(user.client_certificate_data, source="kubelet.conf")
    renewed = renewed_pair("system:node:worker")
    node.disk.ensure(File(path=node.layout.kubelet_client_current, content=renewed.pem()))
    node.leave()
    proof = leave_proofs.read(node.cluster.marks["annotations"][LEAVE_PROOF])
    issued = IssuedCertificate(purpose="client", serial="1", fingerprint=hashlib.sha256(given.der).hexdigest(), not_after="")
    other = replace(issued, fingerprint=hashlib.sha256(renewed.leaf.der).hexdigest())
    assert node.cluster.marks["labels"] == {LEAVING_LABEL: "true"}
    assert [leave_proofs.is_proven(proof, "worker", "n1", issued=[one]) for one in (issued, other)] == [True, False]


def renewed_pair(user: str) -> Pair:
    key = keys.generate(Algorithm.ECDSA_P256)
    spec = CertificateSpec(name="it", base="it", common_name=user, lifetime=timedelta(days=7000), algorithm=Algorithm.ECDSA_P256)
    made = issuing.self_signed(spec, key, started=CLOCK.now(), random=SeededRandom(2))
    return certificates.pair_of(made, key.pem(), source="it")


def test_a_refusal_of_the_hub_is_reported_and_can_be_retried(node):
    node.cluster.refuses = True
    with pytest.raises(LeaveRefused, match='the hub does not let worker leave: "not proven"') as told:
        node.leave()
    assert "kubewright hub requests forget" in told.value.remedy
    assert node.disk.state(node.layout.oneinfra / "kubelet.conf") is not None
    node.cluster.refuses = False
    node.leave()
    assert LEAVE_ANSWER not in node.cluster.marks["annotations"]


def test_a_released_node_does_not_ask_again(node):
    node.leave()
    with pytest.raises(NotFound):
        node.cluster.get(NODE, "worker")
    assert node.disk.state(node.layout.oneinfra / "kubelet.conf") is None
    node.cluster.ends = True
    node.leave(drain=5.0)


@pytest.mark.parametrize("registered", [True, False])
def test_nothing_is_removed_if_the_hub_does_not_answer(node, registered):
    if not registered:
        node.cluster.delete(NODE, "worker")
    node.cluster.runs = False
    with pytest.raises(WaitTimeout, match="the hub to remove the node worker") as told:
        node.leave(drain=5.0)
    assert "--skip-phases depart" in told.value.remedy
    assert node.disk.state(node.layout.oneinfra / "kubelet.conf") is not None
    found = node.cluster.get(NODE, "worker")
    assert (_leaves(found), found["spec"]["unschedulable"]) == (True, True)
    node.cluster.runs = True
    node.cluster.delete(NODE, "worker")  # as the hub does when it is started again
    node.leave(drain=5.0)
    assert node.disk.state(node.layout.oneinfra / "kubelet.conf") is None
    assert node.cluster.gone


def test_a_plan_to_leave_creates_no_node(node):
    node.cluster.delete(NODE, "worker")
    planned = leave(node, mode=Mode.PLAN).plan.as_list()
    assert [row["action"] for row in planned if row["target"] == "node worker"] == ["create", "update"]
    with pytest.raises(NotFound):
        node.cluster.get(NODE, "worker")


@pytest.mark.parametrize("drain", [None, 5.0])
def test_a_machine_without_credentials_gets_a_hint_how_to_leave(node, drain):
    node.cluster.ends = node.cluster.gone = True
    with pytest.raises(APIError, match="no usable answer") as told:
        node.leave(drain=drain)
    assert "--skip-phases drain,depart" in told.value.remedy


def test_leaving_uses_the_container_runtime_of_the_join(tmp_path):
    node = LeavingNode(tmp_path, runtime_endpoint="unix:///var/run/crio/crio.sock")
    facts = node.disk.facts
    both = ("unix:///run/containerd/containerd.sock", "unix:///var/run/crio/crio.sock")
    node.disk._facts = Facts(detected=replace(facts.detected, cri_sockets=both), machine=lambda: facts.machine, systemd=True)
    layouts = []
    node.leave(seen=layouts.append)
    assert layouts[-1].cri_socket == "unix:///var/run/crio/crio.sock"
    node.disk.ensure(File(path=node.layout.machine_record, content=b'{"no": "record"}'))
    node.leave(seen=layouts.append)
    assert layouts[-1].cri_socket == "unix:///var/run/crio/crio.sock"
    node.disk.ensure(File(path=node.layout.kubelet_config, content=b"\xff: ["))
    with pytest.raises(Exception, match="choose one"):  # then the runtime is unknown
        node.leave()


@pytest.mark.parametrize("made", ["kubeadm", "init"])
def test_a_machine_that_joined_in_another_way_is_not_emptied(tmp_path, made):
    node = Node(tmp_path)
    layout = node.layout
    left = [layout.kubeconfig("kubelet"), layout.kubelet_config]
    if made == "init":
        record = {"format": 1, "workflow": "init", "configuration": "", "finished": True}
        node.disk.ensure(File(path=layout.machine_record, content=json.dumps(record).encode()))
        left.append(layout.machine_record)
    for path in left[:2]:
        node.disk.ensure(File(path=path, content=b"kind: Config\n"))
    with pytest.raises(HostError, match="has not joined through a hub") as told:
        leave(node)
    assert "kubewright reset" in told.value.remedy
    assert all(node.disk.state(path) is not None for path in left)


def test_leaving_an_empty_machine_succeeds(tmp_path):
    assert leave(Node(tmp_path), skip=()).failures == ()


FOREIGN = {kubelet.UNIT: b"[Service]\nExecStart=/usr/bin/kubelet\n", kubelet.DROP_IN: b"[Service]\nEnvironment=A=b\n"}


def reset(node):
    machine = TargetMachine(at=lambda _: node.disk, clock=CLOCK, random=SeededRandom(1), layout=node.layout, environment={})
    run(RESET, ResetOptions(flags=ResetFlags(force=True, ignore_preflight_errors=("all",))), machine, reporter=node.reporter)


@pytest.mark.parametrize("go", [lambda node: leave(node, skip=()), reset], ids=["leave", "reset"])
@pytest.mark.parametrize("files", [{}, FOREIGN], ids=["of a package", "in /etc"])
@pytest.mark.parametrize("enabled", [False, True])
def test_a_packaged_unit_is_restored_after_leaving(tmp_path, go, files, enabled):
    node = Node(tmp_path)
    node.cluster = LeavingCluster(ours=True)
    disk = node.disk
    for path, content in files.items():
        disk.ensure(File(path=path, content=content, mode=0o644))
    disk.knows("kubelet", ServiceState(running=False, enabled=enabled))
    before = {path: disk.read(path) for path in kubelet.UNIT_FILES}
    node.join()
    again = node.join()
    assert again.changes == ()
    assert {path: disk.read(path) for path in kubelet.UNIT_FILES} == before
    assert (disk.service("kubelet").running, disk.service("kubelet").enabled) == (True, True)
    assert b"--hostname-override=worker" in disk.read(kubelet.JOINED_DROP_IN)
    go(node)
    assert {path: disk.read(path) for path in kubelet.UNIT_FILES} == before
    assert disk.read(kubelet.JOINED_DROP_IN) is None
    assert (disk.service("kubelet").running, disk.service("kubelet").enabled) == (False, enabled)
    assert [disk.state(path) for path in node.layout.kept_files] == [None] * len(node.layout.kept_files)


def test_a_unit_installed_by_a_join_is_always_removed(tmp_path):
    node = Node(tmp_path)
    node.cluster = LeavingCluster(ours=True)
    node.join()
    assert [kubelet.is_ours(node.disk.read(path)) for path in (kubelet.UNIT, kubelet.JOINED_DROP_IN)] == [True, True]
    assert node.disk.state(node.layout.kubelet_service) is None
    leave(node, skip=())
    assert [node.disk.read(path) for path in kubelet.OWN_FILES] == [None] * 3


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_earlier_service_state_is_known_after_a_kill_at_any_step(tmp_path, after):
    def make(number):
        (tmp_path / str(number)).mkdir()
        node = Node(tmp_path / str(number))
        node.cluster = LeavingCluster(ours=True)
        node.disk.knows("kubelet", ServiceState(running=False, enabled=False))
        return node

    kills = 0
    for node in killed_at_each_step(make, lambda node, killer: node.join(killer=killer), after=after):
        kills += 1
        node.join()
        leave(node, skip=())
        assert (node.disk.service("kubelet").enabled, node.disk.read(kubelet.JOINED_DROP_IN)) == (False, None)
    assert kills >= 10
