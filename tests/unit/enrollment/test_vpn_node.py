"""`node join` through a hub with a VPN, ours and oneinfra's: a key, a unit and the kubelet's address, whatever is killed; and their removal."""

from __future__ import annotations

import pytest
from node_kit import UNIT, WITH_SERVICES, Node, killed_at_each_step

from kubewright.base.change import Action
from kubewright.base.errors import APIError, ComponentFailed, HostError, TrustError, WaitTimeout
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.host.states import ServiceState
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.steps import cleanup
from kubewright.lifecycle.steps.cleanup import Cleanup
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.lifecycle.steps.inventory import CleanupOptions, Inventory
from kubewright.pki import wireguard


@pytest.mark.parametrize("ours", [True, False], ids=["our hub", "a stock hub"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_the_same_command_succeeds_after_a_kill_at_any_step(tmp_path, after, ours):
    kills = 0
    for node in killed_at_each_step(
        lambda number: Node(tmp_path / str(number), ours=ours), lambda node, killer: node.join(killer=killer), after=after
    ):
        kills += 1
        node.join()
        node.require_tunnel(ours=ours)
        assert node.cluster.created == 1
        assert node.join().changes == ()
    assert kills >= 14


def test_the_hub_gets_the_public_half_of_the_key_of_the_node(tmp_path):
    node, sent = Node(tmp_path), []
    loaded = node.cluster.loaded
    answered = node.cluster.answered

    def noting(call):
        from kubewright.enrollment.protocol import requests

        sent.append(requests.read(call.body, join_key=loaded.join_key).tunnel_key)
        return answered(call)

    node.cluster.answered = noting
    node.join()
    assert sent == [wireguard.public_key(node.key)]


def test_a_stopped_tunnel_is_started_again(tmp_path):
    node = Node(tmp_path)
    node.join()
    node.disk._planned_services.stop("oi-wg")
    done = node.join()
    assert [(one.target, one.reason) for one in done.changes] == [("service oi-wg", "start")]
    assert node.disk.service("oi-wg").running


def test_a_hub_of_oneinfra_need_not_answer_in_its_vpn(tmp_path):
    node = Node(tmp_path, ours=False)
    node.disk.heard = False
    node.join()
    node.require_tunnel(ours=False)
    assert node.disk.service("kubelet").running
    [warned] = [event.text for event in node.reporter.events if isinstance(event, Warned)]
    assert warned.startswith(
        "gave up waiting for the hub to answer in the VPN after 5.0s: it has not answered; the node continues without it."
    )


def test_our_hub_must_answer_in_its_vpn(tmp_path):
    node = Node(tmp_path)
    node.disk.heard = False
    with pytest.raises(WaitTimeout, match="gave up waiting for the hub to answer in the VPN after 1m"):
        node.join()
    assert node.disk.service("kubelet") is None or not node.disk.service("kubelet").running


@pytest.mark.parametrize("missing", ["wg", "ip"])
def test_nothing_of_the_answer_is_written_if_a_program_is_missing(tmp_path, missing):
    node = Node(tmp_path, programs=tuple({"ip", "wg", "wireguard-go", "kubelet"} - {missing}))
    with pytest.raises(HostError, match=f"{missing} is not installed") as told:
        node.join()
    assert "install the package" in told.value.remedy
    assert node.disk.state(node.layout.oneinfra) is None
    assert node.disk.read(UNIT) is None


def test_an_answer_without_any_key_is_refused(tmp_path):
    node = Node(tmp_path, ours=False)
    node.cluster.change = lambda answer: replace(answer, tunnel=replace(answer.tunnel, private_key=""))
    with pytest.raises(TrustError, match="the VPN that the hub sent cannot be used") as told:
        node.join()
    assert told.value.detail == "it has no key"
    assert node.disk.read(UNIT) is None


def test_a_request_whose_key_is_lost_is_not_continued(tmp_path):
    node = Node(tmp_path)
    node.join(skip=("preflight", "answer", "tunnel", "files", "forget-key", *WITH_SERVICES))
    node.disk.remove(node.layout.state / "node-tunnel.key")
    with pytest.raises(APIError, match="the VPN key of the request of worker is no longer on this machine"):
        node.join()


def test_a_plan_shows_the_tunnel_and_creates_none(tmp_path):
    node = Node(tmp_path)
    planned = [one.target for one in node.join(mode=Mode.PLAN).changes]
    assert [planned.count(target) for target in ("service oi-wg", f"file {node.layout.oneinfra}/wg.key")] == [1, 1]
    assert node.cluster.created == 0
    assert node.disk.read(UNIT) is None
    assert node.disk.state(node.layout.oneinfra) is None


def test_reset_removes_the_tunnel(tmp_path):
    node = Node(tmp_path)
    node.join()
    host = node.disk
    inventory = Inventory(host, detected=DetectedCluster(host), options=CleanupOptions(), default_pki=host.layout.pki)
    assert f"tunnel of a VPN: {UNIT}" in inventory.listing()
    said: list[str] = []
    ctx = Cleanup(host=host, clock=None, reporter=node.reporter, inventory=inventory, report_step=lambda done, _: said.append(done))
    changes = [(one.target, one.action) for one in cleanup.remove_tunnel(ctx)]
    assert changes[0] == ("service oi-wg", Action.UPDATE)
    assert host.read(UNIT) is None
    assert host.tunnel("oi-wg") is None
    assert said == ["Removing the tunnel oi-wg"]
    again = Inventory(host, detected=DetectedCluster(host), options=CleanupOptions(), default_pki=host.layout.pki)
    assert list(cleanup.remove_tunnel(replace(ctx, inventory=again))) == []


def test_a_failing_kubelet_is_reported_while_waiting_for_its_node(tmp_path):
    node = Node(tmp_path)
    node.disk.knows("kubelet", ServiceState(running=False, failed=True))
    with pytest.raises((ComponentFailed, WaitTimeout)) as caught:
        node.join(skip=("preflight", "kubelet-install", "kubelet-start"))
    assert "the kubelet has failed, and its unit does not restart it" in str(caught.value)
    assert "journalctl" in caught.value.remedy
