"""The encrypted fields of a NodeJoinRequest, exactly: base64 without padding, AES-GCM under a key that the node has made, that key under RSA-OAEP.

oneinfra's reader is Go's, which skips line breaks and takes trailing bits that are not zero. This one is strict: one value has one form. Lengths
are looked at before anything is decrypted.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from kubewright.apis.node_join_requests import LONGEST_FIELD
from kubewright.base.errors import KubewrightError, TrustError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.pki import oaep, sealing
from kubewright.pki.keys import PrivateKey
from kubewright.pki.oaep import RecipientKey

_ALPHABET: Final = re.compile(r"[A-Za-z0-9+/]*", re.ASCII)
_NEW_KEY: Final = 16
"""Random bytes of a new key. Its 32 hexadecimal digits are the key: AES-256 with 128 bits of entropy, as stock nodes make it."""


class MalformedField(KubewrightError):
    """A field is not what the format says. The message names the field and shows nothing of its value."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} {why}")


@dataclass(frozen=True)
class SymmetricKey:
    """The key of one join, 16, 24 or 32 bytes: made by the node, known to it and to the hub."""

    content: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """SHA-256, by which the same key is known again."""
        return hashlib.sha256(self.content).hexdigest()

    def seal(self, text: str, *, random: Random) -> str:
        """Encrypt a text into a field."""
        return encode(sealing.seal(text.encode(), self.content, random=random))

    def open(self, value: object, *, name: str, longest: int = LONGEST_FIELD) -> str:
        """Decrypt a field of so many characters at most. Raises MalformedField if it is no field, or was not made with this key."""
        sealed = decode(value, name=name, shortest=_characters(sealing.OVERHEAD), longest=longest)
        try:
            return sealing.opened(sealed, self.content, what=name).decode()
        except TrustError as error:
            raise MalformedField(name, f"cannot be decrypted: {error.detail}") from error
        except UnicodeDecodeError as error:
            raise MalformedField(name, "is not UTF-8") from error


def new_key(random: Random) -> SymmetricKey:
    """Make a key as stock nodes do."""
    return SymmetricKey(remember(random.token_bytes(_NEW_KEY).hex()).encode())


def usable_key(content: bytes, *, name: str) -> SymmetricKey:
    """Take a key that somebody has made. Raises MalformedField for a length that AES does not take."""
    if len(content) not in sealing.KEY_SIZES:
        hint = "; a line break at the end of a key file makes one too many" if content.endswith(b"\n") else ""
        raise MalformedField(name, f"holds a key of {len(content)} bytes instead of 16, 24 or 32{hint}")
    return SymmetricKey(content)


def seal_key(key: SymmetricKey, recipient: RecipientKey) -> str:
    """Encrypt a key to the join key of a hub."""
    return encode(recipient.encrypt(key.content))


def open_key(value: object, join_key: PrivateKey, *, name: str) -> SymmetricKey:
    """Decrypt the key of a request. Raises MalformedField if it is none, or was encrypted to another join key."""
    size = _characters(oaep.ciphertext_size(join_key))
    ciphertext = decode(value, name=name, shortest=size, longest=size)
    try:
        return usable_key(oaep.decrypt(join_key, ciphertext, what=name), name=name)
    except TrustError as error:
        raise MalformedField(name, f"cannot be decrypted: {error.detail}") from error


def encode(content: bytes) -> str:
    """Write bytes as base64, standard alphabet, without padding."""
    return base64.b64encode(content).decode().rstrip("=")


def decode(value: object, *, name: str, shortest: int, longest: int) -> bytes:
    """Read bytes from so many characters. Raises MalformedField for any other form than the one that `encode` writes."""
    if not isinstance(value, str):
        raise MalformedField(name, "is missing" if value is None else "is no text")
    if len(value) > longest:
        raise MalformedField(name, f"has {len(value)} characters, more than {longest}")
    if len(value) < shortest:
        raise MalformedField(name, f"has {len(value)} characters, less than {shortest}")
    if value.endswith("="):
        raise MalformedField(name, "is base64 with padding")
    if _ALPHABET.fullmatch(value) is None or len(value) % 4 == 1:
        raise MalformedField(name, "is no base64 of the standard alphabet")
    content = base64.b64decode(value + "=" * (-len(value) % 4))
    if encode(content) != value:
        raise MalformedField(name, "is base64 whose last bits are not zero")
    return content


def _characters(size: int) -> int:
    """Return how many characters so many bytes have."""
    return -(-size * 4 // 3)
