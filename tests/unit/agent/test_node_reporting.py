from __future__ import annotations

import copy
from typing import Any

import pytest
from agent_values import LATER, NOW, facts, stored
from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent import reporting, status
from kubewright.agent.reporting import Report
from kubewright.agent.timings import Timings
from kubewright.base.randomness import SeededRandom


def node(**spec: Any):
    return stored(status.first_node(facts(), now=NOW), **spec)


def ready_node():
    return stored(status.compute(node(podCIDR="10.128.0.0/24"), facts(), now=NOW), podCIDR="10.128.0.0/24")


def test_the_first_round_always_reports():
    assert Report().is_due(0.0, Timings())


def test_the_first_forced_report_after_a_change_comes_within_two_and_a_half_to_seven_and_a_half_minutes():
    random, timings = SeededRandom(3), Timings()
    spreads = [Report(sent_at=0.0).attempted(changed=True, timings=timings, random=random).spread for _ in range(500)]
    assert len(spreads) == 500
    assert min(spreads) >= -150
    assert max(spreads) < 150
    assert max(spreads) - min(spreads) > 250
    report = Report(sent_at=0.0, spread=-150)
    assert not report.is_due(149.9, timings)
    assert report.is_due(150.0, timings)


def test_a_periodic_report_is_followed_by_one_after_exactly_five_minutes():
    timings = Timings()
    report = Report(sent_at=100.0, spread=77.0).attempted(changed=False, timings=timings, random=SeededRandom()).sent(477.0)
    assert report == Report(sent_at=477.0, spread=0.0)
    assert not report.is_due(776.9, timings)
    assert report.is_due(777.0, timings)


def test_a_failing_first_report_draws_its_spread_again():
    random, timings = SeededRandom(1), Timings()
    first = Report().attempted(changed=False, timings=timings, random=random)
    second = first.attempted(changed=False, timings=timings, random=random)
    assert first.spread != second.spread


def test_moved_heartbeats_alone_are_no_change():
    old = ready_node()
    new = status.compute(old, facts(), now=LATER)
    assert not reporting.status_changed(old["status"], new["status"])
    assert reporting.patch(old, new) == {
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
    assert reporting.status_changed(old["status"], new["status"])


def test_quantities_are_compared_by_value_and_missing_maps_equal_empty_ones():
    old = ready_node()
    new = copy.deepcopy(old)
    new["status"]["capacity"]["cpu"] = "4000m"
    new["status"]["images"] = []
    assert not reporting.status_changed(old["status"], new["status"])
    new["status"]["capacity"]["cpu"] = "5"
    assert reporting.status_changed(old["status"], new["status"])


def test_conditions_of_others_are_not_part_of_the_patch():
    old = ready_node()
    old["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "False", "lastHeartbeatTime": NOW})
    body = reporting.patch(old, status.compute(old, facts(), now=LATER))
    assert [row["type"] for row in body["status"]["conditions"]] == ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]


def test_a_vanished_key_is_sent_as_null():
    old = ready_node()
    new = copy.deepcopy(old)
    del new["status"]["capacity"]["pods"]
    new["metadata"]["labels"].pop("kubernetes.io/os")
    assert reporting.patch(old, new) == {"metadata": {"labels": {"kubernetes.io/os": None}}, "status": {"capacity": {"pods": None}}}


def test_changed_addresses_replace_the_whole_list():
    old = ready_node()
    new = status.compute(old, facts(addresses=("10.0.0.1", "fd00::1")), now=NOW)
    assert reporting.patch(old, new) == {
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"type": "InternalIP", "address": "fd00::1"},
                {"type": "Hostname", "address": "node-1"},
                {"$patch": "replace"},
            ]
        }
    }


def test_first_addresses_are_sent_as_they_are():
    old = ready_node()
    new = copy.deepcopy(old)
    old["status"]["addresses"] = []
    assert reporting.patch(old, new)["status"]["addresses"] == new["status"]["addresses"]


def test_the_spec_is_never_part_of_a_patch():
    old, new = ready_node(), ready_node()
    new["spec"] = {"unschedulable": True}
    assert reporting.patch(old, new) == {}


def test_a_corrected_label_is_a_change_of_labels_only():
    old = ready_node()
    old["metadata"]["labels"]["kubernetes.io/arch"] = "wrong"
    new = status.compute(old, facts(), now=NOW)
    assert reporting.labels_changed(old, new)
    assert not reporting.status_changed(old["status"], new["status"])
    assert reporting.patch(old, new)["metadata"] == {"labels": {"kubernetes.io/arch": "amd64"}}


scalars = st.integers() | st.text(max_size=4) | st.booleans()
maps = st.recursive(
    st.dictionaries(st.text(max_size=3), scalars | st.lists(scalars, max_size=2), max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=3), scalars | inner, max_size=3),
    max_leaves=8,
)


def merged(base, patch):
    if not isinstance(patch, dict):
        return patch
    result = dict(base) if isinstance(base, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


@pytest.mark.parametrize("field", ["nodeInfo", "capacity", "volumesInUse"])
@given(old=maps, new=maps)
def test_applying_a_patch_gives_the_new_status(field, old, new):
    before = {"metadata": {}, "status": {field: old}}
    after = {"metadata": {}, "status": {field: new}}
    body = reporting.patch(before, after)
    assert merged(before["status"], body.get("status", {})) == after["status"]
