"""Formats of single values: addresses, names, endpoints, image repositories, URLs, subnets - each with kubeadm's verdict."""

from __future__ import annotations

import contextlib
import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.apis import formats


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("010.000.0.0001", "10.0.0.1"),
        ("FD00::1", "fd00::1"),
        ("00001::1", "1::1"),
        ("::", "::"),
        ("::1.2.3.04", "::102:304"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::ffff:a00:1", "10.0.0.1"),
        ("10.0.0.256", None),
        ("10.0.0", None),
        ("10.0.0.1 ", None),
        ("١.2.3.4", None),
        ("fe80::1%eth0", None),
        ("fd00:::1", None),
        ("1::2::3", None),
        ("[::1]", None),
        ("", None),
        ("a.b", None),
        ("1" * 5000, None),
    ],
)
def test_addresses_may_have_leading_zeros_but_no_zone(text, address):
    found = formats.address(text)
    assert (str(found) if found else None) == address


@given(st.ip_addresses())
def test_every_address_is_read_back(address):
    expected = address if address.version == 4 else address.ipv4_mapped or address
    assert formats.address(str(address)) == expected


@given(st.text(max_size=40))
def test_no_text_breaks_a_format(text):
    formats.address(text)
    formats.is_port(text)
    formats.is_image_repository(text)
    formats.is_host_pattern(text)
    for reader in (formats.host_port, formats.url_scheme, formats.subnets):
        with contextlib.suppress(ValueError):
            reader(text)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a.b", ("a.b", "")),
        ("a.b:", ("a.b", "")),
        ("a.b:080", ("a.b", "080")),
        ("10.0.0.1:6443", ("10.0.0.1", "6443")),
        ("[fd00::1]:6443", ("fd00::1", "6443")),
        ("fd00::1", ("fd00::1", "")),
        ("[a.b]:1", ("a.b", "1")),
    ],
)
def test_an_endpoint_is_a_host_with_an_optional_port(text, split):
    assert formats.host_port(text) == split


@pytest.mark.parametrize(
    "text", ["", "A.b", "a_b", "a.b:0", "a.b:65536", "a.b:+1", "a.b:x", "[fd00::1]", "a:1:2", "[::1", "::1]:5", "https://a.b"]
)
def test_other_texts_are_no_endpoint(text):
    with pytest.raises(ValueError, match="must"):
        formats.host_port(text)


@pytest.mark.parametrize(
    ("name", "problems"),
    [
        ("a.b-c.1", 0),
        ("a" * 63 + ".b", 0),
        ("", 1),
        ("A", 1),
        ("a..b", 1),
        ("-a", 1),
        ("a" * 254, 1),
        ("a." * 130, 2),
        ("é", 1),
        ("a\n", 1),
    ],
)
def test_names_are_dns_subdomains(name, problems):
    assert len(formats.subdomain_problems(name)) == problems


@pytest.mark.parametrize(("name", "good"), [("*.a.b", True), ("a.b", True), ("*", False), ("*.", False), ("a.*.b", False), ("*a.b", False)])
def test_a_star_may_only_be_the_first_label(name, good):
    assert formats.is_host_pattern(name) is good


@pytest.mark.parametrize(
    ("repository", "good"),
    [
        ("registry.k8s.io", True),
        ("reg.local:5000/k8s", True),
        ("a_b__c/d-e", True),
        ("[fd00::1]:5000/x", True),
        ("A-B.c/d", True),
        ("Foo/BAR!", False),
        ("a:x/b", False),
        ("a/B", False),
        ("a//b", False),
        ("http://a", False),
        ("", False),
        ("a___b", False),
        ("a:5000/b:tag", False),
    ],
)
def test_image_repositories(repository, good):
    assert formats.is_image_repository(repository) is good


@pytest.mark.parametrize(
    ("text", "scheme"),
    [
        ("https://[fd00::1]:2379", "https"),
        ("HTTPS://a", "https"),
        ("unix://tcp://1.2.3.4:1", "unix"),
        ("unix:///run/x.sock", "unix"),
        ("a.b", ""),
        ("a:1x", "a"),
        ("/run/x", ""),
        ("", ""),
        ("http://[fe80::1%25en0]:1", "http"),
        ("http://u:p@h/", "http"),
        ("foo://a:1:2", "foo"),
        ("http://%41", None),
    ],
)
def test_urls_and_their_schemes(text, scheme):
    if scheme is None:
        with pytest.raises(ValueError):
            formats.url_scheme(text)
    else:
        assert formats.url_scheme(text) == scheme


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1:2379",
        "http://a:1x",
        "http://a b",
        "http://[::1",
        "http://a[1]",
        "http://[1.2.3.4]",
        ":a",
        "a\tb",
        "http://a/%zz",
        "a#%zz",
        "http://1:2:3",
    ],
)
def test_urls_that_go_refuses_are_refused(text):
    with pytest.raises(ValueError):
        formats.url_scheme(text)


@pytest.mark.parametrize(
    ("text", "networks"),
    [
        ("10.0.0.1/16", ["10.0.0.0/16"]),
        ("010.0.0.0/08", ["10.0.0.0/8"]),
        ("10.0.0.0/16,fd00::/112", ["10.0.0.0/16", "fd00::/112"]),
        ("::ffff:10.0.0.0/104", ["::ffff:a00:0/104"]),
    ],
)
def test_subnets_are_masked(text, networks):
    assert [str(network) for network in formats.subnets(text)] == networks


@pytest.mark.parametrize(
    "text", ["", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/16, fd00::/112", "10.0.0.0/16,", "fd00::%a/64", "a/8"]
)
def test_other_texts_are_no_subnets(text):
    with pytest.raises(ValueError):
        formats.subnets(text)


def test_addresses_of_services_are_counted_from_the_first_subnet():
    assert formats.service_address("10.96.0.0/12,fd00::/112", formats.API_SERVER_INDEX) == ipaddress.ip_address("10.96.0.1")
    assert formats.service_address("fd00::/112", formats.DNS_INDEX) == ipaddress.ip_address("fd00::a")
    with pytest.raises(ValueError, match="no address number 10"):
        formats.service_address("10.0.0.0/29", formats.DNS_INDEX)


def test_ipv4_addresses_mapped_into_ipv6_are_of_family_4():
    assert [formats.subnet_family(network) for network in formats.subnets("10.0.0.0/8,fd00::/8,::ffff:10.0.0.0/112")] == [4, 6, 4]
