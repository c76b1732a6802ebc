from __future__ import annotations

import pytest
from agent_values import machine

from kubewright.agent.status import pressures, resources
from kubewright.agent.status.facts import GIB, simulated_machine
from kubewright.base.quantity import Quantity


def test_ten_per_cent_of_100_gib_has_the_rounding_of_a_32_bit_float():
    assert pressures.eviction_amount("10%", 107_374_182_400) == 10_737_418_400


def test_allocatable_storage_is_without_reservation_and_eviction_threshold():
    profile = machine(ephemeral_storage=83_873_772 * 1024, reserved={"ephemeral-storage": GIB})
    assert resources.allocatable(profile)["ephemeral-storage"] == "76224326324"


def test_allocatable_memory_with_the_default_thresholds():
    assert resources.allocatable(machine(memory=8 * GIB))["memory"] == "8092Mi"
    assert Quantity.parse("8092Mi") == Quantity.parse("8286208Ki") == Quantity.of_bytes(8_485_076_992)


def test_huge_pages_are_taken_off_memory():
    profile = machine(memory=8 * GIB, huge_pages={"2Mi": GIB})
    assert resources.allocatable(profile)["memory"] == str(Quantity.of_bytes(7_411_335_168))
    assert resources.capacity(profile)["hugepages-2Mi"] == "1Gi"
    assert resources.allocatable(profile)["hugepages-2Mi"] == "1Gi"


@pytest.mark.parametrize(("per_core", "most", "pods"), [(10, 110, "40"), (0, 110, "110"), (0, 1000, "1k"), (100, 110, "110")])
def test_pods_are_bounded_by_cores(per_core, most, pods):
    assert resources.capacity(machine(cpu_millis=4000, pods_per_core=per_core, max_pods=most))["pods"] == pods


def test_capacity_of_a_simulated_machine():
    assert resources.capacity(simulated_machine(kubelet_version="v1.36.3")) == {
        "cpu": "4",
        "memory": "16Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
    }


def test_configuring_one_threshold_drops_the_others():
    profile = machine(memory=8 * GIB, hard_eviction={"nodefs.available": "1Gi"})
    assert resources.allocatable(profile)["memory"] == "8Gi"
    assert resources.allocatable(profile)["ephemeral-storage"] == "99Gi"


@pytest.mark.parametrize("off", ["0%", "100%"])
def test_a_threshold_that_is_off_reserves_nothing(off):
    profile = machine(memory=8 * GIB, hard_eviction={"memory.available": off, "nodefs.available": off})
    assert resources.allocatable(profile)["memory"] == "8Gi"
    assert resources.allocatable(profile)["ephemeral-storage"] == "100Gi"


def test_reservations_beyond_capacity_leave_nothing():
    assert resources.allocatable(machine(cpu_millis=1000, reserved={"cpu": 2000}))["cpu"] == "0"


def test_amounts_are_compared_by_value():
    assert resources.same_amounts({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})
    assert not resources.same_amounts({"cpu": "1"}, {"cpu": "2"})
    assert not resources.same_amounts({"cpu": "1"}, {"cpu": "1", "memory": "1"})


def test_nodes_of_one_profile_have_different_identifiers():
    profile = simulated_machine(kubelet_version="v1.36.3")
    one, two = profile.named("node-1"), profile.named("node-2")
    assert one == profile.named("node-1")
    assert len({one.machine_id, two.machine_id, one.system_uuid, two.system_uuid}) == 4
    assert len(one.machine_id) == 32
