"""Addresses in a VPN: the whole network is used, no address twice, and the same name gets the same one."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.enrollment.vpn import leases
from kubewright.enrollment.vpn.leases import NoAddressLeft, Pool

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)


def networks(least: int = 23, most: int = 29):
    four = st.tuples(st.integers(0, 2**32 - 1), st.integers(least, most)).map(lambda pair: ipaddress.ip_network(pair, strict=False))
    six = st.tuples(st.integers(0, 2**128 - 1), st.integers(96 + least, 96 + most)).map(
        lambda pair: ipaddress.IPv6Network(pair, strict=False)
    )
    return four | six


def pool(network, offset: int = 1) -> Pool:
    return Pool(network=network, hub=network[offset])


@given(networks(), NAMES, st.data())
def test_every_address_is_used_except_those_of_network_hub_and_broadcast(network, name, data):
    found = pool(network, data.draw(st.integers(1, network.num_addresses - 2)))
    tried = list(found.candidates(name))
    assert len(tried) == len(set(tried)) == network.num_addresses - 3 == leases.capacity(network)
    assert set(tried).isdisjoint({network.network_address, found.hub, network.broadcast_address})
    assert all(found.may_give(address) for address in tried)
    assert not any(found.may_give(address) for address in (network.network_address, found.hub, network.broadcast_address))
    assert tried == list(found.candidates(name))


@given(networks(26), st.lists(NAMES, unique=True, min_size=1, max_size=80))
def test_consecutive_nodes_get_different_addresses_until_none_is_left(network, names):
    taken: dict[str, str] = {}

    def owners(asked):
        return {text: taken[text] for text in asked if text in taken}

    room = leases.capacity(network)
    for name in names[:room]:
        [lease] = leases.pick((pool(network),), name, kept=(), owners=owners)
        assert lease not in taken
        taken[lease] = name
        assert leases.pick((pool(network),), name, kept=(lease,), owners=owners) == (lease,)
    assert len(taken) == min(room, len(names))
    if len(names) > room:
        with pytest.raises(NoAddressLeft, match=f"all {room} addresses of the VPN's network {network} are in use"):
            leases.pick((pool(network),), names[room], kept=(), owners=owners)


@given(networks(26), NAMES, st.data())
def test_claimed_addresses_are_avoided_but_not_reserved(network, name, data):
    every = [str(address) for address in pool(network).candidates(name)]
    taken, said = (data.draw(st.sets(st.sampled_from(every))) for _ in range(2))

    def among(found):
        return lambda asked: dict.fromkeys(found & set(asked), "other")

    if taken == set(every):
        with pytest.raises(NoAddressLeft):
            leases.pick((pool(network),), name, kept=(), owners=among(taken), reported=among(said))
        return
    [lease] = leases.pick((pool(network),), name, kept=(), owners=among(taken), reported=among(said))
    free = [text for text in every if text not in taken]
    assert lease == next((text for text in free if text not in said), free[0])


def test_claiming_a_whole_large_network_is_cheap_to_handle():
    wide, asked = pool(ipaddress.ip_network("10.0.0.0/8")), []

    def reported(found):
        asked.extend(found)
        return dict.fromkeys(found, "other")

    [lease] = leases.pick((wide,), "worker", kept=(), owners=lambda _: {}, reported=reported)
    assert (lease, len(asked) < 10_000) == (str(next(wide.candidates("worker"))), True)


@given(NAMES)
def test_a_returning_name_gets_its_address_again(name):
    wide = tuple(pool(ipaddress.ip_network(text)) for text in ("10.64.0.0/16", "fd00:64::/64"))
    first = leases.pick(wide, name, kept=(), owners=lambda _: {})
    assert leases.pick(wide, name, kept=(), owners=lambda _: {}) == first
    assert [ipaddress.ip_address(text).version for text in first] == [4, 6]
    others = leases.pick(wide, name, kept=(), owners=lambda asked: dict.fromkeys({first[0]} & set(asked), "other"))
    assert (others[0] != first[0], others[1]) == (True, first[1])


def test_an_address_outside_of_a_new_network_is_not_kept():
    narrow = ipaddress.ip_network("10.65.0.0/29")
    [lease] = leases.pick((pool(narrow),), "worker", kept=("10.64.0.7",), owners=lambda _: {})
    assert ipaddress.ip_address(lease) in narrow


@pytest.mark.parametrize(("network", "room"), [("10.0.0.0/31", 0), ("10.0.0.0/32", 0), ("10.0.0.0/30", 1), ("fd00::/126", 1)])
def test_tiny_networks_are_handled(network, room):
    assert leases.capacity(ipaddress.ip_network(network)) == room
    if room:
        assert len(list(pool(ipaddress.ip_network(network)).candidates("a"))) == room


def test_a_hub_has_the_first_address_or_the_last_free_one():
    network = ipaddress.ip_network("10.7.0.0/29")
    taken: list[object] = []
    for offset in (1, 6, 5, 4, 3, 2):
        assert leases.hub_address(network, taken=taken) == network[offset]
        taken.append(network[offset])
    with pytest.raises(NoAddressLeft):
        leases.hub_address(network, taken=taken)
    assert leases.hub_address(ipaddress.ip_network("fd00::/64"), taken=[ipaddress.ip_address("fd00::1")]) == ipaddress.ip_address(
        "fd00::ffff:ffff:ffff:fffe"
    )
