"""Names and addresses of the serving certificates: order, sorting, duplicates, loopbacks of local machines, wildcards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pki_cases import CASES, addresses_of, configuration

from kubewright.apis.kubeadm.types import APIServer, Etcd, LocalEtcd, Networking
from kubewright.apis.machine import Addresses
from kubewright.pki import names
from kubewright.pki.names import Names

LOCAL = Addresses(advertise="127.0.0.11", loopback="127.0.0.11", etcd_loopback="127.0.0.11")


def test_addresses_of_the_api_server_are_in_the_order_of_kubeadm():
    config = CASES["custom-paths-sans"]

    found = names.api_server(config, addresses_of(config))

    assert found.ips == ("10.96.0.1", "10.98.0.11", "10.98.0.100", "192.0.2.10", "fd00::10")
    assert found.dns == tuple(sorted(found.dns))
    assert "api.example.com" in found.dns


def test_etcd_names_of_the_user_keep_their_case():
    etcd = Etcd(local=LocalEtcd(server_cert_sans=("Etcd.Example.COM",), peer_cert_sans=("192.0.2.1",)))
    config = configuration(etcd=etcd)

    assert names.etcd_server(config, addresses_of(config)).dns == ("Etcd.Example.COM", "localhost", "node1")
    assert names.etcd_peer(config, addresses_of(config)).ips == ("10.98.0.11", "127.0.0.1", "::1", "192.0.2.1")


def test_a_local_machine_has_its_own_loopback_once_and_keeps_localhost():
    config = configuration(advertise="127.0.0.11")

    found = names.etcd_server(config, LOCAL)

    assert found == Names(dns=("localhost", "node1"), ips=("127.0.0.11",))


def test_duplicate_addresses_are_written_once():
    config = configuration(api_server=APIServer(cert_sans=("10.98.0.11", "10.96.0.1", "node1", "NODE1", "::ffff:10.98.0.11")))

    found = names.api_server(config, addresses_of(config))

    assert found.ips == ("10.96.0.1", "10.98.0.11")
    assert found.dns.count("node1") == 1


@pytest.mark.parametrize(
    ("endpoint", "dns", "ips"),
    [
        ("", (), ()),
        ("lb.example.com:6443", ("lb.example.com",), ()),
        ("10.1.2.3:443", (), ("10.1.2.3",)),
        ("[fd00::1]:6443", (), ("fd00::1",)),
    ],
)
def test_the_endpoint_is_added_as_name_or_address(endpoint, dns, ips):
    config = configuration(control_plane_endpoint=endpoint)
    plain = names.api_server(configuration(), addresses_of(config))

    found = names.api_server(config, addresses_of(config))

    assert tuple(name for name in found.dns if name not in plain.dns) == dns
    assert tuple(ip for ip in found.ips if ip not in plain.ips) == ips


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("198.051.100.007", "198.51.100.7"),
        ("0000198.51.100.7", "198.51.100.7"),
        ("fd00:0000::00009", "fd00::9"),
        ("::ffff:010.1.02.3", "10.1.2.3"),
        ("FD00::0A", "fd00::a"),
    ],
)
def test_an_address_with_leading_zeros_is_an_address(text, address):
    etcd = Etcd(local=LocalEtcd(server_cert_sans=(text,), peer_cert_sans=(text,)))
    config = configuration(api_server=APIServer(cert_sans=(text,)), control_plane_endpoint=text, etcd=etcd)
    plain = names.api_server(configuration(), addresses_of(config))
    assert (names.api_server(config, addresses_of(config)).dns, names.api_server(config, addresses_of(config)).ips) == (
        plain.dns,
        (*plain.ips, address),
    )
    for found in (names.etcd_server(config, addresses_of(config)), names.etcd_peer(config, addresses_of(config))):
        assert (found.dns, found.ips[-1]) == (("localhost", "node1"), address)
    assert names.missing(Names(ips=(address,)), dns=(), ips=(text,)) == []


@pytest.mark.parametrize(
    ("subnets", "first"),
    [
        ("10.96.0.0/12", "10.96.0.1"),
        ("fd00:10:96::/112,10.96.0.0/16", "fd00:10:96::1"),
        ("10.96.0.0/16,fd00::/112", "10.96.0.1"),
        ("010.096.0.0/012", "10.96.0.1"),
    ],
)
def test_the_service_address_is_the_first_of_the_first_subnet(subnets, first):
    config = configuration(networking=Networking(service_subnet=subnets))

    assert names.api_server(config, addresses_of(config)).ips[0] == first


@pytest.mark.parametrize(
    ("endpoint", "host"), [("a:1", "a"), ("a", "a"), ("[::1]:6", "::1"), ("[::1]", "::1"), ("::1", "::1"), ("1.2.3.4:5", "1.2.3.4")]
)
def test_hosts_are_parsed_from_endpoints(endpoint, host):
    assert names.endpoint_host(endpoint) == host


@pytest.mark.parametrize(
    ("pattern", "name", "covered"),
    [
        ("a.example.com", "A.Example.com", True),
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "*.example.com", True),
        ("*.example.com", "b.a.example.com", False),
        ("*.example.com", "example.com", False),
        ("a.example.com", "*.example.com", False),
        ("*.a.example.com", "*.example.com", False),
    ],
)
def test_a_wildcard_matches_one_label(pattern, name, covered):
    assert names.covers(pattern, name) is covered


def test_missing_names_are_listed_in_order():
    wanted = Names(dns=("a", "b", "c"), ips=("10.0.0.1", "fd00::1"))

    assert names.missing(wanted, dns=["b", "*.x"], ips=["fd00:0::1"]) == ["a", "c", "10.0.0.1"]
    assert names.missing(wanted, dns=["c", "b", "a"], ips=["fd00::1", "10.0.0.1", "10.0.0.2"]) == []


@given(st.lists(st.one_of(st.text(max_size=10), st.ip_addresses().map(str)), max_size=8))
def test_extra_names_of_any_kind_are_sorted_into_two_sets(extra):
    found = names.of((), (), extra)

    assert list(found.dns) == sorted(set(found.dns))
    assert len(set(found.ips)) == len(found.ips)
    assert names.missing(found, dns=found.dns, ips=found.ips) == []
