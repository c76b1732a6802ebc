"""Base64 in one form."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.encoding import decode_base64


@given(st.binary(max_size=200), st.integers(1, 80))
def test_encoded_data_is_read_back_even_over_several_lines(content, width):
    text = base64.b64encode(content).decode()
    lines = [text[start : start + width] for start in range(0, len(text), width)]
    assert [decode_base64(form) for form in (text, text.encode(), "\r\n".join(lines), "\n".join(lines).encode())] == [content] * 4


@pytest.mark.parametrize(
    "text",
    [
        "AAAA=",
        "AAAA==",
        "AA=",
        "AAA",
        "AAA==",
        "A===",
        "=",
        "AA==AAAA",
        "AAB=",
        "AB==",
        "AA AA",
        " AAAA",
        "AA-_",
        "AA\x0bAA",
        "\u0661AAA",
        "\ud800AAA",
    ],
)
def test_every_other_form_is_refused(text):
    for form in (text, text.encode("utf-8", "surrogatepass")):
        with pytest.raises(ValueError, match=r"not base64|codec can't encode"):
            decode_base64(form)
