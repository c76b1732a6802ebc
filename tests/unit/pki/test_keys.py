"""Private keys: kinds, PEM forms, reading foreign keys, generating several at once."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat

from kubewright.base.errors import CertificateError
from kubewright.pki import keys
from kubewright.pki.encoding import pem
from kubewright.pki.keys import Algorithm, KeyPool

FORMS = [
    ("RSA-2048", "RSA PRIVATE KEY"),
    ("RSA-3072", "RSA PRIVATE KEY"),
    ("ECDSA-P256", "EC PRIVATE KEY"),
    ("ECDSA-P384", "EC PRIVATE KEY"),
]


@pytest.mark.parametrize(("algorithm", "label"), FORMS)
def test_a_key_is_written_in_its_traditional_form_and_read_back(algorithm, label):
    key = keys.generate(algorithm)
    found = pem.blocks(key.pem(), source="key")

    assert [block.label for block in found] == [label]
    assert key.kind == algorithm
    assert keys.load(key.pem(), source="key").public_der() == key.public_der()
    assert pem.blocks(key.public_pem(), source="key")[0].label == "PUBLIC KEY"
    assert keys.load_public(key.public_pem(), source="key") == [key.public_der()]


def test_the_list_of_algorithms_equals_that_of_kubeadm():
    assert [algorithm.value for algorithm in Algorithm] == ["RSA-2048", "RSA-3072", "RSA-4096", "ECDSA-P256", "ECDSA-P384"]


@pytest.mark.parametrize(("algorithm", "digest"), [("RSA-2048", "sha256"), ("ECDSA-P256", "sha256"), ("ECDSA-P384", "sha384")])
def test_the_signature_digest_follows_the_key(algorithm, digest):
    assert keys.generate(algorithm).signature_hash().name == digest


def test_an_unknown_algorithm_is_refused():
    with pytest.raises(CertificateError) as caught:
        keys.generate("ED25519")
    assert "ED25519" in caught.value.what
    assert "ECDSA-P384" in caught.value.remedy


def test_many_keys_are_returned_in_the_requested_order_and_none_twice():
    wanted = ["RSA-2048", "ECDSA-P256", "RSA-2048", "ECDSA-P384", "ECDSA-P256"]

    with KeyPool() as pool:
        for algorithm in wanted:
            pool.reserve(algorithm)
        made = [pool.take(algorithm) for algorithm in wanted]

    assert [key.kind for key in made] == wanted
    assert len({key.public_der() for key in made}) == 5


def test_a_pool_makes_unreserved_keys_too():
    with KeyPool(threads=1) as pool:
        pool.reserve("RSA-2048")
        found = [pool.take("RSA-2048"), pool.take("ECDSA-P256")]

    assert [key.kind for key in found] == ["RSA-2048", "ECDSA-P256"]


def test_a_pool_that_is_closed_twice_is_closed():
    pool = KeyPool()
    pool.reserve("RSA-2048", 2)
    pool.close()
    pool.close()

    assert pool.take("ECDSA-P256").kind == "ECDSA-P256"


def test_a_pkcs8_key_is_read():
    native = ec.generate_private_key(ec.SECP256R1())
    text = native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    assert keys.load(text, source="key").kind == "ECDSA-P256"


def test_parameters_before_the_key_are_skipped():
    """`openssl ecparam -genkey` writes them."""
    key = keys.generate("ECDSA-P256")
    text = pem.encode("EC PARAMETERS", b"\x06\x08*\x86H\xce=\x03\x01\x07") + key.pem()

    assert keys.load(text, source="key").public_der() == key.public_der()


def test_an_encrypted_key_is_refused_with_a_hint():
    native = ec.generate_private_key(ec.SECP256R1())
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        text = native.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"secret"))
        with pytest.raises(CertificateError, match=r"ca\.key is protected by a password") as caught:
            keys.load(text, source="ca.key")
        assert "without a password" in caught.value.remedy


@pytest.mark.parametrize("text", [b"", b"hello", pem.encode("CERTIFICATE", b"x"), pem.encode("PRIVATE KEY", b"x")])
def test_an_invalid_key_is_refused_with_its_file_name(text):
    with pytest.raises(CertificateError, match=r"ca\.key"):
        keys.load(text, source="ca.key")


def test_a_key_of_another_family_is_refused():
    native = ed25519.Ed25519PrivateKey.generate()
    text = native.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    with pytest.raises(CertificateError, match="neither RSA nor ECDSA"):
        keys.load(text, source="ca.key")


@pytest.mark.parametrize("number", ["p", "q", "d", "dmp1", "dmq1", "iqmp"])
def test_an_inconsistent_rsa_key_is_refused(number):
    key = keys.generate("RSA-2048")
    value = getattr(key.native.private_numbers(), number)
    width = (value.bit_length() + 7) // 8
    block = pem.blocks(key.pem(), source="key")[0]
    text = pem.encode(block.label, block.der.replace(value.to_bytes(width), (value ^ 2).to_bytes(width)))

    with pytest.raises(CertificateError, match="its numbers are inconsistent"):
        keys.load(text, source="ca.key")


def test_a_key_is_never_shown():
    key = keys.generate("ECDSA-P256")

    assert repr(key) == "PrivateKey(ECDSA-P256)"
