"""Bootstrap token strings."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kubewright import tokens
from kubewright.base.errors import KubewrightError, UsageError
from kubewright.base.randomness import SeededRandom
from kubewright.tokens import BootstrapTokenString, strings


@given(st.integers())
def test_a_generated_token_is_valid(seed):
    token = tokens.generate(SeededRandom(seed))

    assert tokens.is_valid(token.text)
    assert tokens.parse(token.text) == token
    assert len(token.text) == 23


def test_every_character_is_equally_likely():
    random = SeededRandom(1)
    counts = Counter("".join(tokens.generate(random).text.replace(".", "") for _ in range(2000)))

    assert len(counts) == 36
    assert max(counts.values()) < 1.25 * min(counts.values())


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("abcdef.0123456789abcdef", True),
        ("abcdef.0123456789abcdef\n", False),
        ("ABCDEF.0123456789abcdef", False),
        ("abcdefg.0123456789abcdef", False),
        ("abcdef.0123456789abcdef0", False),
        ("abcdef-0123456789abcdef", False),
        ("abcdef.0123456789abcde.", False),
        ("ａｂｃｄｅｆ.0123456789abcdef", False),
        ("abcdef.０１２３４５６７８９abcdef", False),
        (" abcdef.0123456789abcdef", False),
        ("", False),
    ],
)
def test_tokens_are_matched_completely(text, valid):
    """The format is that of cluster-bootstrap/token/api (BootstrapTokenPattern)."""
    assert tokens.is_valid(text) is valid


@given(st.text())
@example("abcdef.0123456789abcde")
def test_no_text_raises_outside_the_tree_or_is_shown(text):
    with contextlib.suppress(KubewrightError):
        tokens.parse(text)
    if len(text) > 8 and not tokens.is_valid(text):
        with pytest.raises(UsageError) as caught:
            tokens.parse(text)
        assert text not in f"{caught.value} {caught.value.remedy}"


def test_a_token_shows_its_id_only():
    token = BootstrapTokenString("abcdef", "0123456789abcdef")

    assert str(token) == "abcdef.***"
    assert "0123456789abcdef" not in repr(token)


def test_tokens_are_compared_by_both_halves():
    token = tokens.parse("abcdef.0123456789abcdef")

    assert token.same(tokens.parse("abcdef.0123456789abcdef"))
    assert not token.same(tokens.parse("abcdef.0123456789abcdeg"))
    assert not token.same(tokens.parse("abcdeg.0123456789abcdef"))


def test_an_id_is_read_from_a_token_or_an_id():
    assert strings.parse_id("abcdef") == strings.parse_id("abcdef.0123456789abcdef") == "abcdef"
    with pytest.raises(UsageError):
        strings.parse_id("abcde")
