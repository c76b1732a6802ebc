"""The characters of bootstrap tokens (k8s.io/cluster-bootstrap/token/util). Loads nothing, so that making a token costs nothing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
ID_LENGTH = 6
SECRET_LENGTH = 16
_EVEN = 256 - 256 % len(ALPHABET)
"""Bytes from here on are thrown away, so that every character is equally likely."""


def draw(token_bytes: Callable[[int], bytes], count: int) -> str:
    """Draw so many characters."""
    found = ""
    while len(found) < count:
        found += "".join(ALPHABET[byte % len(ALPHABET)] for byte in token_bytes(count) if byte < _EVEN)
    return found[:count]


def draw_token(token_bytes: Callable[[int], bytes]) -> tuple[str, str]:
    """Draw the id and the secret of a token."""
    return draw(token_bytes, ID_LENGTH), draw(token_bytes, SECRET_LENGTH)
