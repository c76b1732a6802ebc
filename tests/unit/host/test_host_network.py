"""Addresses, routes, listeners, free ports."""

import ipaddress
import os
import socket
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import PortInUse
from kubewright.host.network.interfaces import (
    InterfaceAddress,
    PortOwner,
    RealNetwork,
    choose_default,
    default_interfaces,
    interface_address,
    loopback_global,
    parse_inet6,
)
from kubewright.host.network.listeners import Listener, choose_loopback, choose_ports, parse_address, parse_connected, parse_listeners

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode"
TAIL = "00000000:00000000 00:00000000 00000000"


def word(text):
    return "".join(f"{value:08X}" for (value,) in struct.iter_unpack("=I", ipaddress.ip_address(text).packed))


def row(address, port, state="0A", user=1000, inode=7):
    return (
        f"   0: {word(address)}:{port:04X} {word('0.0.0.0')}:0000 {state} {TAIL} {user:5}        0 {inode} 1 00000000b2170c4f 100 0 0 10 0"
    )


def listener(address, port):
    return Listener(address=address, port=port, user=0, inode=0)


def test_listeners_are_read_and_connections_are_not():
    lines = [HEAD, row("127.0.0.11", 6443), row("0.0.0.0", 22, user=0, inode=9), row("127.0.0.1", 6443, state="01"), "rubbish"]
    assert list(parse_listeners(lines)) == [
        Listener(address="127.0.0.11", port=6443, user=1000, inode=7),
        Listener(address="0.0.0.0", port=22, user=0, inode=9),
    ]
    assert list(parse_listeners([])) == []


def test_connections_to_a_port_are_read():
    def connection(local, port, remote, state="01"):
        return row(local, port, state=state).replace(word("0.0.0.0") + ":0000", f"{word(remote)}:9C40")

    lines = [HEAD, row("10.0.0.2", 2380), connection("10.0.0.2", 2380, "10.0.0.1"), connection("10.0.0.2", 2379, "10.0.0.3")]
    lines += [connection("10.0.0.2", 2380, "10.0.0.4", state="06"), connection("::ffff:10.0.0.2", 2380, "::ffff:10.0.0.5"), "rubbish"]
    assert list(parse_connected(lines, 2380)) == ["10.0.0.1", "10.0.0.5"]


def test_a_connection_to_this_machine_is_found():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        port = server.getsockname()[1]
        assert RealNetwork().connected(port) == ["127.0.0.1"]
    assert RealNetwork().connected(port) == []


@given(address=st.ip_addresses())
def test_any_address_is_read_back(address):
    mapped = getattr(address, "ipv4_mapped", None)
    assert parse_address(word(str(address))) == str(mapped or address)


def test_a_mapped_address_is_ipv4():
    assert parse_address(word("::ffff:127.0.0.1")) == "127.0.0.1"


@pytest.mark.parametrize(
    ("listens", "address", "blocked"),
    [
        ("127.0.0.11", "127.0.0.11", True),
        ("127.0.0.11", "127.0.0.12", False),
        ("0.0.0.0", "127.0.0.12", True),
        ("0.0.0.0", "::1", False),
        ("::", "127.0.0.12", True),
        ("::", "::1", True),
        ("127.0.0.11", "0.0.0.0", True),
        ("127.0.0.11", "::", True),
        ("::1", "0.0.0.0", False),
    ],
)
def test_a_listener_on_all_addresses_counts(listens, address, blocked):
    assert listener(listens, 6443).blocks(address, 6443) is blocked
    assert listener(listens, 6443).blocks(address, 6444) is False


@pytest.mark.parametrize(
    ("taken", "avoid", "chosen"),
    [
        ([], [], "127.0.0.11"),
        ([("127.0.0.11", 6443)], [], "127.0.0.12"),
        ([("127.0.0.11", 9999)], [], "127.0.0.11"),
        ([("0.0.0.0", 9999)], [], "127.0.0.11"),
        ([("127.0.0.11", 2379), ("127.0.0.13", 6443)], ["127.0.0.12"], "127.0.0.14"),
        ([], [f"127.0.0.{number}" for number in range(11, 255)], "127.0.1.1"),
    ],
)
def test_the_first_free_loopback_address_is_chosen(taken, avoid, chosen):
    assert choose_loopback([listener(*one) for one in taken], [6443, 2379], avoid=avoid) == chosen


@pytest.mark.parametrize("everywhere", ["0.0.0.0", "::"])
def test_no_loopback_address_is_free_under_a_listener_on_all(everywhere):
    with pytest.raises(PortInUse) as refused:
        choose_loopback([listener(everywhere, 2379)], [6443, 2379])
    assert refused.value.what == "no loopback address has the ports 2379 free"
    assert "ss -ltnp" in refused.value.remedy


@pytest.mark.parametrize(
    ("taken", "chosen"),
    [
        ([], [6443, 2379, 2380]),
        ([("127.0.0.1", 2379)], [6443, 2380, 2381]),
        ([("0.0.0.0", 6443), ("127.0.0.1", 6444)], [6445, 2379, 2380]),
    ],
)
def test_ports_are_the_requested_ones_or_the_next(taken, chosen):
    found = choose_ports([listener(*one) for one in taken], "127.0.0.1", [6443, 2379, 2380], below=32768)
    assert found == chosen


def test_ports_of_outgoing_connections_are_avoided():
    with pytest.raises(PortInUse, match=r"no port from 99 up to 100 is free at 127.0.0.1"):
        choose_ports([listener("127.0.0.1", 99)], "127.0.0.1", [99], below=100)


ROUTE = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
"""
ZERO = "0" * 32
ROUTE6 = f"""fd{"0" * 30} 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001     eth1
{ZERO} 00 {ZERO} 00 fd{"0" * 29}1 00000400 00000002 00000000 00000003     eth2
{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo
"""


def test_default_routes_are_read():
    assert default_interfaces(ROUTE, ROUTE6) == {4: ["eth0"], 6: ["eth2"]}
    assert default_interfaces("", "") == {4: [], 6: []}


def test_tentative_ipv6_addresses_are_left_out():
    text = (
        "fd000000000000000000000000000002 04 40 00 82     eth0\n"
        "fd000000000000000000000000000003 04 40 00 40     eth0\n"
        "fd000000000000000000000000000004 04 40 00 88     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    )
    assert parse_inet6(text) == [("eth0", "fd00::2"), ("lo", "::1")]


def at(interface, address, *, up=True, loopback=False):
    return InterfaceAddress(interface=interface, address=address, up=up, loopback=loopback)


ADDRESSES = [
    at("lo", "127.0.0.1", loopback=True),
    at("lo", "203.0.113.9", loopback=True),
    at("eth0", "169.254.1.1"),
    at("eth0", "10.98.0.11"),
    at("eth1", "192.0.2.5", up=False),
    at("eth2", "fe80::1"),
    at("eth2", "fd00::11"),
]


@pytest.mark.parametrize(
    ("interfaces", "family", "chosen"),
    [
        (["eth0"], 4, "10.98.0.11"),
        (["eth2"], 6, "fd00::11"),
        (["eth1"], 4, "203.0.113.9"),
        (["eth2", "eth0"], 4, "203.0.113.9"),
        (["eth0"], 6, None),
        ([], 4, None),
    ],
)
def test_the_default_address_is_the_first_usable_one_of_its_interface(interfaces, family, chosen):
    assert choose_default(ADDRESSES, interfaces, family) == chosen


def test_a_global_address_on_the_loopback_interface_is_found():
    assert loopback_global(ADDRESSES) == "203.0.113.9"
    assert loopback_global(ADDRESSES[:1]) is None


def test_flags_are_read():
    assert interface_address("lo", "127.0.0.1", 0x49) == at("lo", "127.0.0.1", loopback=True)
    assert interface_address("eth0", "10.0.0.1", 0) == at("eth0", "10.0.0.1", up=False)


def test_this_machine_has_a_loopback_interface():
    assert at("lo", "127.0.0.1", loopback=True) in RealNetwork().interface_addresses()


def test_the_owner_of_a_port_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        owner = RealNetwork().owner_of_port("127.0.0.1", port)
        assert (owner.pid, owner.user) == (os.getpid(), os.geteuid())
        assert RealNetwork().owner_of_port("127.0.0.251", port) is None
        assert RealNetwork().free_loopback([port], avoid=["127.0.0.11"]) == "127.0.0.12"
        assert str(owner) == f"{owner.program} (pid {os.getpid()})"


def test_a_port_in_use_is_skipped():
    first = RealNetwork().free_ports("127.0.0.1", [21000])[0]
    with socket.create_server(("127.0.0.1", first)):
        assert RealNetwork().free_ports("127.0.0.1", [first])[0] > first


def test_a_process_that_ends_during_inspection_holds_no_port(tmp_path, monkeypatch):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(f"{HEAD}\n{row('0.0.0.0', 6443, user=0)}\n")
    network, looks = RealNetwork(proc=tmp_path), []
    look = network._owner

    def owner(listener):
        looks.append(listener)
        (tmp_path / "net/tcp").write_text(f"{HEAD}\n")
        return look(listener)

    monkeypatch.setattr(network, "_owner", owner)
    assert network.owner_of_port("127.0.0.1", 6443) is None
    assert len(looks) == 1


def test_a_hidden_owner_is_reported_by_its_user(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(f"{HEAD}\n{row('0.0.0.0', 6443, user=998)}\n")
    network = RealNetwork(proc=tmp_path)
    owner = network.owner_of_port("127.0.0.1", 6443)
    assert owner == PortOwner(user=998)
    assert str(owner) == "a process of user 998"
    assert network.default_address(family=4) is None
    assert network.free_ports("127.0.0.1", [6443]) == [6444]


def test_a_process_of_another_program_is_reported(tmp_path):
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(f"{HEAD}\n{row('127.0.0.1', 6443, inode=77)}\n")
    (tmp_path / "42/fd").mkdir(parents=True)
    (tmp_path / "42/fd/5").symlink_to("socket:[77]")
    (tmp_path / "42/comm").write_text("kube-apiserver\n")
    assert str(RealNetwork(proc=tmp_path).owner_of_port("127.0.0.1", 6443)) == "kube-apiserver (pid 42)"
