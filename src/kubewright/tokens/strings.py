"""Bootstrap token strings, `ID.SECRET` (k8s.io/cluster-bootstrap/token). Only `text` reveals the secret half."""

from __future__ import annotations

import hmac
import re
from typing import Final

from kubewright.base.errors import UsageError
from kubewright.base.masking import remember, remember_token
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field

ALPHABET: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_EVEN: Final = 256 - 256 % len(ALPHABET)
"""Larger bytes are discarded, so that every character is equally likely."""
ID: Final = re.compile(r"[a-z0-9]{6}", re.ASCII)
SECRET: Final = re.compile(r"[a-z0-9]{16}", re.ASCII)


@dataclass(frozen=True)
class BootstrapTokenString:
    """A token. Only the id may be shown."""

    id: str
    secret: str = field(repr=False)

    @property
    def text(self) -> str:
        """The whole token, `ID.SECRET`. It is a secret."""
        return f"{self.id}.{self.secret}"

    def __str__(self) -> str:
        return f"{self.id}.***"

    def same(self, other: BootstrapTokenString) -> bool:
        """Compare with another token, in constant time."""
        return self.id == other.id and hmac.compare_digest(self.secret.encode(), other.secret.encode())


def draw(random: Random, count: int) -> str:
    """Return `count` random characters of tokens."""
    found = ""
    while len(found) < count:
        found += "".join(ALPHABET[byte % len(ALPHABET)] for byte in random.token_bytes(count) if byte < _EVEN)
    return found[:count]


def generate(random: Random) -> BootstrapTokenString:
    """Generate a token."""
    return BootstrapTokenString(draw(random, 6), remember(draw(random, 16)))


def is_valid(text: str) -> bool:
    """Whether a text is exactly a token, without surrounding spaces or line ends."""
    id_, dot, secret = text.partition(".")
    return bool(dot and ID.fullmatch(id_) and SECRET.fullmatch(secret))


def parse(text: str) -> BootstrapTokenString:
    """Parse a token. Raises UsageError, which does not quote the text: a mistyped token is nearly a secret."""
    if not is_valid(text):
        raise UsageError(
            f"a text of {len(text)} characters is given where a bootstrap token should be",
            detail="a token is 6 and 16 lower-case letters or digits with a dot between them",
            remedy="generate one with `kubewright token generate`",
        )
    id_, _, secret = remember_token(text).partition(".")
    return BootstrapTokenString(id_, secret)


def parse_id(text: str) -> str:
    """Parse a token or the id of one, and return the id. Raises UsageError."""
    return text if ID.fullmatch(text) else parse(text).id
