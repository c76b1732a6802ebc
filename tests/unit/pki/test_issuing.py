"""The contents of a certificate: serial number, times, extensions, signature; and what cannot be put into one."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st
from pki_kit import DAY, SPECS, START, authority, client_spec, leaf

from kubewright.base.errors import CertificateError
from kubewright.base.randomness import SeededRandom
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.names import Names
from kubewright.pki.store import MemoryStore, load_authority

CA = authority()


def issued(**changes: object):
    return certificates.first(leaf(CA, **changes)[0], source="client")


def test_certificates_start_five_minutes_early_and_expire_one_period_after_the_start():
    found = issued(lifetime=30 * DAY)

    assert found.not_before == START - timedelta(minutes=5)
    assert found.not_after == START + 30 * DAY
    assert found.lifetime == timedelta(seconds=30 * 86400 + 300)


def test_fractions_of_a_second_are_dropped():
    key = keys.generate("ECDSA-P256")
    text = issuing.signed(client_spec(), key, CA, started=START + timedelta(microseconds=999_999), random=SeededRandom())

    assert certificates.first(text, source="client").not_after == START + 365 * DAY


def test_a_certificate_may_start_with_its_ca():
    key = keys.generate("ECDSA-P256")
    text = issuing.signed(client_spec(), key, CA, started=START + DAY, random=SeededRandom(), not_before=CA.certificate.not_before)

    assert certificates.first(text, source="client").not_before == CA.certificate.not_before


class _Zeros:
    def token_bytes(self, count):
        return bytes(count)

    def uniform(self):
        return 0.0


def test_a_serial_number_is_never_zero():
    key = keys.generate("ECDSA-P256")
    text = issuing.signed(client_spec(), key, CA, started=START, random=_Zeros())

    assert certificates.first(text, source="client").serial == 1


@given(st.integers())
def test_serial_numbers_have_63_bits_at_most(seed):
    assert 1 <= issuing._serial(SeededRandom(seed)) < 1 << 63


def test_serial_numbers_come_from_the_injected_randomness():
    key = keys.generate("ECDSA-P256")
    made = [issuing.signed(client_spec(), key, CA, started=START, random=SeededRandom(seed)) for seed in (1, 1, 2)]

    first, again, other = (certificates.first(text, source="client").serial for text in made)

    assert first == again != other


@pytest.mark.parametrize(
    ("algorithm", "digest"),
    [("ECDSA-P256", "ecdsa-with-SHA256"), ("ECDSA-P384", "ecdsa-with-SHA384"), ("RSA-2048", "sha256WithRSAEncryption")],
)
def test_the_signature_algorithm_follows_the_key_of_the_ca(algorithm, digest):
    signer = authority(algorithm=keys.Algorithm(algorithm))

    found = certificates.first(leaf(signer)[0], source="client").native.signature_algorithm_oid._name

    assert found == digest


def test_organisations_come_before_the_common_name():
    found = issued(organizations=("b", "a"))

    assert sorted(found.organizations) == ["a", "b"]
    assert [name for name, _ in found.subject] == ["organizationName", "organizationName", "commonName"]


def test_a_long_node_name_is_accepted():
    """Host names have up to 253 characters; RFC 5280 allows 64 in a common name, Go's X.509 any number."""
    name = "system:node:" + ".".join(["a" * 60] * 4)

    found = issued(common_name=name, organizations=("system:nodes",))

    assert found.common_name == name


def test_leaves_of_a_ca_without_key_identifier_have_none():
    key = keys.generate("ECDSA-P256")
    subject = issuing.subject_of("plain")
    builder = x509.CertificateBuilder(subject, subject, key.native.public_key(), 1, START, START + DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    text = builder.sign(key.native, key.signature_hash()).public_bytes(Encoding.PEM)
    signer = load_authority(MemoryStore({"ca.crt": text, "ca.key": key.pem()}), "ca")

    found = certificates.first(leaf(signer)[0], source="client")

    assert found.extensions == ("keyUsage", "extendedKeyUsage", "basicConstraints")
    assert found.issued_by(signer.certificate)


def test_a_ca_without_its_key_signs_nothing():
    store = MemoryStore({"ca.crt": CA.pem})
    keyless = load_authority(store, "ca")

    with pytest.raises(CertificateError, match=r"ca\.key is not here") as caught:
        leaf(keyless)
    assert "client" in caught.value.what


@pytest.mark.parametrize("lifetime", [timedelta(0), -DAY])
def test_a_period_of_zero_is_refused(lifetime):
    with pytest.raises(CertificateError, match="would expire before it is valid"):
        issued(lifetime=lifetime)


def test_a_period_beyond_the_calendar_is_refused():
    with pytest.raises(CertificateError, match="year 9999"):
        issued(lifetime=timedelta(days=3_000_000))


def test_a_name_that_is_not_ascii_is_refused():
    with pytest.raises(CertificateError, match="client cannot be issued") as caught:
        issued(names=Names(dns=("bücher.example.com",)))
    assert "SANs" in caught.value.remedy


def test_a_ca_is_self_signed():
    found = CA.certificate

    assert found.is_authority
    assert found.issued_by(found)
    assert found.common_name == SPECS["ca"].common_name == "kubernetes"
    assert certificates.chains_to(found, roots=[found])
