"""Quantities: grammar, comparison, and the canonical text (apimachinery v0.36: pkg/api/resource)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubewright.base.quantity import Form, Quantity


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("100m", "100m"),
        ("0.1", "100m"),
        ("1000m", "1"),
        ("4000m", "4"),
        ("1.5", "1500m"),
        (".5", "500m"),
        ("5.", "5"),
        ("1000", "1k"),
        ("1500", "1500"),
        ("1e3", "1e3"),
        ("12E2", "1200"),
        ("1E", "1E"),
        ("16Mi", "16Mi"),
        ("1024Ki", "1Mi"),
        ("1.5Ki", "1536"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("1.5Gi", "1536Mi"),
        ("-1Gi", "-1Gi"),
        ("+5", "5"),
        ("-250m", "-250m"),
        ("1n", "1n"),
        ("0.1n", "1n"),
        ("1000u", "1m"),
        ("170Mi", "170Mi"),
        ("2000000", "2M"),
    ],
)
def test_text_has_one_canonical_form(text, canonical):
    assert str(Quantity.parse(text)) == canonical
    assert Quantity.parse(canonical) == Quantity.parse(text)


@pytest.mark.parametrize("text", ["", ".", "m", "1 Gi", "1K", "1ki", "1.2.3", "--1", "1e", "1e3k", "0x10", "1Gii", "٣", "1_0"])
def test_invalid_quantities_are_refused(text):
    with pytest.raises(ValueError, match="is not a quantity"):
        Quantity.parse(text)


@pytest.mark.parametrize(
    ("quantity", "text"),
    [
        (Quantity.of_bytes(16777216), "16Mi"),
        (Quantity.of_bytes(76224326324), "76224326324"),
        (Quantity.of_bytes(0), "0"),
        (Quantity.of_bytes(1000), "1k"),
        (Quantity.of_bytes(1025), "1025"),
        (Quantity.of_bytes(1 << 60), "1Ei"),
        (Quantity.of_millis(4000), "4"),
        (Quantity.of_millis(3920), "3920m"),
        (Quantity.of(1000), "1k"),
        (Quantity.of(110), "110"),
    ],
)
def test_quantities_of_numbers_have_the_text_of_node_status(quantity, text):
    assert str(quantity) == text


def test_comparison_and_arithmetic_are_exact_and_independent_of_the_form():
    assert Quantity.parse("1Ki") == Quantity.parse("1024")
    assert hash(Quantity.parse("1Ki")) == hash(Quantity.parse("1024"))
    assert Quantity.parse("1023") < Quantity.parse("1Ki") <= Quantity.parse("1.024k")
    assert str(Quantity.parse("1Gi") - Quantity.parse("100Mi")) == "924Mi"
    assert str(Quantity.parse("250m") + Quantity.parse("1")) == "1250m"
    assert Quantity.parse("1500m").value == 2
    assert Quantity.parse("1").millis == 1000
    assert not Quantity.parse("0Gi")
    assert Quantity.parse("1Ki") != 1024


@given(st.integers(-(10**30), 10**30), st.sampled_from(Form))
@example(15_624_999_999_999_999_999_000_000_001, Form.BINARY)
@example(9_223_372_036_854_775_808_000_000_001, Form.BINARY)
@example(-15_624_999_999_999_999_999_000_000_001, Form.BINARY)
def test_the_text_of_any_decimal_quantity_is_read_back_equal(nanos, form):
    quantity = Quantity(nanos, form)
    if form is Form.BINARY:
        text = str(quantity)
        most = (1 << 63) - 1 if text.endswith("i") else 10**30  # what has a binary suffix is no larger once it is read, as in Go
        assert Quantity.parse(text).value in {max(-most, min(most, one)) for one in (quantity.value, -Quantity(-nanos).value)}
    else:
        assert Quantity.parse(str(quantity)) == quantity
        assert str(Quantity.parse(str(quantity))) == str(quantity)


@given(st.integers(0, (1 << 63) - 1))
def test_the_text_of_any_number_of_bytes_is_read_back_equal(count):
    assert Quantity.parse(str(Quantity.of_bytes(count))).value == count


@given(st.text(alphabet="0123456789.+-eEinumkKMGTP ", max_size=12))
def test_any_text_is_a_quantity_or_a_value_error(text):
    try:
        quantity = Quantity.parse(text)
    except ValueError:
        return
    assert Quantity.parse(str(quantity)).value == quantity.value


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("7Ei", "7Ei"),
        ("8Ei", "9223372036854775807"),
        ("-10Ei", "-9223372036854775807"),
        ("10E", "10E"),
        ("12345678901234567890", "12345678901234567890"),
    ],
)
def test_binary_amounts_beyond_64_bits_are_cut(text, written):
    assert str(Quantity.parse(text)) == written
