"""Addresses that are spoken for: clusters that start at the same time must not choose the same one.

Between the choice of an address and the moment when its ports are bound lie some tenths of a second. For so long the chooser holds a
name in the abstract namespace of Unix sockets, which is as wide as the network namespace that the address is in, and ends with its process.
"""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self


class Claims:
    """The addresses that this process has spoken for; given back when the `with` block ends."""

    def __init__(self) -> None:
        self._held: dict[str, socket.socket] = {}

    def take(self, address: str) -> bool:
        """Speak for an address. False if another process has done so."""
        if address in self._held:
            return True
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            claim.bind(f"\0kubewright/{address}")
        except OSError:
            claim.close()
            return False
        self._held[address] = claim
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for claim in self._held.values():
            claim.close()
        self._held.clear()
