"""Clusters of machines whose user installs a network plugin (`up --machines --cni none`)."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kubewright.base.clock import FakeClock, rfc3339_micro
from kubewright.base.errors import ConfigurationChanged, HostError, UsageError, WaitTimeout
from kubewright.base.events import RecordingReporter, State
from kubewright.base.records import replace
from kubewright.kube.recording import RecordingKube
from kubewright.local import record, up_options
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import NO_CNI, ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions
from kubewright.local.whole import members, up
from kubewright.local.whole.run import MachinesRun, Moment
from kubewright.machines.group import Group
from kubewright.machines.network import Network
from kubewright.machines.parts import Parts

FIRST = LocalMachineRecord(name="dev-control-plane", address="172.30.4.11")
CLUSTER = ClusterRecord(name="dev", id="0" * 32, machines=(FIRST,), nodes=0, kind=record.MACHINES)
WITHOUT = replace(CLUSTER, cni=NO_CNI)
FAULT = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
    " message:Network plugin returns error: cni plugin not initialized"
)
CSI = "CSINode is not yet initialized"


def cluster(*, status: str = "False", message: str = FAULT) -> RecordingKube:
    """An API with the Node of the only machine."""
    ready = {"type": "Ready", "status": status, "message": message, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}
    node: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": FIRST.name}, "status": {"conditions": [ready]}}
    kube = RecordingKube()
    kube.create(node)
    kube.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": "default"}})
    return kube


def run_of(wanted: ClusterRecord, reporter: RecordingReporter, *, runs: bool = True) -> MachinesRun:
    """One `up` of a cluster whose machine runs, or does not."""
    return MachinesRun(
        paths=ClusterPaths(Path("/state/dev")),
        cluster=wanted,
        former=wanted,
        group=cast("Group", SimpleNamespace(machines={FIRST.name: SimpleNamespace(runs=runs)})),
        token="",
        certificate_key="",
        options=UpOptions(within=30.0),
        reporter=reporter,
        clock=FakeClock(),
        start=0.0,
    )


@pytest.mark.parametrize(
    ("wanted", "kube", "state"),
    [
        (WITHOUT, cluster(), "NetworkPluginNotReady"),
        (WITHOUT, cluster(status="True", message="kubelet is posting ready status"), "Ready"),
        (CLUSTER, cluster(status="True", message="kubelet is posting ready status"), "Ready"),
    ],
    ids=["no plugin", "a plugin of the user", "our network"],
)
def test_nodes_without_a_network_plugin_end_the_wait_where_the_user_installs_one(
    wanted: ClusterRecord, kube: RecordingKube, state: str
) -> None:
    reporter = RecordingReporter()
    assert up._wait_for_nodes(run_of(wanted, reporter), kube, started=[], began=Moment.now(FakeClock())) == state
    told = [(event.subject, event.state) for event in reporter.events if isinstance(event, State)]
    assert told == [(FIRST.name, state)]


@pytest.mark.parametrize(
    ("wanted", "kube"),
    [
        (CLUSTER, cluster()),
        (WITHOUT, cluster(message=f"[{FAULT}, {CSI}]")),
        (WITHOUT, cluster(message=CSI)),
        (WITHOUT, cluster(status="Unknown", message="Kubelet stopped posting node status.")),
    ],
    ids=["our network", "a further fault", "another fault", "no answer"],
)
def test_every_other_fault_of_a_node_is_waited_for(wanted: ClusterRecord, kube: RecordingKube) -> None:
    with pytest.raises(WaitTimeout, match="gave up waiting for all nodes to be ready") as caught:
        up._wait_for_nodes(run_of(wanted, RecordingReporter()), kube, started=[], began=Moment.now(FakeClock()))
    assert FIRST.name in str(caught.value)


def test_a_machine_that_has_stopped_is_not_waited_for() -> None:
    with pytest.raises(HostError, match="machine dev-control-plane has stopped") as caught:
        up._wait_for_nodes(run_of(CLUSTER, RecordingReporter(), runs=False), cluster(), started=[], began=Moment.now(FakeClock()))
    assert caught.value.remedy == "`sudo kubewright up --name dev` starts it again"


class JumpingClock(FakeClock):
    """A clock that can be set."""

    jumped = timedelta()

    def now(self) -> datetime:
        return super().now() + self.jumped


@pytest.mark.parametrize("hours", [-1, 0, 1])
def test_nodes_are_current_if_they_have_reported_since_the_start_even_if_the_clock_was_set(hours: int) -> None:
    clock = JumpingClock()
    began = Moment.now(clock)
    clock.jumped = timedelta(hours=hours)
    kube = cluster(status="True", message="kubelet is posting ready status")
    clock.advance(3)
    metadata = {"name": FIRST.name, "namespace": "kube-node-lease"}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {"renewTime": rfc3339_micro(clock.now())},
    }
    kube.create(lease)
    run = replace(run_of(CLUSTER, RecordingReporter()), clock=clock)
    assert up._wait_for_nodes(run, kube, started=[FIRST.name], began=began) == "Ready"
    with pytest.raises(WaitTimeout):  # the machine was started after that
        clock.advance(1)
        up._wait_for_nodes(run, kube, started=[FIRST.name], began=Moment.now(clock))


def test_machines_have_nothing_for_pods_where_the_user_installs_a_network_plugin(tmp_path: Path) -> None:
    network = Network(bridge="kwab12", ranges=("172.30.4.0/24",))
    parts = Parts(base=tmp_path, kit=tmp_path, store=tmp_path)
    groups = [members.group_of(ClusterPaths(tmp_path / "dev"), one, network=network, parts=parts) for one in (CLUSTER, WITHOUT)]
    assert [group.network.shares(1) for group in groups] == [("10.244.1.0/24",), ()]
    assert {group.network.ranges for group in groups} == {network.ranges}


def test_the_network_cannot_be_chosen_again(tmp_path: Path) -> None:
    for given in (None, "none"):
        record.require_same(WITHOUT, kubernetes_version=None, config=None, cni=given)
    with pytest.raises(ConfigurationChanged, match='"dev" was created with --cni none, not default') as caught:
        record.require_same(WITHOUT, kubernetes_version=None, config=None, cni="default")
    assert "`sudo kubewright down --name dev`" in caught.value.remedy
    path = tmp_path / "cluster.json"
    record.save(WITHOUT, path)
    assert record.load(path) == WITHOUT
    path.write_text(path.read_text().replace('"cni": "none"', '"cni": "cilium"'))
    with pytest.raises(HostError, match="does not describe a cluster"):
        record.load(path)


def test_clusters_of_processes_have_no_network_to_choose(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "dev")
    assert up_options.machines_are_wanted(paths, UpOptions(machines=True, cni="none"))
    for given in ("none", "default"):
        with pytest.raises(UsageError, match="only clusters of machines have --publish, --mount, --cni and --registry-config"):
            up_options.machines_are_wanted(paths, UpOptions(cni=given))
