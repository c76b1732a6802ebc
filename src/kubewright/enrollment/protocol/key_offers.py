"""Another key for a node's end of the VPN: what a node that has joined offers, and what its hub answers, both in annotations of its Node. Pure.

An offer is `KEY PROOF`. The proof shows that who offers holds both the key that the node has now and the new one: others than the node may write
to Nodes. It is a MAC under what each of the two keys agrees on with the hub's, so that the hub can check it and nobody else can make it; after the
change it proves nothing any more. An answer is `STATE KEY`, and a reason behind it where the key is refused.
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
    """How far the change has come."""

    WAITING = "waiting"
    """The hub hears the new key, and leaves the old one in force until the node has used the new one."""
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, kw_only=True)
class KeyOffer:
    """What a node offers. `key` is public."""

    key: str
    proof: str

    @property
    def text(self) -> str:
        """The form that it has in the annotation."""
        return f"{self.key} {self.proof}"


@dataclass(frozen=True, kw_only=True)
class KeyAnswer:
    """What a hub says of an offer with this key."""

    state: AnswerState
    key: str
    reason: str = ""

    @property
    def text(self) -> str:
        """The form that it has in the annotation."""
        return " ".join(filter(None, (self.state.value, self.key, self.reason)))


def offer(node: str, *, current: str, new: str, hub: str) -> KeyOffer:
    """Make an offer from two private keys and the hub's public one. Raises CertificateError for what is no key."""
    key = wireguard.public_key(new)
    common = wireguard.agreed(current, hub) + wireguard.agreed(new, hub)
    return KeyOffer(key=key, proof=_proof(common, node, key))


def read(text: str) -> KeyOffer | None:
    """Read an annotation, None for one that holds no offer."""
    words = text.split(" ") if len(text) <= _LONGEST else []
    return KeyOffer(key=words[0], proof=words[1]) if len(words) == 2 and wireguard.is_key(words[0]) else None


def is_proven(found: KeyOffer, node: str, *, current: str, hub: str) -> bool:
    """Whether who has made an offer holds the key that the node has now (`current`, public) and the new one. `hub` is the hub's private key."""
    try:
        common = wireguard.agreed(hub, current) + wireguard.agreed(hub, found.key)
    except CertificateError:
        return False
    return hmac.compare_digest(_proof(common, node, found.key).encode(), found.proof.encode(errors="replace"))


def read_answer(text: str) -> KeyAnswer | None:
    """Read the hub's annotation, None for one that holds no answer."""
    state, _, rest = text.partition(" ")
    key, _, reason = rest.partition(" ")
    try:
        return KeyAnswer(state=AnswerState(state), key=key, reason=reason)
    except ValueError:
        return None


def _proof(common: bytes, node: str, key: str) -> str:
    return base64.b64encode(hmac.digest(common, f"{_PURPOSE}\n{node}\n{key}".encode(), "sha256")).decode()
