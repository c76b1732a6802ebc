"""Public key pins."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pki_cases import reference
from pki_kit import START, authority

from kubewright.base.errors import KubewrightError, UsageError
from kubewright.pki import pins
from kubewright.pki.pins import Pin, PinMismatch

ONE, OTHER = authority(), authority(seed=2)


def test_the_pin_equals_that_of_the_reference():
    known = reference("vectors.json")["ca_pin"]

    assert pins.pin(known["certificate_pem"].encode()) == known["pin"]


def test_pins_are_read_in_any_case_and_written_in_one():
    text = pins.pin(ONE.pem)

    assert str(Pin.parse(text.upper())) == text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "known type"),
        ("00" * 32, "known type"),
        ("md5:" + "00" * 16, "known type"),
        ("sha256:", "0 bytes"),
        ("sha256:" + "00" * 31, "31 bytes"),
        ("sha256:" + "00" * 33, "33 bytes"),
        ("sha256:" + "0" * 63, "not hexadecimal"),
        ("sha256:" + "zz" * 32, "not hexadecimal"),
        ("sha256:" + "０" * 64, "not hexadecimal"),
    ],
)
def test_an_invalid_pin_is_refused(text, reason):
    with pytest.raises(UsageError, match=reason):
        Pin.parse(text)


def test_any_certificate_of_a_bundle_may_be_the_pinned_one():
    bundle = ONE.pem + OTHER.pem

    assert pins.require(bundle, [Pin.parse(pins.pin(OTHER.pem))], server="https://a:6443", now=START) == OTHER.pem
    assert [str(pin) for pin in pins.of_bundle(bundle)] == [pins.pin(ONE.pem), pins.pin(OTHER.pem)]


def test_another_key_is_refused_and_both_pins_are_shown():
    with pytest.raises(PinMismatch, match="https://a:6443 is not the one you pinned") as caught:
        pins.require(ONE.pem, [Pin.parse(pins.pin(OTHER.pem))], server="https://a:6443", now=START)

    assert pins.pin(ONE.pem) in caught.value.detail
    assert pins.pin(OTHER.pem) in caught.value.detail
    assert "--print-join-command" in caught.value.remedy


def test_no_pins_pin_nothing():
    with pytest.raises(PinMismatch):
        pins.require(ONE.pem, [], server="https://a:6443", now=START)


@given(st.text())
def test_no_text_raises_outside_the_tree(text):
    with contextlib.suppress(KubewrightError):
        assert len(Pin.parse(text).digest) == 32
