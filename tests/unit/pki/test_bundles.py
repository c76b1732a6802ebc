"""Reading certificates: bundles, chains, expiry, and the contents of a certificate."""

from __future__ import annotations

import ipaddress
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding
from pki_kit import DAY, START, authority, leaf

from kubewright.base.errors import CertificateError
from kubewright.pki import certificates, keys, pins
from kubewright.pki.encoding import pem
from kubewright.pki.names import Names

ONE, OTHER = authority(), authority(seed=2, common_name="other")


def test_every_certificate_of_a_bundle_is_read_in_order():
    key = keys.generate("ECDSA-P256")

    found = certificates.parse(ONE.pem + key.pem() + b"text\n" + OTHER.pem)

    assert [certificate.common_name for certificate in found] == ["kubernetes", "other"]
    assert b"".join(certificate.pem() for certificate in found) == ONE.pem + OTHER.pem


@pytest.mark.parametrize("text", [b"", b"text", keys.generate("ECDSA-P256").pem()])
def test_a_text_without_certificates_is_an_error(text):
    with pytest.raises(CertificateError, match=r"ca\.crt contains no certificate"):
        certificates.parse(text, source="ca.crt")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ONE.pem.replace(b"-----\nMI", b"-----\nA: b\n\nMI"), "headers"),
        (pem.encode(pem.CERTIFICATE, ONE.certificate.der + OTHER.certificate.der), "followed by"),
        (ONE.pem.replace(b"\n-----END", b"=\n-----END"), "not base64"),
    ],
)
def test_texts_that_decoders_read_differently_are_refused(text, reason):
    """Go's readers skip the first and the third, OpenSSL accepts half of the second."""
    for reader in (certificates.parse, lambda text: certificates.first(text, source="x"), pins.of_bundle):
        with pytest.raises(CertificateError, match=reason):
            reader(text + OTHER.pem)


def test_names_are_read_as_by_go():
    """Found by comparing with Go's decoder (tests/compat/test_decoders.py)."""
    key = keys.generate("ECDSA-P256")
    given = [
        x509.IPAddress(ipaddress.ip_address("::ffff:10.0.0.1")),
        x509.IPAddress(ipaddress.ip_address("fd00::1")),
        *map(x509.UniformResourceIdentifier, ("HTTPS://a/%7Ex", "urn:x#")),
    ]
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "n\u00e4me", x509.name._ASN1Type.T61String)])
    builder = x509.CertificateBuilder(name, name, key.native.public_key(), 1, START, START + DAY)
    made = builder.add_extension(x509.SubjectAlternativeName(given), critical=False).sign(key.native, hashes.SHA256())

    found = certificates.read(made.public_bytes(Encoding.DER), source="x")

    assert (found.names.ips, found.names.uris) == (("10.0.0.1", "fd00::1"), ("https://a/%7Ex", "urn:x"))
    assert found.organizations == ("n\u00c3\u00a4me",)
    assert found.public_key == key.public_der()


def test_one_bad_certificate_invalidates_the_bundle():
    with pytest.raises(CertificateError, match=r"the certificate in ca\.crt cannot be read"):
        certificates.parse(ONE.pem + b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", source="ca.crt")


def test_names_of_a_certificate_are_read():
    names = Names(dns=("a.example.com", "*.b.example.com"), ips=("192.0.2.1", "fd00::1"))

    found = certificates.first(leaf(ONE, names=names, organizations=("o",))[0], source="client")

    assert (found.names.dns, found.names.ips) == (names.dns, names.ips)
    assert (found.common_name, found.organizations, found.usages) == ("somebody", ("o",), ("clientAuth",))
    assert (found.key_kind, found.is_authority) == ("ECDSA-P256", False)
    assert dict(found.issuer)["commonName"] == "kubernetes"
    assert "commonName=somebody" in found.describe()


def test_a_chain_requires_the_key_of_the_signer_and_not_only_its_name():
    impostor = authority(seed=5)
    found = certificates.first(leaf(ONE)[0], source="client")

    assert certificates.chains_to(found, roots=[OTHER.certificate, ONE.certificate])
    assert not certificates.chains_to(found, roots=[impostor.certificate])
    assert not certificates.chains_to(found, roots=[])


def test_a_leaf_is_no_intermediate():
    root = ONE.certificate
    fake_text, fake_key = leaf(ONE, common_name="kubernetes")
    fake = certificates.first(fake_text, source="fake")

    assert not certificates.chains_to(root, roots=[fake], intermediates=[fake])
    assert fake_key.kind == "ECDSA-P256"


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (timedelta(0), "expires in 365 d"),
        (365 * DAY - timedelta(hours=5), "expires in 5 h"),
        (365 * DAY - timedelta(minutes=5, seconds=3), "expires in 5 min"),
        (365 * DAY, "expires in 0 s"),
        (365 * DAY + timedelta(seconds=7), "expired 7 s ago"),
        (-DAY, "not valid for another 23 h"),
    ],
)
def test_expiry_is_shown_in_its_largest_unit(offset, text):
    found = certificates.first(leaf(ONE)[0], source="client")

    assert certificates.expiry(found, START + offset) == text
