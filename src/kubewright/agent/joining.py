"""How a machine becomes a node: finding its cluster, and getting its first certificate with a bootstrap token."""

from __future__ import annotations

from typing import Protocol

from kubewright.kube.credentials import Access


class Bootstrap(Protocol):
    """How to reach a cluster before there is a certificate."""

    async def discover(self) -> Access:
        """Find the cluster, know that it is the right one, and return the access that may ask for a certificate (a bootstrap token).

        Called anew for each attempt. Raises TrustError, APIError, or whatever else of the error tree says why not.
        """
        ...


class Known:
    """A cluster that was found and checked before: for tests, and where the caller has looked already."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def discover(self) -> Access:
        return self._access
