"""How names that are not UTF-8 are shown."""

from __future__ import annotations

import io
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.messages import ESCAPING, each_text, printable, without_controls


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("é", "é"),
        (os.fsdecode(b"caf\xe9"), r"caf\xe9"),
        (os.fsdecode(b"\x80\xff"), r"\x80\xff"),
        ("half \ud83d", r"half \ud83d"),
    ],
)
def test_bytes_that_are_no_utf_8_are_shown_as_numbers(text, shown):
    assert printable(text) == shown


@given(st.binary())
def test_every_name_can_be_written_and_what_is_utf_8_stays(raw):
    shown = printable(os.fsdecode(raw))
    shown.encode()
    try:
        assert shown == raw.decode()
    except UnicodeDecodeError:
        assert shown != os.fsdecode(raw)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "koi8-r"])
def test_a_stream_writes_characters_that_its_encoding_lacks(encoding):
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding=encoding, errors=ESCAPING)
    stream.write("a\udce9 \u2026 \U0001f600")
    stream.flush()
    assert raw.getvalue().decode(encoding) == ("a\\xe9 \u2026 \U0001f600" if encoding == "utf-8" else "a\\xe9 \\u2026 \\U0001f600")


def test_texts_are_escaped_wherever_they_are():
    value = {"a": ["x", {"b": "y"}, 1, None], "c": ("z",)}
    assert each_text(value, str.upper) == {"a": ["X", {"b": "Y"}, 1, None], "c": ["Z"]}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc\r\nd", "a\tb\nc\r\nd"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("\x1b[8mhidden\x1b[0m", "\\u001b[8mhidden\x1b[0m"),
        ("over\rwritten", "over\\u000dwritten"),
        ("\x9b2J\x7f\0", r"\u009b2J\u007f\u0000"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("kubewright \u00e9 \u2026 \U0001f600", "kubewright \u00e9 \u2026 \U0001f600"),
    ],
)
def test_control_characters_are_shown_as_numbers(text, shown):
    assert without_controls(text) == shown


@given(st.text())
def test_a_text_without_control_characters_is_unchanged(text):
    shown = without_controls(text)
    assert without_controls(shown) == shown
    assert shown == text or not text.isprintable()
