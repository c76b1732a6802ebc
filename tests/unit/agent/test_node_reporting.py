from __future__ import annotations

import copy
from typing import Any

from agent_values import LATER, NOW, facts, stored

from kubewright.agent import registration
from kubewright.agent.dependencies import Timings
from kubewright.agent.status import report, setters
from kubewright.agent.status.report import ReportSchedule
from kubewright.base.randomness import SeededRandom
from kubewright.kube.patches import node_status_patch


def node(**spec: Any):
    return stored(registration.first_node(facts(), now=NOW), **spec)


def ready_node():
    return stored(setters.compute(node(podCIDR="10.128.0.0/24"), facts(), now=NOW), podCIDR="10.128.0.0/24")


def test_the_first_round_always_reports():
    assert ReportSchedule().is_due(0.0, Timings())


def test_the_first_forced_report_after_a_change_comes_within_two_and_a_half_to_seven_and_a_half_minutes():
    random, timings = SeededRandom(3), Timings()
    spreads = [ReportSchedule(sent_at=0.0).attempted(changed=True, timings=timings, random=random).spread for _ in range(500)]
    assert len(spreads) == 500
    assert min(spreads) >= -150
    assert max(spreads) < 150
    assert max(spreads) - min(spreads) > 250
    report = ReportSchedule(sent_at=0.0, spread=-150)
    assert not report.is_due(149.9, timings)
    assert report.is_due(150.0, timings)


def test_a_periodic_report_is_followed_by_one_after_exactly_five_minutes():
    timings = Timings()
    report = ReportSchedule(sent_at=100.0, spread=77.0).attempted(changed=False, timings=timings, random=SeededRandom()).sent(477.0)
    assert report == ReportSchedule(sent_at=477.0, spread=0.0)
    assert not report.is_due(776.9, timings)
    assert report.is_due(777.0, timings)


def test_a_failing_first_report_draws_its_spread_again():
    random, timings = SeededRandom(1), Timings()
    first = ReportSchedule().attempted(changed=False, timings=timings, random=random)
    second = first.attempted(changed=False, timings=timings, random=random)
    assert first.spread != second.spread


def test_changed_heartbeats_alone_are_no_change():
    old = ready_node()
    new = setters.compute(old, facts(), now=LATER)
    assert not report.status_changed(old["status"], new["status"])
    assert node_status_patch(old, new) == {
        "status": {
            "conditions": [
                {"lastHeartbeatTime": LATER, "type": kind} for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ]
        }
    }


def test_a_changed_ready_message_alone_is_a_change():
    old = ready_node()
    new = copy.deepcopy(old)
    new["status"]["conditions"][3]["message"] = "other"
    assert report.status_changed(old["status"], new["status"])


def test_quantities_are_compared_by_value_and_missing_maps_equal_empty_ones():
    old = ready_node()
    new = copy.deepcopy(old)
    new["status"]["capacity"]["cpu"] = "4000m"
    new["status"]["images"] = []
    assert not report.status_changed(old["status"], new["status"])
    new["status"]["capacity"]["cpu"] = "5"
    assert report.status_changed(old["status"], new["status"])


def test_empty_values_of_the_api_are_no_change():
    handlers = [{"name": "", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}}]
    ours = {"images": [{"names": [], "sizeBytes": 0}], "runtimeHandlers": [{"features": {"recursiveReadOnlyMounts": True}}]}
    theirs = {"images": [{"names": None}], "runtimeHandlers": handlers, "volumesInUse": None}
    assert not report.status_changed(theirs, ours)
    assert report.status_changed(theirs, {**ours, "runtimeHandlers": [{"name": "runc", "features": {"recursiveReadOnlyMounts": True}}]})
    assert report.status_changed(theirs, {**ours, "images": [{"names": ["a"]}]})


def test_conditions_of_others_are_not_part_of_the_patch():
    old = ready_node()
    old["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "False", "lastHeartbeatTime": NOW})
    body = node_status_patch(old, setters.compute(old, facts(), now=LATER))
    assert [row["type"] for row in body["status"]["conditions"]] == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]


def test_changed_addresses_replace_the_whole_list():
    old = ready_node()
    new = setters.compute(old, facts(addresses=("10.0.0.1", "fd00::1")), now=NOW)
    assert node_status_patch(old, new) == {
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "Hostname", "address": "node-1"},
                {"$patch": "replace"},
            ]
        }
    }


def test_a_corrected_label_is_a_change_of_labels_only():
    old = ready_node()
    old["metadata"]["labels"]["kubernetes.io/arch"] = "wrong"
    new = setters.compute(old, facts(), now=NOW)
    assert report.metadata_changed(old, new)
    assert not report.status_changed(old["status"], new["status"])
    assert node_status_patch(old, new)["metadata"] == {"labels": {"kubernetes.io/arch": "amd64"}}
