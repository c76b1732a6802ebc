"""The seals of a hub's rows, which are the same in every store.

A seal encrypts the secrets of a row and authenticates its key and value, so no row can be moved to another node or
cluster. Anyone with write access but without the sealing key can only delete rows or restore older ones.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubewright.base.errors import HostError, TrustError
from kubewright.base.randomness import Random
from kubewright.pki.encryption import sealing

_PURPOSE: Final = "kubewright hub state, 3"
_REMEDY: Final = "restore the state of the hub from a backup"


class OldState(HostError):
    """A state in an old format that does not authenticate everything."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} has the format of an earlier kubewright, in which approval, lifetimes and CAs can be changed without the key",
            remedy="if this kubewright was updated just now: kubewright hub migrate; otherwise restore the state from a backup",
        )


class StateSeal:
    """Seals with `key`, 32 bytes that are kept elsewhere.

    `place` names the state in errors. Opening an altered value raises TrustError.
    """

    def __init__(self, key: bytes, *, random: Random, place: str) -> None:
        self._key = key
        self._random = random
        self._place = place

    def seal(self, row: str, value: Any, *, secret: str = "") -> bytes:
        """Seal a row; its key is `KIND/CLUSTER` or `KIND/CLUSTER/NAME`.

        `value` is JSON, which is stored next to the seal.
        """
        return sealing.seal(secret.encode(), self._key, random=self._random, about=_associated_data(row, value))

    def opened(self, row: str, value: Any, sealed: bytes) -> str:
        """Return the secrets of a row. Raises TrustError unless key and value are the sealed ones."""
        return sealing.opened(sealed, self._key, what=self._what(row), about=_associated_data(row, value), remedy=_REMEDY).decode()

    def opened_old(self, row: str, sealed: bytes) -> str:
        """Return the secrets of a row in an old format, which authenticates nothing else."""
        return sealing.opened(sealed, self._key, what=self._what(row), about=row.replace("/", " ").encode(), remedy=_REMEDY).decode()

    def altered(self, row: str) -> TrustError:
        """Return the error for a row that is not even well-formed."""
        return TrustError(f"{self._what(row)} cannot be read", detail="it has no seal, or was altered", remedy=_REMEDY)

    def _what(self, row: str) -> str:
        return f"{row.replace('/', ' ')} in {self._place}"


def _associated_data(row: str, value: Any) -> bytes:
    """Return the canonical form of a row's key and value."""
    return json.dumps([_PURPOSE, row, value], sort_keys=True, separators=(",", ":")).encode()
