"""How a machine becomes a node: finding its cluster, and being let in to ask for a first certificate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubewright.agent.identity import Client, Connect
from kubewright.base.errors import APIError
from kubewright.http.messages import Limits
from kubewright.kube.aio import AsyncKubeClient
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.kube.resources import CONFIG_MAP
from kubewright.pki.pins import Pin
from kubewright.tokens import cluster_info
from kubewright.tokens.cluster_info import MissingSignature, VerifiedCluster
from kubewright.tokens.strings import BootstrapTokenString

_CONNECTIONS = 64
"""One bootstrap serves all nodes that join with it, and each of them has a watch for a moment."""


def connect(access: Access) -> AsyncKubeClient:
    """Make the client of a node: it names itself as the kubelet does."""
    return AsyncKubeClient(access, field_manager="kubelet", limits=Limits(connections=_CONNECTIONS))


class Known:
    """A cluster that was found and checked before. Implements `identity.Bootstrap`."""

    def __init__(self, access: Access, *, connect: Connect = connect) -> None:
        self._access = access.as_identity(Anonymous())
        self._client = connect(access)

    async def admit(self) -> tuple[Access, AsyncKubeAPI]:
        return self._access, self._client


class TokenBootstrap:
    """Finds a cluster through its cluster-info, believes it because of the token's signature and the pins, and asks with the token.

    Implements `identity.Bootstrap`. Every machine looks for itself and nothing that was found is kept; only connections are shared by
    those that join with the same token. cluster-info may be read by everybody and watched by nobody, so it is polled: after 50 ms at
    first, each wait half as long again, up to 200 ms.
    """

    def __init__(
        self,
        server: str,
        token: BootstrapTokenString,
        *,
        pins: Sequence[Pin] = (),
        within: float = 300.0,
        connect: Connect = connect,
    ) -> None:
        """Keep the arguments. `server` is the URL of an API server, `within` the seconds that one attempt may last."""
        self._server = server
        self._token = token
        self._connect = connect
        self._pins = pins
        self._within = within
        self._clients: dict[Access, Client] = {}

    async def admit(self) -> tuple[Access, AsyncKubeAPI]:
        """Find the cluster. Raises the last reason why it could not be read or believed: APIError or TrustError."""
        verified = await self._verified()
        access = Access(server=verified.server, ca_pem=verified.ca_pem)
        if self._pins:
            verified.require_same(await self._read(access), server=self._server)
        return access, self._client(access.as_identity(BearerToken(self._token.text)))

    async def close(self) -> None:
        """Close every connection; one that is needed later is opened again. Idempotent."""
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.close() for client in clients))

    async def _verified(self) -> VerifiedCluster:
        """Read without trust until there is something that the token signed. A signature that does not fit is final."""
        end, pause = asyncio.get_running_loop().time() + self._within, 0.05
        while True:
            try:
                found = await self._read(Access(server=self._server, verify=False))
                return cluster_info.verify(found, token=self._token, pinned=self._pins, server=self._server)
            except (APIError, MissingSignature) as error:
                if asyncio.get_running_loop().time() + pause > end:
                    raise error from None
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.2)

    async def _read(self, access: Access) -> Object:
        return await self._client(access).get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)

    def _client(self, access: Access) -> Client:
        if access not in self._clients:
            self._clients[access] = self._connect(access)
        return self._clients[access]
