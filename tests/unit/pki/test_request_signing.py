"""Certificates as kube-controller-manager issues them, read back by the X.509 library (v1.36: pkg/controller/certificates/authority)."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))

from controllers_kit import CLIENT_USAGES, NOW, authority, authority_files, extension, rdn, request

from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.randomness import SeededRandom
from kubewright.pki.encoding import der
from kubewright.pki.requests import request_details, request_signing
from kubewright.pki.requests.request_signing import Period, SeveralCertificates, load_authority

ORG, CN = "2.5.4.10", "2.5.4.3"
VALID = Period(not_before=NOW - timedelta(minutes=5), not_after=NOW + timedelta(hours=1))


def issue(text: bytes | None = None, *, usages=CLIENT_USAGES, by=None, valid=VALID, random=None) -> x509.Certificate:
    details = request_details.read(request() if text is None else text)
    made = request_signing.issue(
        request_signing.verified(details), authority=by or authority(), usages=usages, valid=valid, random=random or SeededRandom(1)
    )
    return x509.load_pem_x509_certificate(made)


def test_a_node_certificate_has_the_expected_fields():
    made = issue()
    assert [(one.oid._name, one.critical) for one in made.extensions] == [
        ("keyUsage", True),
        ("extendedKeyUsage", False),
        ("basicConstraints", True),
        ("authorityKeyIdentifier", False),
    ]
    assert made.subject.rfc4514_string() == "CN=system:node:a,O=system:nodes"
    assert made.version is x509.Version.v3
    assert made.extensions.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(ca=False, path_length=None)
    assert (made.not_valid_before_utc, made.not_valid_after_utc) == (
        VALID.not_before.replace(microsecond=0),
        VALID.not_after.replace(microsecond=0),
    )
    made.verify_directly_issued_by(authority().certificate.native)


def test_serial_numbers_have_128_bits():
    class Ones:
        def token_bytes(self, count):
            return b"\xff" * count

    class Zeros:
        def token_bytes(self, count):
            return b"\0" * count

    assert issue(random=Ones()).serial_number == (1 << 128) - 1
    assert issue(random=Zeros()).serial_number == 1


@pytest.mark.parametrize(
    ("usages", "bits", "extended"),
    [
        (("signing", "digital signature"), {"digital_signature"}, []),
        (("client auth", "server auth"), set(), ["serverAuth", "clientAuth"]),
        (("s/mime", "email protection"), set(), ["emailProtection"]),
        (("cert sign", "crl sign", "key agreement", "decipher only"), {"key_cert_sign", "crl_sign", "key_agreement", "decipher_only"}, []),
        (tuple(request_signing.KEY_USAGES)[:7], {"digital_signature", "content_commitment", "key_encipherment", "data_encipherment",
                                                 "key_agreement", "key_cert_sign"}, []),
        ((), set(), []),
    ],
)  # fmt: skip
def test_usages_are_those_of_the_spec(usages, bits, extended):
    made = issue(usages=usages)
    names = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
    )
    found = {one.oid._name: one.value for one in made.extensions}
    assert ("keyUsage" in found) is bool(bits)
    assert ("extendedKeyUsage" in found) is bool(extended)
    if bits:
        usage = found["keyUsage"]
        seen = {name for name in names if getattr(usage, name)} | (
            {"decipher_only"} if usage.key_agreement and usage.decipher_only else set()
        )
        assert seen == bits
    assert [one._name for one in found.get("extendedKeyUsage", ())] == extended


def test_encipher_only_without_key_agreement_is_written_as_by_go():
    made = issue(usages=("encipher only",))
    raw = made.tbs_certificate_bytes
    assert der.encode(der.BIT_STRING, b"\0\x01") in raw


def test_the_subject_is_rebuilt_from_known_attributes():
    text = request(
        sets=[
            rdn(("0.9.2342.19200300.100.1.1", "lost")),
            rdn((CN, "first"), ("2.5.4.5", "77")),
            rdn(("2.5.4.11", "unit")),
            rdn(("2.5.4.17", "12345")),
            rdn(("2.5.4.9", "street")),
            rdn(("2.5.4.7", "town")),
            rdn(("2.5.4.8", "province")),
            rdn((ORG, "b")),
            rdn((ORG, "a")),
            rdn(("2.5.4.6", "DE")),
            rdn((CN, "l\u00e4st")),
        ]
    )
    made = issue(text).subject
    assert [[(one.oid.dotted_string, one.value) for one in part] for part in made.rdns] == [
        [("2.5.4.6", "DE")],
        [("2.5.4.8", "province")],
        [("2.5.4.7", "town")],
        [("2.5.4.9", "street")],
        [("2.5.4.17", "12345")],
        [(ORG, "a"), (ORG, "b")],
        [("2.5.4.11", "unit")],
        [(CN, "l\u00e4st")],
        [("2.5.4.5", "77")],
    ]


def test_alternative_names_are_copied_and_every_other_extension_is_dropped():
    text = request(
        names=[("uri", "HTTPS://h/"), ("ip", b"\0" * 10 + b"\xff\xff\1\2\3\4"), ("email", "a@b"), ("dns", "b"), ("dns", "b"), (0xA0, b"")],
        extensions=[extension("1.2.3.4", b"x"), extension("2.5.29.19", der.encode(der.SEQUENCE, der.encode(der.BOOLEAN, b"\xff")))],
    )
    made = issue(text)
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert not names.critical
    assert [str(one.value) for one in names.value] == ["b", "b", "a@b", "1.2.3.4", "https://h/"]
    assert len(made.extensions) == 5
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_without_a_subject_the_alternative_names_are_critical():
    made = issue(request(sets=[rdn(("1.2.3.4", "unknown"))], names=[("dns", "a")]))
    assert made.subject.rdns == []
    assert made.extensions.get_extension_for_class(x509.SubjectAlternativeName).critical


def test_times_after_2049_are_written_as_generalized_time():
    ends = datetime(2050, 1, 1, tzinfo=UTC)
    assert issue(valid=Period(not_before=NOW, not_after=ends)).not_valid_after_utc == ends


def test_a_certificate_with_equal_subject_and_issuer_has_no_authority_key_id():
    made = issue(request(sets=[rdn((CN, "system:node:a"))]), by=authority(name="system:node:a"))
    # The library writes UTF8String, Go and we PrintableString: the names differ in bytes, so the identifier is
    # present.
    assert any(one.oid._name == "authorityKeyIdentifier" for one in made.extensions)
    assert [one.oid._name for one in issue(by=authority(identifier=False)).extensions] == [
        "keyUsage",
        "extendedKeyUsage",
        "basicConstraints",
    ]


def test_a_request_with_a_wrong_signature_is_not_signed():
    with pytest.raises(CertificateError):
        issue(request(good=False))


def _request_by(key, *, digest=None, **options: object) -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    return x509.CertificateSigningRequestBuilder(name).sign(key, digest, **options).public_bytes(Encoding.PEM)


RSA = rsa.generate_private_key(65537, 2048)
PSS = padding.PSS(padding.MGF1(hashes.SHA256()), 32)


@pytest.mark.parametrize(
    "text",
    [
        _request_by(RSA, digest=hashes.SHA256()),
        _request_by(RSA, digest=hashes.SHA512()),
        _request_by(RSA, digest=hashes.SHA256(), rsa_padding=PSS),
        _request_by(ec.generate_private_key(ec.SECP384R1()), digest=hashes.SHA384()),
        _request_by(ec.generate_private_key(ec.SECP224R1()), digest=hashes.SHA256()),
        _request_by(ed25519.Ed25519PrivateKey.generate()),
    ],
)
def test_every_kind_of_key_that_go_supports_is_verified(text):
    made = issue(text)
    assert made.public_key() == x509.load_pem_x509_csr(text).public_key()


@pytest.mark.parametrize("key", [RSA, ec.generate_private_key(ec.SECP384R1()), ed25519.Ed25519PrivateKey.generate()])
def test_every_kind_of_ca_signs(key):
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - timedelta(days=1), NOW + timedelta(days=1))
    made = builder.sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    files = made.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    issue(by=load_authority(*files, source="ca.crt")).verify_directly_issued_by(made)


def test_the_pair_of_a_ca_must_be_one_certificate_and_its_key():
    certificate, key = authority_files()
    other, _ = authority_files(name="other")
    with pytest.raises(SeveralCertificates):
        load_authority(certificate + other, key, source="ca.crt")
    with pytest.raises(CertificateMismatch):
        load_authority(other, key, source="ca.crt")
    for broken in ((b"", key), (certificate, b""), (certificate, key[:200]), (certificate[:200], key)):
        with pytest.raises(CertificateError):
            load_authority(*broken, source="ca.crt")
