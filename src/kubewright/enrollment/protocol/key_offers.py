"""A change of a node's VPN key: the node's offer, and the answer of its hub, both in annotations of its Node. Pure.

An offer is `KEY PROOF`. The proof shows that the sender holds both the node's current key and the new one, because
others than the node may write to Nodes. It is a MAC with the shared secrets of each of the two keys and the hub's, so
that only the hub can verify it and nobody else can create it; after the change it proves nothing. An answer is `STATE
KEY`, followed by a reason if the key is refused.
"""

from __future__ import annotations

import base64
import enum
import hmac
from typing import Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.pki import wireguard

_PURPOSE: Final = "kubewright: another key for the VPN, 1"
_LONGEST: Final = 256
"""Characters of an offer; one has 89."""


class AnswerState(enum.StrEnum):
    """The state of the change."""

    WAITING = "waiting"
    """The hub accepts the new key, and keeps the old one valid until the node has used the new one."""
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class KeyOffer:
    """A node's offer. `key` is public."""

    key: str
    proof: str

    @property
    def text(self) -> str:
        """Its form in the annotation."""
        return f"{self.key} {self.proof}"


@dataclass(frozen=True, kw_only=True)
class KeyAnswer:
    """A hub's answer to an offer with this key."""

    state: AnswerState
    key: str
    reason: str = ""

    @property
    def text(self) -> str:
        """Its form in the annotation."""
        return " ".join(filter(None, (self.state.value, self.key, self.reason)))


def offer(node: str, *, current: str, new: str, hub: str) -> KeyOffer:
    """Create an offer from two private keys and the hub's public one. Raises CertificateError for an invalid key."""
    key = wireguard.public_key(new)
    common = wireguard.agreed(current, hub) + wireguard.agreed(new, hub)
    return KeyOffer(key=key, proof=_proof(common, node, key))


def read(text: str) -> KeyOffer | None:
    """Parse an annotation, None for one without an offer."""
    words = text.split(" ") if len(text) <= _LONGEST else []
    return KeyOffer(key=words[0], proof=words[1]) if len(words) == 2 and wireguard.is_key(words[0]) else None


def is_proven(found: KeyOffer, node: str, *, current: str, hub: str) -> bool:
    """Return whether the sender of an offer holds the node's current key (`current`, public) and the new one.

    `hub` is the hub's private key.
    """
    try:
        common = wireguard.agreed(hub, current) + wireguard.agreed(hub, found.key)
    except CertificateError:
        return False
    return hmac.compare_digest(_proof(common, node, found.key).encode(), found.proof.encode(errors="replace"))


def read_answer(text: str) -> KeyAnswer | None:
    """Parse the hub's annotation, None for one without an answer."""
    state, _, rest = text.partition(" ")
    key, _, reason = rest.partition(" ")
    try:
        return KeyAnswer(state=AnswerState(state), key=key, reason=reason)
    except ValueError:
        return None


def _proof(common: bytes, node: str, key: str) -> str:
    return base64.b64encode(hmac.digest(common, f"{_PURPOSE}\n{node}\n{key}".encode(), "sha256")).decode()
