"""The parts of the status that setters compute from observations: each row of the table by what the Node lacks without it."""

from __future__ import annotations

from typing import Any

import pytest
from agent_values import LATER, NOW, facts, machine, stored

from kubewright.agent import registration
from kubewright.agent.status import setters
from kubewright.agent.status.snapshot import Snapshot
from kubewright.host.states import Image, RuntimeHandler

SEEN = Snapshot(
    addresses=("10.0.0.2", "fd00::2"),
    runtime="containerd://2.2.1",
    handlers=(RuntimeHandler(name="", user_namespaces=True), RuntimeHandler(name="runc", recursive_read_only_mounts=True)),
    supplemental_groups_policy=True,
    images=(Image(id="a", tags=("t1",), digests=("d1",), size=1), Image(id="b", tags=("t2",), size=3), Image(id="c", tags=("t3",), size=3)),
    pressures=frozenset({"DiskPressure"}),
)
REAL: dict[str, Any] = {"needs_pod_range": False}


def status(seen: Snapshot = SEEN, *, storage: str = "", failed: Any = setters.ignore_failure, **changes: Any) -> dict[str, Any]:
    node = registration.first_node(facts(**{**REAL, **changes}), now=NOW, snapshot=seen, storage=storage, failed=failed)
    found: dict[str, Any] = node["status"]
    return found


EXPECTED: dict[str, tuple[Any, Any]] = {
    "addresses": (
        lambda found: [row["address"] for row in found["addresses"]],
        ["10.0.0.2", "fd00::2", "node-1"],
    ),
    "machine": (lambda found: (found["capacity"]["cpu"], found["nodeInfo"]["machineID"]), ("4", "machine")),
    "versions": (
        lambda found: (found["nodeInfo"]["containerRuntimeVersion"], found["nodeInfo"]["kubeletVersion"]),
        ("containerd://2.2.1", "v1.36.3"),
    ),
    "daemon endpoint": (lambda found: found["daemonEndpoints"], {"kubeletEndpoint": {"Port": 10250}}),
    "images": (
        lambda found: found["images"],
        [{"names": ["t3"], "sizeBytes": 3}, {"names": ["t2"], "sizeBytes": 3}, {"names": ["d1", "t1"], "sizeBytes": 1}],
    ),
    "platform": (lambda found: (found["nodeInfo"]["operatingSystem"], found["nodeInfo"]["architecture"]), ("linux", "amd64")),
    "runtime handlers": (
        lambda found: found["runtimeHandlers"],
        [
            {"name": "", "features": {"recursiveReadOnlyMounts": False, "userNamespaces": True}},
            {"name": "runc", "features": {"recursiveReadOnlyMounts": True, "userNamespaces": False}},
        ],
    ),
    "features": (lambda found: found["features"], {"supplementalGroupsPolicy": True}),
    "pressures": (
        lambda found: [(row["type"], row["status"]) for row in found["conditions"][:3]],
        [("MemoryPressure", "False"), ("DiskPressure", "True"), ("PIDPressure", "False")],
    ),
    "ready": (lambda found: [row["status"] for row in found["conditions"] if row["type"] == "Ready"], ["True"]),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_setter_writes_its_part(name):
    look, expected = EXPECTED[name]
    assert look(status()) == expected


def test_features_declared_by_a_kubelet_are_removed():
    node = stored(registration.first_node(facts(**REAL), now=NOW, snapshot=SEEN))
    node["status"]["declaredFeatures"] = ["InPlacePodVerticalScaling"]
    assert "declaredFeatures" not in setters.compute(node, facts(**REAL), now=LATER, snapshot=SEEN)["status"]


def test_every_setter_has_a_row_in_the_order_of_the_kubelet():
    assert list(setters.SETTERS) == [*EXPECTED, "declared features"]


def test_a_machine_without_observations_has_no_status_from_them():
    found = status(Snapshot(addresses=("10.0.0.2",)))
    assert {"images", "runtimeHandlers", "features"} & found.keys() == set()
    assert found["nodeInfo"]["containerRuntimeVersion"].startswith("kubewright://")


def test_a_failing_setter_is_reported_and_does_not_stop_others():
    failures: dict[str, str] = {}
    node = stored(registration.first_node(facts(**REAL), now=NOW, snapshot=SEEN))
    broken = Snapshot(address_trouble="no address", images=())
    new = setters.compute(node, facts(**REAL), now=LATER, snapshot=broken, failed=failures.__setitem__)
    assert failures == {"addresses": "no address"}
    assert new["status"]["addresses"] == node["status"]["addresses"]
    assert "images" not in new["status"]
    assert setters.is_true(new, "Ready")


@pytest.mark.parametrize(("most", "count"), [(-1, 3), (0, 0), (2, 2)])
def test_the_configured_number_of_images_is_listed(most, count):
    assert len(status(max_images=most).get("images", ())) == count


def test_an_image_without_names_and_size_is_written_as_the_api_gives_it_back():
    found = status(Snapshot(images=(Image(id="sha256:1", size=0),)))
    assert found["images"] == [{"names": None}]


def test_an_image_has_five_names_at_most():
    seen = Snapshot(images=(Image(id="a", tags=tuple("defgh"), digests=tuple("abc")),))
    assert status(seen)["images"][0]["names"] == list("abcde")


def test_handlers_of_an_earlier_runtime_are_removed_and_its_features_stay():
    """The kubelet replaces the list each time, and the features only when the runtime has reported them."""
    before = {"status": {"runtimeHandlers": [{"name": "old"}], "features": {"supplementalGroupsPolicy": True}}, "metadata": {}}
    found = setters.compute(before, facts(**REAL), now=NOW, snapshot=Snapshot(addresses=("10.0.0.1",)))["status"]
    assert "runtimeHandlers" not in found
    assert found["features"] == {"supplementalGroupsPolicy": True}


def of_cloud(
    node: dict[str, Any], *, given: tuple[str, ...] = (), cloud: bool = True, seen: Snapshot = SEEN, failed: Any = setters.ignore_failure
) -> dict[str, Any]:
    return setters.compute(node, facts(**REAL, external_cloud=cloud, node_ips=given), now=LATER, snapshot=seen, failed=failed)


def addresses(node: dict[str, Any]) -> list[str]:
    return [row["address"] for row in node["status"]["addresses"]]


PROVIDED = "alpha.kubernetes.io/provided-node-ip"


def test_addresses_of_an_external_cloud_are_kept():
    bare: dict[str, Any] = {"metadata": {"name": "node-1"}, "spec": {}, "status": {}}
    assert addresses(of_cloud(bare)) == ["node-1"]
    assert addresses(of_cloud(bare, given=("0.0.0.0",))) == ["10.0.0.2", "fd00::2", "node-1"]
    assert addresses(of_cloud(bare, given=("10.0.0.2",))) == ["10.0.0.2", "fd00::2", "node-1"]
    known = {**bare, "status": {"addresses": [{"type": "ExternalIP", "address": "192.0.2.1"}]}}
    assert addresses(of_cloud(known, given=("10.0.0.2",))) == ["192.0.2.1"]
    assert addresses(of_cloud(known, cloud=False)) == ["10.0.0.2", "fd00::2", "node-1"]


def test_only_an_external_cloud_gets_an_annotation_with_the_given_addresses():
    bare: dict[str, Any] = {"metadata": {"name": "node-1", "annotations": {PROVIDED: "old", "theirs": "x"}}, "spec": {}, "status": {}}
    assert of_cloud(bare, given=("10.0.0.2", "fd00::2"))["metadata"]["annotations"] == {PROVIDED: "10.0.0.2,fd00::2", "theirs": "x"}
    for given, cloud in (((), True), (("0.0.0.0",), True), (("10.0.0.2",), False)):
        assert of_cloud(bare, given=given, cloud=cloud)["metadata"]["annotations"] == {"theirs": "x"}


def test_a_given_address_that_the_machine_does_not_have_is_not_passed_to_an_external_cloud():
    for theirs in ([], [{"type": "ExternalIP", "address": "192.0.2.1"}]):
        node: dict[str, Any] = {"metadata": {"annotations": {PROVIDED: "10.0.0.1"}}, "status": {"addresses": theirs}}
        failures: list[tuple[str, str]] = []
        seen = Snapshot(address_trouble="no interface has it")
        found = of_cloud(node, given=("10.0.0.2",), seen=seen, failed=lambda *failure: failures.append(failure))  # noqa: B023
        assert (found["metadata"]["annotations"], found["status"]["addresses"]) == ({PROVIDED: "10.0.0.1"}, theirs)
        assert failures == [("addresses", "no interface has it")]


def test_reasons_for_not_being_ready_are_in_the_order_of_the_kubelet():
    seen = Snapshot(runtime_errors=("runtime",), network_errors=("network",), shutting_down=True)
    ready = status(seen, storage="storage")["conditions"][3]
    assert (ready["status"], ready["message"]) == ("False", "[runtime, network, storage, node is shutting down]")


def test_a_node_without_storage_isolation_needs_no_ephemeral_storage():
    capacity = {"cpu": "1", "memory": "1", "pods": "1"}
    assert setters.ready_errors(capacity=capacity, isolates_storage=False) == []
    assert setters.ready_errors(capacity=capacity) == ["missing node capacity for resources: ephemeral-storage"]


def test_provider_and_attachment_are_set_at_registration_as_configured():
    node = registration.first_node(facts(provider_id="cloud://1", attach_detach=False, profile=machine()), now=NOW)
    assert node["spec"]["providerID"] == "cloud://1"
    assert node["metadata"]["annotations"] == {}
