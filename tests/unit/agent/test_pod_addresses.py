from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubewright.agent.pods.simulated import AddressPool, PodAddresses


def test_the_first_pod_gets_the_address_after_that_of_the_gateway():
    pool = AddressPool("10.128.1.0/24")
    assert [pool.take() for _ in range(3)] == ["10.128.1.2", "10.128.1.3", "10.128.1.4"]


def test_all_addresses_are_given_once_and_then_none():
    pool = AddressPool("10.128.1.0/29")
    assert [pool.take() for _ in range(7)] == [f"10.128.1.{last}" for last in range(2, 7)] + [None, None]


def test_a_released_address_is_used_again_as_late_as_possible():
    pool = AddressPool("10.128.1.0/24")
    assert pool.take() == "10.128.1.2"
    pool.release("10.128.1.2")
    assert pool.take() == "10.128.1.3"


def test_an_ipv6_range_has_enough_addresses():
    pool = AddressPool("fd00:10::/64")
    assert [pool.take(), pool.take()] == ["fd00:10::2", "fd00:10::3"]


def test_a_pod_keeps_its_addresses_and_releases_them():
    addresses = PodAddresses(["10.128.1.0/29", "fd00::/64"])
    assert addresses.of("a") == addresses.of("a") == ("10.128.1.2", "fd00::2")
    assert addresses.release("a")
    assert not addresses.release("a")
    assert addresses.of("b") == ("10.128.1.3", "fd00::3")


def test_claimed_addresses_are_not_given_to_others():
    addresses = PodAddresses(["10.128.1.0/29"])
    addresses.claim("old", ["10.128.1.2"])
    addresses.claim("foreign", ["192.168.0.1"])
    assert addresses.of("new") == ("10.128.1.3",)
    assert addresses.of("old") == ("10.128.1.2",)


def test_without_ranges_there_are_no_addresses():
    assert PodAddresses().of("a") == ()


def test_a_pod_that_cannot_have_all_its_addresses_takes_none():
    addresses = PodAddresses(["10.128.1.0/30", "fd00::/64"])
    assert addresses.of("a") == ("10.128.1.2", "fd00::2")
    assert addresses.of("b") == ()
    addresses.release("a")
    assert addresses.of("b") == ("10.128.1.2", "fd00::4")


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=40))
def test_living_pods_never_share_an_address(steps):
    addresses = PodAddresses(["10.128.1.0/29"])
    held: dict[str, tuple[str, ...]] = {}
    for uid, take in steps:
        if take:
            if found := addresses.of(uid):
                held[uid] = found
        else:
            addresses.release(uid)
            held.pop(uid, None)
        assert len(set(held.values())) == len(held) <= 5
