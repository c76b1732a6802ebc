"""Sealed values of kubeadm-certs."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pki_cases import reference

from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.randomness import SeededRandom
from kubewright.pki.encryption import sealing

KNOWN = reference("vectors.json")["kubeadm_certs"]
KEY = sealing.parse_key(KNOWN["certificate_key"])


@pytest.mark.parametrize("name", KNOWN["values"])
def test_the_values_of_the_reference_are_read(name):
    value = KNOWN["values"][name]

    assert sealing.unseal(base64.b64decode(value["secret_value_base64"]), KEY, name=name).decode() == value["plaintext"]


@given(st.binary(max_size=200))
def test_sealed_values_are_unsealed(content):
    sealed = sealing.seal(content, KEY, random=SeededRandom())

    assert len(sealed) == 12 + len(content) + 16
    assert sealing.unseal(sealed, KEY, name="ca.key") == content


@given(st.binary(max_size=60))
def test_unsealed_values_are_refused(content):
    with pytest.raises(CertificateError, match=r"ca\.key of the Secret kubeadm-certs"):
        sealing.unseal(content, KEY, name="ca.key")


def test_one_changed_bit_is_refused():
    sealed = bytearray(sealing.seal(b"content", KEY, random=SeededRandom()))
    for index in range(len(sealed)):
        changed = bytes([*sealed[:index], sealed[index] ^ 1, *sealed[index + 1 :]])
        with pytest.raises(CertificateError):
            sealing.unseal(changed, KEY, name="ca.key")


def test_another_key_is_refused_with_a_hint():
    sealed = sealing.seal(b"content", KEY, random=SeededRandom())

    with pytest.raises(CertificateError, match="not the one it was encrypted with") as caught:
        sealing.unseal(sealed, bytes(32), name="ca.key")
    assert "upload-certs" in caught.value.remedy


def test_a_new_key_has_64_digits():
    key = sealing.new_key(SeededRandom())

    assert len(key) == 64
    assert len(sealing.parse_key(key)) == 32


@pytest.mark.parametrize("text", ["", "00" * 31, "00" * 33, "zz" * 32, "secret"])
def test_a_bad_key_is_refused_without_quoting_it(text):
    with pytest.raises(UsageError) as caught:
        sealing.parse_key(text)
    assert not text or text not in str(caught.value)
