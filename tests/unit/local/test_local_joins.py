"""Joins of further control planes: their configuration, what they see of the run, and what they refuse."""

from __future__ import annotations

import socket
import threading
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubewright.base import wait
from kubewright.base.change import Action, Change
from kubewright.base.clock import FakeClock, SystemClock
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.errors import Conflict, HostError, Interrupted, KubewrightError
from kubewright.base.events import Changed, Line, PhaseFinished, PhaseSkipped, PhaseStarted, RecordingReporter, SilentReporter, Warned
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.etcd.recording import RecordingEtcd
from kubewright.kube.core import Call, Object
from kubewright.kube.recording import RecordingKube
from kubewright.lifecycle.join import phases
from kubewright.lifecycle.machine import LONG
from kubewright.local.cluster import configuration, control_planes
from kubewright.local.cluster.context import JoinCredentials, UpRun
from kubewright.local.cluster.control_planes import CancellableClock, NamedReporter, adapted, join_configuration
from kubewright.local.cluster.daemon_client import Daemon
from kubewright.local.cluster.join_phases import JOIN_PHASES, require_known_member
from kubewright.local.cluster.machine import machine_host
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord

FIRST = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
SECOND = LocalMachineRecord(name="one-control-plane-2", address="127.0.0.12", ports={**FIRST.ports, "api_server": 7443})
INVITATION = JoinCredentials(
    server="https://127.0.0.11:6443", tokens={SECOND.name: "abcdef.0123456789abcdef"}, pins=("sha256:ab",), certificate_key="00" * 32
)
ADMIN = """
kind: Config
clusters: [{{name: one, cluster: {{server: "{server}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: abc}}}}]
contexts: [{{name: one, context: {{cluster: one, user: admin}}}}]
current-context: one
"""
CONFIG = """
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration:
  taints: []
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
clusterName: blue
"""


def _loaded(where: ClusterPaths, machine: LocalMachineRecord) -> Any:
    host = machine_host(where, machine.name, programs={}, daemon=Daemon(where))
    return configuration.load(
        CONFIG, machine=machine, layout=host.layout, version="v1.36.3", detected=host.facts.detected, random=SeededRandom(1)
    ).configuration


@pytest.fixture
def where(tmp_path: Path) -> ClusterPaths:
    return ClusterPaths(tmp_path / "one")


def test_a_further_control_plane_joins_with_its_own_name_address_and_port(where: ClusterPaths) -> None:
    host = machine_host(where, SECOND.name, programs={}, daemon=Daemon(where), further=True)
    join = join_configuration(SECOND, host, _loaded(where, FIRST), INVITATION)
    assert (join.node_registration.name, join.node_registration.taints) == (SECOND.name, ())
    assert join.control_plane is not None
    endpoint = join.control_plane.local_api_endpoint
    assert (endpoint.advertise_address, endpoint.bind_port, join.control_plane.certificate_key) == ("127.0.0.12", 7443, "00" * 32)
    found = join.discovery.bootstrap_token
    assert found is not None
    assert (found.api_server_endpoint, found.ca_cert_hashes) == ("127.0.0.11:6443", ("sha256:ab",))
    assert found.token == join.discovery.tls_bootstrap_token == INVITATION.tokens[SECOND.name]
    assert join.ca_cert_path == str(where.machine(SECOND.name) / "kubernetes" / "pki" / "ca.crt")


def test_a_joined_control_plane_needs_no_token(where: ClusterPaths) -> None:
    host = machine_host(where, SECOND.name, programs={}, daemon=Daemon(where), further=True)
    join = join_configuration(SECOND, host, _loaded(where, FIRST), None)
    assert (join.discovery.bootstrap_token, join.discovery.tls_bootstrap_token) == (None, "")
    assert join.control_plane is not None
    assert join.control_plane.certificate_key == ""


def test_the_configuration_of_the_cluster_gets_the_paths_of_the_machine(where: ClusterPaths) -> None:
    stored, mine = _loaded(where, FIRST), _loaded(where, SECOND)
    found = adapted(replace(stored, cluster=replace(stored.cluster, cluster_name="renamed")), mine=mine)
    assert found.cluster.cluster_name == "renamed"
    place = str(where.machine(SECOND.name))
    assert found.cluster.certificates_dir == f"{place}/kubernetes/pki"
    assert found.cluster.etcd.local.data_dir == f"{place}/etcd"
    assert found.kubelet.document["healthzBindAddress"] == "127.0.0.12"
    assert str(where.machine(FIRST.name) / "kubernetes") not in repr(found)


def test_the_tree_has_all_phases_of_join_in_their_order() -> None:
    ours = [node.name for node in JOIN_PHASES.nodes]
    theirs = [node.name for node in phases.PHASES.nodes if node.name != "serving-approver"]  # the first machine's policy lists all of them
    assert [name for name in ours if name not in {"keep-data", "stop-node-without-kubeconfig"}] == theirs
    assert ours.index("keep-data") < ours.index("etcd-join")
    assert ours.index("stop-node-without-kubeconfig") == ours.index("kubelet-start") - 1


def _joining(tmp_path: Path, etcd: RecordingEtcd, *, joined_before: bool, has_data: bool) -> Any:
    data = tmp_path / "data"
    (data / "member" if has_data else data).mkdir(parents=True)
    if has_data:
        (data / "member" / "wal").mkdir()
    host = machine_host(ClusterPaths(tmp_path / "one"), SECOND.name, programs={}, daemon=Daemon(ClusterPaths(tmp_path / "one")))
    return SimpleNamespace(
        layout=SimpleNamespace(etcd_data=PurePosixPath(data)),
        joined_before=joined_before,
        host=host,
        etcd=etcd,
        addresses=SECOND.addresses,
        node_name=SECOND.name,
    )


@pytest.mark.parametrize(
    ("joined_before", "has_data", "known", "refused"),
    [(True, True, False, True), (True, True, True, False), (True, False, False, False), (False, True, False, False)],
)
def test_data_of_a_member_unknown_to_etcd_is_not_deleted(
    tmp_path: Path, joined_before: bool, has_data: bool, known: bool, refused: bool
) -> None:
    etcd = RecordingEtcd()
    if known:
        etcd.add_learner(SECOND.etcd_peer_url)
    ctx = _joining(tmp_path, etcd, joined_before=joined_before, has_data=has_data)
    if not refused:
        assert list(require_known_member(ctx)) == []
        return
    with pytest.raises(HostError, match="does not know the member on one-control-plane-2") as caught:
        require_known_member(ctx)
    assert str(tmp_path / "data" / "member") in caught.value.remedy


def test_a_stopped_clock_ends_every_sleep() -> None:
    inner, cancelled = FakeClock(), threading.Event()
    clock = CancellableClock(inner, cancelled)
    clock.sleep(2.0)
    assert (clock.monotonic(), clock.now()) == (inner.monotonic(), inner.now()) == (2.0, inner.now())
    cancelled.set()
    with pytest.raises(Interrupted):
        clock.sleep(2.0)
    assert inner.monotonic() == 2.0


def test_a_join_ends_at_the_timeout_of_its_run(where: ClusterPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LOOK_AT_LEAST", 0.1)
    clock, reporter = SystemClock(), SilentReporter()
    run = UpRun(
        paths=where,
        cluster=ClusterRecord(name="one", id="1", machines=(FIRST, SECOND)),
        programs={},
        daemon=cast("Any", SimpleNamespace(require_alive=lambda: None, retried=lambda: False)),
        clock=clock,
        random=SeededRandom(1),
        reporter=reporter,
        waiter=PollingWaiter(clock=clock, reporter=reporter),
        within=0.2,
        start=clock.monotonic(),
    )
    joins = control_planes.MachineJoins(run)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"https://127.0.0.1:{silent.getsockname()[1]}"
        admin = Path(run.host.layout.kubeconfig("admin"))
        admin.parent.mkdir(parents=True)
        admin.write_text(ADMIN.format(server=server))
        with holding(Deadline(0.2)), pytest.raises(KubewrightError) as caught:
            joins.start(replace(INVITATION, server=server, pins=(f"sha256:{'ab' * 32}",)), _loaded(where, FIRST))
            joins.finish()
        joins.cancel()
    assert caught.value.what.startswith(f"no usable answer from {server} to GET ")
    assert clock.monotonic() - run.start < LONG


def test_events_name_their_machine_and_changes_are_reported_once() -> None:
    told = RecordingReporter()
    reporter = NamedReporter("two", told)
    for event in (
        PhaseStarted(phase="certs"),
        PhaseFinished(phase="certs", seconds=1.0),
        PhaseSkipped(phase="x", reason="y"),
        Line(topic="etcd", text="Adding"),
        Warned(text="careful"),
        Changed(change=Change(target="file", action=Action.CREATE)),
    ):
        reporter.emit(cast("Any", event))
    assert told.events == [
        PhaseStarted(phase="two/certs"),
        PhaseFinished(phase="two/certs", seconds=1.0),
        PhaseSkipped(phase="two/x", reason="y"),
        Line(topic="etcd", text="two: Adding"),
        Warned(text="careful"),
    ]


def test_a_leaving_machine_deletes_only_its_own_pods() -> None:
    class Replaced(RecordingKube):
        """Another pod has the name of the first one by the time it is deleted."""

        def send(self, call: Call, /) -> Object:
            if (call.verb, call.name) == ("delete", "db-0"):
                self.refused = call.body["preconditions"]
                raise Conflict("the UID in the precondition (uid-db-0) does not match", code=409)
            return super().send(call)

    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"}}
        for name in ("db-0", "web")
    ]
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": SECOND.name, "uid": "uid-node"}}
    api = Replaced(stand_ins=[node, pods[1]])
    api.list = lambda *_, **__: pods  # type: ignore[method-assign]
    local = SimpleNamespace(api=api)
    [change] = control_planes._remove_node(cast("Any", local), SECOND)
    assert (change.target, change.action) == (f"node {SECOND.name}", Action.DELETE)
    assert api.refused == {"uid": "uid-db-0"}
    assert [(one.call.name, one.call.body["preconditions"]) for one in api.writes] == [
        ("web", {"uid": "uid-web"}),
        (SECOND.name, {"uid": "uid-node"}),
    ]
