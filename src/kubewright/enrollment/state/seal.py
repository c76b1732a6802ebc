"""How the rows of a hub's state are sealed, wherever the state is.

A seal holds what is secret in a row and authenticates everything else in it: the row's key is part of the seal, so that no row can be moved to another
node or cluster, and so is its value. Whoever writes to the state without its key can only delete rows or put back older ones.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kubewright.base.errors import HostError, TrustError
from kubewright.base.randomness import Random
from kubewright.pki import sealing

_PURPOSE: Final = "kubewright hub state, 3"
_REMEDY: Final = "restore the state of the hub from a backup"


class OldState(HostError):
    """A state of a format in which not everything is authenticated."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place} has the format of an earlier kubewright, in which approval, lifetimes and CAs can be changed without the key",
            remedy="if this kubewright was updated just now: kubewright hub migrate; otherwise restore the state from a backup",
        )


class StateSeal:
    """Seals with `key`, 32 bytes that are kept elsewhere. `place` names the state in errors. What is opened raises TrustError where it was altered."""

    def __init__(self, key: bytes, *, random: Random, place: str) -> None:
        self._key = key
        self._random = random
        self._place = place

    def seal(self, row: str, value: Any, *, secret: str = "") -> bytes:
        """Seal a row; its key is `KIND/CLUSTER` or `KIND/CLUSTER/NAME`. `value` is JSON, which is stored beside the seal."""
        return sealing.seal(secret.encode(), self._key, random=self._random, about=_about(row, value))

    def opened(self, row: str, value: Any, sealed: bytes) -> str:
        """Return what is secret in a row. Raises TrustError unless key and value are those that were sealed."""
        return sealing.opened(sealed, self._key, what=self._what(row), about=_about(row, value), remedy=_REMEDY).decode()

    def opened_old(self, row: str, sealed: bytes) -> str:
        """Return what is secret in a row of an earlier format, in which nothing else of it was authenticated."""
        return sealing.opened(sealed, self._key, what=self._what(row), about=row.replace("/", " ").encode(), remedy=_REMEDY).decode()

    def altered(self, row: str) -> TrustError:
        """Return the error for a row that has not even the form of one."""
        return TrustError(f"{self._what(row)} cannot be read", detail="it has no seal, or was altered", remedy=_REMEDY)

    def _what(self, row: str) -> str:
        return f"{row.replace('/', ' ')} in {self._place}"


def _about(row: str, value: Any) -> bytes:
    """Return the one form of a row's key and value, whichever way the value was written down."""
    return json.dumps([_PURPOSE, row, value], sort_keys=True, separators=(",", ":")).encode()
