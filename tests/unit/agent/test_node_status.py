from __future__ import annotations

import copy

import pytest
from agent_values import LATER, NOW, facts, machine, stored

from kubewright.agent import registration
from kubewright.agent.dependencies import Timings
from kubewright.agent.status import report, setters
from kubewright.base.errors import ValidationError


def test_the_first_object_has_a_complete_status_with_conditions_in_order():
    node = registration.first_node(facts(labels=(("example.org/x", "y"),), taints=(("k", "v", "NoSchedule"),)), now=NOW)
    assert [(row["type"], row["status"], row["reason"]) for row in node["status"]["conditions"]] == [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "False", "KubeletNotReady"),
    ]
    assert all(row["lastHeartbeatTime"] == row["lastTransitionTime"] == NOW for row in node["status"]["conditions"])
    assert node["metadata"]["annotations"] == {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
    assert node["metadata"]["labels"]["example.org/x"] == "y"
    assert len(node["metadata"]["labels"]) == 6
    assert node["spec"] == {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    assert node["status"]["addresses"] == [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": "node-1"}]
    assert node["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 10250}}
    assert sorted(node["status"]["nodeInfo"]) == [
        "architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
        "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID",
    ]  # fmt: skip
    assert sorted(node["status"]) == ["addresses", "allocatable", "capacity", "conditions", "daemonEndpoints", "nodeInfo"]


def test_a_node_without_taints_has_no_taint_list_and_a_simulated_one_is_annotated():
    node = registration.first_node(facts(profile=machine(simulated="machine,pods")), now=NOW)
    assert node["spec"] == {}
    assert node["metadata"]["annotations"]["kubewright.dev/simulated"] == "machine,pods"


def test_a_node_is_ready_once_it_has_a_pod_range():
    first = registration.first_node(facts(), now=NOW)
    waiting = setters.find(first["status"]["conditions"], "Ready")
    assert waiting is not None
    assert "podCIDR" in waiting["message"]
    ready = setters.compute(stored(first, podCIDR="10.128.0.0/24"), facts(), now=LATER)
    assert setters.find(ready["status"]["conditions"], "Ready") == {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "kubelet is posting ready status",
        "lastHeartbeatTime": LATER,
        "lastTransitionTime": LATER,
    }
    assert setters.is_true(ready, "Ready")
    assert not setters.is_true(first, "Ready")


def test_a_node_with_a_forbidden_label_is_not_created():
    with pytest.raises(ValidationError, match="labels are not allowed"):
        facts(labels=(("node-role.kubernetes.io/worker", ""),))


def test_computing_a_status_does_not_modify_the_node_and_keeps_fields_of_others():
    node = stored(registration.first_node(facts(), now=NOW), podCIDR="10.128.0.0/24")
    node["status"]["capacity"]["example.org/gpu"] = "2"
    node["status"]["conditions"].append({"type": "NetworkUnavailable", "status": "False"})
    before = copy.deepcopy(node)
    new = setters.compute(node, facts(), now=LATER)
    assert node == before
    assert new["status"]["capacity"]["example.org/gpu"] == "2"
    assert len(new["status"]["conditions"]) == 5


@pytest.mark.parametrize(
    ("theirs", "left"),
    [
        pytest.param(({"example.org/gpu": "2"}, {}), ({"example.org/gpu": "2"}, {"example.org/gpu": "2"}), id="in capacity"),
        pytest.param(
            ({"example.org/gpu": "2"}, {"example.org/gpu": "9"}), ({"example.org/gpu": "2"}, {"example.org/gpu": "2"}), id="in both"
        ),
        pytest.param(({}, {"example.org/gpu": "2"}), ({}, {}), id="in allocatable"),
        pytest.param(({}, {"hugepages-32Mi": "64Mi"}), ({}, {"hugepages-32Mi": "64Mi"}), id="huge pages in allocatable"),
        pytest.param(({}, {"kubernetes.io/batteries": "1"}), ({}, {"kubernetes.io/batteries": "1"}), id="of Kubernetes, in allocatable"),
        pytest.param(
            ({"hugepages-64Ki": "1Gi"}, {"hugepages-64Ki": "1Gi"}),
            ({"hugepages-64Ki": "1Gi"}, {"hugepages-64Ki": "1Gi", "memory": "7068Mi"}),
            id="huge pages in capacity",
        ),
    ],
)
def test_resources_of_others_are_allocatable_up_to_their_capacity(theirs, left):
    node = registration.first_node(facts(), now=NOW)
    amounts = {name: dict(node["status"][name]) for name in ("capacity", "allocatable")}
    for name, more in zip(amounts, theirs, strict=True):
        node["status"][name].update(more)
    new = setters.compute(node, facts(), now=LATER)
    assert {name: new["status"][name] for name in amounts} == {
        name: {**own, **more} for (name, own), more in zip(amounts.items(), left, strict=True)
    }


def test_a_reworded_pressure_condition_stays_until_it_changes():
    rows = [{"type": "MemoryPressure", "status": "False", "reason": "Other", "message": "words", "lastTransitionTime": NOW}]
    setters.update_pressures(rows, now=LATER)
    assert rows[0] == {
        "type": "MemoryPressure",
        "status": "False",
        "reason": "Other",
        "message": "words",
        "lastTransitionTime": NOW,
        "lastHeartbeatTime": LATER,
    }
    setters.update_pressures(rows, now=LATER, under={"MemoryPressure"})
    assert (rows[0]["status"], rows[0]["reason"], rows[0]["lastTransitionTime"]) == ("True", "KubeletHasInsufficientMemory", LATER)


def test_an_unknown_condition_of_the_lifecycle_controller_is_restored():
    rows = [{"type": "DiskPressure", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "x", "lastTransitionTime": NOW}]
    setters.update_pressures(rows, now=LATER)
    assert (rows[0]["status"], rows[0]["reason"], rows[0]["lastTransitionTime"]) == ("False", "KubeletHasNoDiskPressure", LATER)


def test_several_errors_are_joined_without_duplicates():
    assert setters.join_errors(["a"]) == "a"
    assert setters.join_errors(["a", "b", "a"]) == "[a, b]"


def test_missing_capacity_is_an_error_of_its_own():
    assert setters.ready_errors(capacity={"cpu": "1", "pods": "1"}, network=()) == [
        "missing node capacity for resources: memory, ephemeral-storage"
    ]


def test_an_existing_node_that_fits_is_not_touched():
    first = registration.first_node(facts(), now=NOW)
    assert registration.reconcile(stored(first, podCIDR="10.128.0.0/24"), first, facts()) is None


def test_only_the_reconciled_fields_of_an_existing_node_change():
    first = registration.first_node(facts(labels=(("topology.kubernetes.io/zone", "a"),)), now=NOW)
    existing = stored(first, providerID="cloud://1", unschedulable=True, taints=[{"key": "own", "effect": "NoSchedule"}])
    existing["metadata"]["labels"].update({"topology.kubernetes.io/zone": "old", "example.org/theirs": "stays"})
    existing["metadata"]["annotations"] = {"theirs": "stays"}
    existing["status"]["capacity"]["hugepages-2Mi"] = "1Gi"
    del existing["status"]["allocatable"]
    new = registration.reconcile(existing, first, facts())
    assert new is not None
    expected = copy.deepcopy(existing)
    expected["metadata"]["labels"]["topology.kubernetes.io/zone"] = "a"
    expected["metadata"]["annotations"]["volumes.kubernetes.io/controller-managed-attach-detach"] = "true"
    del expected["status"]["capacity"]["hugepages-2Mi"]
    expected["status"]["allocatable"] = first["status"]["allocatable"]
    assert new == expected


def test_huge_pages_are_added_and_corrected():
    first = registration.first_node(facts(profile=machine(huge_pages={"2Mi": 1 << 30})), now=NOW)
    existing = stored(first)
    existing["status"]["capacity"]["hugepages-2Mi"] = "2Gi"
    del existing["status"]["allocatable"]["hugepages-2Mi"]
    new = registration.reconcile(existing, first, facts())
    assert new is not None
    assert [new["status"][name]["hugepages-2Mi"] for name in ("capacity", "allocatable")] == ["1Gi", "1Gi"]


@pytest.mark.parametrize(("recreated", "left"), [(True, "0"), (False, "2")])
def test_extended_resources_are_zeroed_and_other_huge_page_sizes_removed_on_a_new_machine(recreated, left):
    subject = facts(recreated=recreated)
    first = registration.first_node(subject, now=NOW)
    existing = stored(first)
    for name in ("capacity", "allocatable"):
        existing["status"][name].update({"example.org/gpu": "2", "hugepages-64Ki": "1Gi", "kubernetes.io/batteries": "1"})
    existing["status"]["allocatable"]["hugepages-32Mi"] = "64Mi"
    new = registration.reconcile(existing, first, subject)
    assert new is not None
    amounts = {"example.org/gpu": left, "kubernetes.io/batteries": "1"}
    assert new["status"]["capacity"] == {**first["status"]["capacity"], **amounts}
    assert new["status"]["allocatable"] == {**first["status"]["allocatable"], **amounts, "hugepages-32Mi": "64Mi"}


def test_a_label_that_became_empty_is_removed():
    first = registration.first_node(facts(labels=(("topology.kubernetes.io/zone", ""),)), now=NOW)
    existing = stored(first)
    existing["metadata"]["labels"]["topology.kubernetes.io/zone"] = "old"
    new = registration.reconcile(existing, first, facts())
    assert new is not None
    assert "topology.kubernetes.io/zone" not in new["metadata"]["labels"]


def test_an_empty_label_that_the_node_lacks_and_an_equal_amount_need_no_correction():
    subject = facts(labels=(("topology.kubernetes.io/zone", ""),), profile=machine(huge_pages={"2Mi": 1 << 30}))
    first = registration.first_node(subject, now=NOW)
    existing = stored(first)
    del existing["metadata"]["labels"]["topology.kubernetes.io/zone"]
    existing["status"]["capacity"]["hugepages-2Mi"] = "1073741824"
    assert registration.reconcile(existing, first, subject) is None


def test_a_reconciled_node_needs_nothing_more():
    first = registration.first_node(facts(), now=NOW)
    existing = stored(first)
    existing["metadata"]["labels"]["kubernetes.io/arch"] = "other"
    new = registration.reconcile(existing, first, facts())
    assert new is not None
    assert registration.reconcile(new, first, facts()) is None


def test_every_rule_is_needed():
    assert len(registration.RULES) == 5
    assert Timings().status_attempts == 5
    assert report.ReportSchedule().sent_at is None
