"""Reading requests as leniently as Go's crypto/x509, with all their contents."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))

from controllers_kit import KEY, extension, rdn, request, san
from pki_kit import authority

from kubewright.base.errors import CertificateError
from kubewright.pki.encoding import der, pem, uris
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import Names
from kubewright.pki.requests import csr, request_details, request_signing

CN, ORG = "2.5.4.3", "2.5.4.10"
read = request_details.read


def test_a_request_of_a_kubelet_is_read_completely():
    text = csr.node_serving_request("a", PrivateKey(KEY), names=Names(dns=("a.example",), ips=("10.0.0.1", "fd00::1")))
    found = read(text)
    assert (found.common_name, found.organizations) == ("system:node:a", ("system:nodes",))
    assert (found.names.dns, found.names.addresses, found.names.others) == (("a.example",), ("10.0.0.1", "fd00::1"), ())
    assert [one.oid for one in found.extensions] == [request_details.SUBJECT_ALTERNATIVE_NAME]
    assert request_signing.signature_valid(found)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (der.encode(der.PRINTABLE_STRING, b"*a&b"), "*a&b"),
        (der.encode(der.T61_STRING, b"\xe9"), "\u00e9"),
        (der.encode(der.BMP_STRING, "\u00e9\u20ac".encode("utf-16-be")), "\u00e9\u20ac"),
        (der.encode(der.BMP_STRING, b"\0a\0\0"), "a"),
        (der.encode(der.NUMERIC_STRING, b"1 2"), "1 2"),
        (der.encode(der.IA5_STRING, b"a@b"), "a@b"),
        (der.encode(0x1B, b"general"), None),
        (der.encode(der.INTEGER, b"\5"), None),
    ],
)
def test_every_string_type_in_a_subject_is_read(value, text):
    found = read(request(sets=[rdn((ORG, value)), rdn((CN, "x"))]))
    assert found.organizations == (() if text is None else (text,))
    assert found.subject[0][0].text == text


@pytest.mark.parametrize(
    "value",
    [
        der.encode(der.PRINTABLE_STRING, b"a@b"),
        der.encode(der.UTF8_STRING, b"\xff"),
        der.encode(der.BMP_STRING, b"\xd8\0\0a"),
        b"\x0c\x05a",
    ],
)
def test_a_string_that_violates_its_type_is_refused(value):
    with pytest.raises(CertificateError):
        read(request(sets=[rdn((ORG, value))]))


def test_several_attributes_in_one_set_and_the_last_common_name_are_read():
    found = read(request(sets=[rdn((ORG, "a"), (CN, "first")), rdn((ORG, "b")), rdn((CN, "last"))]))
    assert (found.organizations, found.common_name) == (("a", "b"), "last")


def test_every_kind_of_alternative_name_is_read():
    names = [
        ("dns", "*.a"),
        ("dns", "*.a"),
        ("email", "a@b"),
        ("uri", "HTTPS://h/%7Ex#"),
        ("ip", b"\0" * 10 + b"\xff\xff\1\2\3\4"),
        (0xA0, b""),
        (0xA4, b""),
        (0xA2, b"x"),
    ]
    found = read(request(names=names)).names
    assert (found.dns, found.emails, found.uris) == (("*.a", "*.a"), ("a@b",), ("https://h/%7Ex",))
    assert found.ips == (b"\1\2\3\4",)
    assert found.others == ("other name", "directory name", "kind 0xa2")


@pytest.mark.parametrize(
    "name", [("dns", b"\xc3\xa9"), ("email", b"\xff"), ("uri", "http://h:x/"), ("uri", "http://a..b/"), ("ip", b"123")]
)
def test_alternative_names_that_go_refuses_are_refused(name):
    with pytest.raises(CertificateError):
        read(request(names=[name]))


def test_an_explicit_default_and_unknown_extensions_are_accepted():
    found = read(request(extensions=[extension("1.2.3.4", b"xx"), extension("2.5.29.15", b"", der.encode(der.BOOLEAN, b"\0"))]))
    assert [(one.oid, one.critical) for one in found.extensions] == [("1.2.3.4", False), ("2.5.29.15", False)]


def test_a_duplicate_extension_is_refused():
    with pytest.raises(CertificateError, match="twice"):
        read(request(extensions=[san(("dns", "a")), san(("dns", "b"))]))


ONE = request()
OTHER = request(subject=[(CN, "other")])


OPENSSL = b"Certificate Request:\n    Data:\n        Version: 1 (0x0)\n        Subject: CN = x\n"  # as `openssl req -text` begins
EMPTY = pem.encode("X", b"")


def surplus(text, count=1):
    """Add padding that Python's base64 accepts and Go's does not: Go skips the block."""
    return text.replace(b"\n-----END", b"=" * count + b"\n-----END")


@pytest.mark.parametrize(
    "text",
    [
        b"text before\n" + ONE + b"text after",
        OPENSSL + ONE,
        b"-----END X-----\n" + ONE,
        ONE.replace(b"\n", b"\r\n"),
        ONE.replace(b"-----\nMI", b"-----\nProc-Type: a\nOther: b\n\nMI"),
        ONE.replace(b"-----\nMI", b"-----\nProc-Type: a\nMI"),
        ONE.replace(b"\nMI", b" \t\n M\tI"),
        ONE.rstrip(b"\n"),
    ],
)
def test_text_around_the_one_block_is_skipped(text):
    assert read(text).common_name == "system:node:a"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "contains no certificate request"),
        (authority().pem, "contains no certificate request"),
        (b"x" + ONE, "BEGIN line"),
        (ONE.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST"), "contains no certificate request"),
        (ONE.replace(b"-----END", b"-----ENDE"), "has no end"),
        (ONE.replace(b"REQUEST-----\nMI", b"REQUEST----\nMI"), "BEGIN line"),
        (pem.encode("PRIVATE KEY", b"x") + ONE, "2 BEGIN lines"),
        (ONE + OTHER, "2 BEGIN lines"),
        (ONE + b"-----BEGIN", "2 BEGIN lines"),
        (surplus(ONE) + OTHER, "2 BEGIN lines"),
        (surplus(ONE, 5), "not base64"),
        (ONE.replace(b"\n-----END", b"\v\n-----END"), "not base64"),
        (ONE.replace(b"\n", b"\r"), "BEGIN line"),
        (b"-----BEGIN X-----\n" + ONE, "2 BEGIN lines"),
        (EMPTY + ONE, "2 BEGIN lines"),
        (b"-----BEGIN X-----\n@@@\n-----END X-----\n" + ONE, "2 BEGIN lines"),
        (ONE.replace(b"-----\nMI", b"-----\nSubject: -----BEGIN X-----\n\nMI"), "2 BEGIN lines"),
        (b"-----BEGIN CERTIFICATE REQUEST-----\nA: b\n-----END CERTIFICATE REQUEST-----\n", "holds only headers"),
        (pem.encode(pem.REQUEST, b""), "cannot be read"),
        (pem.encode(pem.REQUEST, pem.blocks(ONE, source="it")[0].der + b"\0"), "cannot be read"),
        (b" " * 65_536 + ONE, "larger than 65536 bytes"),
    ],
)
def test_anything_but_a_single_request_is_refused(text, reason):
    with pytest.raises(CertificateError, match=reason):
        read(text)


def test_a_signature_by_another_key_is_detected():
    assert not request_signing.signature_valid(read(request(good=False)))


_DER = pem.blocks(request(names=[("dns", "a"), ("uri", "https://a/")]), source="it")[0].der


@given(st.lists(st.tuples(st.integers(0, len(_DER) - 1), st.integers(0, 255)), max_size=4), st.integers(0, len(_DER)))
def test_damaged_requests_are_read_or_refused(changes, end):
    damaged = bytearray(_DER)
    for place, value in changes:
        damaged[place] = value
    for content in (bytes(damaged), bytes(damaged[:end])):
        try:
            request_signing.signature_valid(read(pem.encode(pem.REQUEST, content)))
        except CertificateError:
            continue


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content):
    for text in (content, b"-----BEGIN CERTIFICATE REQUEST-----\n" + base64.b64encode(content) + b"\n-----END CERTIFICATE REQUEST-----\n"):
        with pytest.raises(CertificateError):
            read(text)


@pytest.mark.parametrize(
    ("given_text", "host", "written"),
    [
        ("HTTPS://h/x?", "h", "https://h/x?"),
        ("urn:x#", "", "urn:x"),
        ("http://", "", "http:"),
        ("//h", "h", "//h"),
        ("https://u:p%40@h:80/a b", "h:80", "https://u:p%40@h:80/a%20b"),
        ("x:http://[fe80::1%25en0]:80/", "", "x:http://[fe80::1%25en0]:80/"),
        ("http://[fe80::1%25en0]:80/", "[fe80::1%en0]:80", "http://[fe80::1%25en0]:80/"),
        ("*", "", "*"),
    ],
)
def test_uris_are_formatted_as_by_go(given_text, host, written):
    assert uris.parse(given_text) == (host, written)


@pytest.mark.parametrize("text", ["http://h:x/", "http://a b/", ":x", "http://[1.2.3.4]/", "%zz", "http://%41/", "a\x7f", "a b:c/d"])
def test_uris_that_go_refuses_are_refused(text):
    with pytest.raises(uris.URIError):
        uris.parse(text)


@given(st.text(alphabet="aA:/?#[]@%25~.h*<", max_size=16))
def test_written_requests_are_read_back_unchanged(text):
    try:
        found = uris.parse(text)
    except uris.URIError:
        return
    assert uris.parse(found.text).text == found.text
