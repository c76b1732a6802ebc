"""LoadBalancer Services of a cluster of machines: addresses, routes, and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from kubewright.local.whole.services.load_balancers import Backend, assigned, backends_of, key_of, routed, status_of
from kubewright.machines.network import MOST, Network

POOL = ("172.30.4.211", "172.30.4.212")
WEB = ("default", "web")


def service(name: str = "web", *, ip: str = "", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": created},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], **spec},
        "status": {"loadBalancer": {}},
    }
    if ip:
        found["status"]["loadBalancer"] = {"ingress": [{"ip": ip, "ipMode": "VIP"}]}
    return found


def test_addresses_are_those_that_no_machine_has() -> None:
    network = Network(bridge="kw0", ranges=("172.30.4.0/24",))
    assert (len(network.spare()), network.spare()[0]) == (44, "172.30.4.211")
    assert not set(network.spare()) & {network.gateway, *(network.address(index) for index in range(1, MOST + 1))}


def test_services_keep_their_addresses_and_new_ones_get_the_free_ones_in_order_of_age() -> None:
    services = [service("new", created="2026-01-03T00:00:00Z"), service("old"), service("kept", ip=POOL[0], created="2026-01-02T00:00:00Z")]
    assert assigned(services, POOL) == {("default", "kept"): POOL[:1], ("default", "old"): POOL[1:]}


def test_an_address_that_was_asked_for_is_given_if_it_is_free() -> None:
    services = [
        service("any"),
        service("certain", loadBalancerIP=POOL[0], created="2026-01-02T00:00:00Z"),
        service("other", loadBalancerIP="8.8.8.8"),
    ]
    assert assigned(services, (*POOL, "172.30.4.213")) == {
        ("default", "certain"): POOL[:1],
        ("default", "any"): POOL[1:],
        ("default", "other"): ("172.30.4.213",),
    }


def test_an_address_that_was_assigned_a_moment_ago_is_kept() -> None:
    services = [service("certain", loadBalancerIP=POOL[0]), service("fresh")]
    assert assigned(services, POOL, recent={("default", "fresh"): POOL[:1]}) == {
        ("default", "fresh"): POOL[:1],
        ("default", "certain"): POOL[1:],
    }


def test_two_services_never_share_an_address() -> None:
    assert assigned([service("a", ip=POOL[0]), service("b", ip=POOL[0])], POOL) == {("default", "a"): POOL[:1], ("default", "b"): POOL[1:]}


@pytest.mark.parametrize(
    "other",
    [
        service(type="NodePort"),
        service(loadBalancerClass="example.com/other"),
        service(ipFamilies=["IPv6"]),
        {**service(), "metadata": {"name": "web", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_other_services_have_none(other: dict[str, Any]) -> None:
    assert assigned([other], POOL) == {}


def test_the_status_is_written_once_and_taken_back_when_the_type_changes() -> None:
    wanted = {"status": {"loadBalancer": {"ingress": [{"ip": POOL[0], "ipMode": "VIP"}]}}}
    assert status_of(service(), POOL[:1], POOL) == wanted
    assert status_of(service(ip=POOL[0]), POOL[:1], POOL) is None
    assert status_of(service(ip=POOL[0], type="ClusterIP"), (), POOL) == {"status": {"loadBalancer": {"ingress": None}}}
    assert status_of(service(ip="192.0.2.1", loadBalancerClass="example.com/other"), (), POOL) is None
    assert status_of({"metadata": {"name": "web"}, "spec": {}}, (), POOL) is None


ONE, TWO = Backend(addresses=("172.30.4.61",)), Backend(addresses=("172.30.4.62",))


@pytest.mark.parametrize(
    ("backends", "present", "via"),
    [
        ([ONE, TWO], {}, ONE.addresses[0]),
        ([ONE, TWO], {POOL[0]: TWO.addresses[0]}, TWO.addresses[0]),  # it stays
        ([ONE], {POOL[0]: TWO.addresses[0]}, ONE.addresses[0]),  # it moves
        ([Backend(addresses=("a",), ready=False), TWO], {POOL[0]: "a"}, TWO.addresses[0]),
        ([Backend(addresses=("a",), excluded=True), TWO], {}, TWO.addresses[0]),
        ([Backend(addresses=("a",), excluded=True)], {}, "a"),  # there is no other
        ([Backend(addresses=("a",), ready=False)], {}, "a"),
        ([], {POOL[0]: TWO.addresses[0]}, None),
    ],
)
def test_packets_go_to_the_machine_that_is_suited_best(backends: list[Backend], present: dict[str, str], via: str | None) -> None:
    found = routed({WEB: POOL[:1]}, {WEB: service()}, backends, present)
    assert found == ({} if via is None else {POOL[0]: via})


def test_a_service_with_local_traffic_only_goes_where_an_endpoint_is() -> None:
    local = service(externalTrafficPolicy="Local")
    backends = [ONE, Backend(addresses=("172.30.4.62",), ready=False, excluded=True, local=frozenset({WEB}))]
    assert routed({WEB: POOL[:1]}, {WEB: local}, backends, {POOL[0]: ONE.addresses[0]}) == {POOL[0]: "172.30.4.62"}
    assert routed({WEB: POOL[:1]}, {WEB: service()}, backends, {}) == {POOL[0]: ONE.addresses[0]}


def test_a_service_of_two_families_has_an_address_and_a_route_of_each() -> None:
    pool, web = ("172.30.4.211", "fd00::211"), service(ipFamilies=["IPv6", "IPv4"])
    assert assigned([web], pool) == {WEB: ("fd00::211", "172.30.4.211")}
    assert assigned([web], POOL) == {}
    assert assigned([service(ipFamilies=["IPv6"], ip="172.30.4.211")], pool) == {WEB: ("fd00::211",)}
    ingress = [{"ip": "fd00::211", "ipMode": "VIP"}, {"ip": "172.30.4.211", "ipMode": "VIP"}]
    assert status_of(web, ("fd00::211", "172.30.4.211"), pool) == {"status": {"loadBalancer": {"ingress": ingress}}}
    two = Backend(addresses=("172.30.4.62", "fd00::62"))
    present = {"fd00::211": "fd00::62"}
    both = routed({WEB: ("fd00::211", "172.30.4.211")}, {WEB: web}, [two, ONE], present)
    assert both == {"fd00::211": "fd00::62", "172.30.4.211": "172.30.4.62"}
    assert routed({WEB: ("fd00::211",)}, {WEB: web}, [ONE], {}) == {}


def test_machines_are_described_by_their_nodes_and_endpoints() -> None:
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    nodes = {
        (None, "plane"): {"metadata": {"name": "plane", "labels": label}, "status": ready},
        (None, "worker"): {"metadata": {"name": "worker"}, "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    }
    endpoints = [{"nodeName": "worker", "conditions": {"ready": True}}, {"nodeName": "plane", "conditions": {"ready": False}}, {}]
    slices = [
        {"metadata": {"name": "web-1", "namespace": "default", "labels": {"kubernetes.io/service-name": "web"}}, "endpoints": endpoints}
    ]
    assert backends_of({"plane": ("1",), "worker": ("2",), "fresh": ("3",)}, nodes, slices) == [
        Backend(addresses=("1",), ready=True, excluded=True),
        Backend(addresses=("2",), ready=False, local=frozenset({WEB})),
        Backend(addresses=("3",), ready=False),
    ]
    assert key_of(service()) == WEB
