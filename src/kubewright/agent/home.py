"""What a node keeps between two runs: where its cluster is, and its certificate with the key."""

from __future__ import annotations

from typing import Protocol

from kubewright.kube.credentials import Access
from kubewright.pki.pairs import Pair


class Home(Protocol):
    """The state of one node."""

    def cluster(self) -> Access | None:
        """Return where the cluster is, without an identity; None if the node never joined one. Raises CertificateError or DocumentError."""
        ...

    def keep_cluster(self, access: Access) -> None:
        """Remember where the cluster is."""
        ...

    def pair(self) -> Pair | None:
        """Return the current certificate and key; None if there are none. Raises CertificateError if they are unusable.

        A pair that somebody put into the kubeconfig, as kubeadm's init does, becomes the first one.
        """
        ...

    def keep_pair(self, pair: Pair) -> None:
        """Make a pair the current one. Earlier ones stay."""
        ...


class MemoryHome:
    """Keeps everything in memory: for tests, and for nodes that join anew each time."""

    def __init__(self, access: Access | None = None, pair: Pair | None = None) -> None:
        self._access = access
        self.pairs = [pair] if pair is not None else []

    def cluster(self) -> Access | None:
        return self._access

    def keep_cluster(self, access: Access) -> None:
        self._access = access

    def pair(self) -> Pair | None:
        return self.pairs[-1] if self.pairs else None

    def keep_pair(self, pair: Pair) -> None:
        self.pairs.append(pair)
