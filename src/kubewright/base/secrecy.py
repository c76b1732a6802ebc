"""The secrets that this process has read: whoever reads one says so here, and `masking` then hides it in whatever people see.

Loads nothing: commands that read a secret need not be those that show anything.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Final

SHORTEST: Final = 6
"""Characters of a value that is kept: a shorter one would blot out ordinary text."""
MOST: Final = 256
"""Values that are kept; of a daemon with thousands of identities the latest."""

_FIELDS: Final = frozenset(
    {
        *("token", "tlsBootstrapToken", "certificateKey", "password", "client-key-data", "bearerToken", "id-token", "refresh-token"),
        "token-secret",
    }
)
WORDS: Final = ("passw", "passphrase", "secret", "token", "credential", "_key", "apikey")
_ID_LENGTH, _SECRET_LENGTH = 6, 16
_lock: Final = threading.Lock()
_known: tuple[str, ...] = ()  # one process, one set of secrets, as with its log


def remember(value: str) -> str:
    """Keep a secret that was read, from any thread, and return it as it is."""
    global _known
    text = value.strip()
    if len(text) >= SHORTEST and text not in _known:
        with _lock:
            _known = (*_known, text)[-MOST:]
    return value


def remember_token(text: str) -> str:
    """Keep a token that was read, and return it. Of a bootstrap token the half behind the dot is secret: the id is the name of an object."""
    id_, dot, secret = text.strip().partition(".")
    if dot or len(id_) != _ID_LENGTH:
        remember(secret if (len(id_), len(secret)) == (_ID_LENGTH, _SECRET_LENGTH) else text)
    return text


def remember_within(document: object) -> None:
    """Keep what a document has in the fields that hold secrets, and in environment variables with telling names."""
    left, seen = [document], set[int]()
    while left:
        node = left.pop()
        if isinstance(node, Mapping) and id(node) not in seen:
            seen.add(id(node))
            _remember_fields(node)
            left += node.values()
        elif isinstance(node, list) and id(node) not in seen:
            seen.add(id(node))
            left += node


def _remember_fields(node: Mapping[object, object]) -> None:
    for name, value in node.items():
        if name in _FIELDS and isinstance(value, str):
            remember_token(value) if name == "token" else remember(value)
    name, value = node.get("name"), node.get("value")
    if isinstance(name, str) and isinstance(value, str) and tells_of_a_secret(name):
        remember(value)


def tells_of_a_secret(name: str) -> bool:
    """Whether the name of an environment variable says that its value is a secret. Flags of programs, with hyphens, are none."""
    lowered = name.lower()
    return "-" not in lowered and any(word in lowered for word in WORDS)


def known() -> tuple[str, ...]:
    """Return what was kept, the oldest first."""
    return _known


def forget() -> None:
    """Forget everything; for tests."""
    global _known
    with _lock:
        _known = ()
