"""How a machine becomes a node: finding its cluster, and being let in to ask for a first certificate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from kubewright.agent.requests import Desk, Issuer
from kubewright.agent.seams import Connect, connect
from kubewright.discovery import token as discovery
from kubewright.discovery.token import Question
from kubewright.http.messages import Headers, Response
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.core import Call, Object
from kubewright.kube.credentials import Access, Anonymous
from kubewright.pki.pins import Pin
from kubewright.tokens.strings import BootstrapTokenString


class Bootstrap(Protocol):
    """How to reach a cluster before there is a certificate."""

    async def admit(self) -> tuple[Access, Issuer]:
        """Find the cluster, know that it is the right one, and return where it is and who there may be asked for a certificate.

        Called anew for each attempt. Raises TrustError, APIError, or whatever else of the error tree says why not.
        """
        ...


class Known:
    """A cluster that was found and checked before. Implements `Bootstrap`."""

    def __init__(self, access: Access, *, connect: Connect = connect) -> None:
        self._access = access.as_identity(Anonymous())
        self._desk = Desk(connect(access))

    async def admit(self) -> tuple[Access, Issuer]:
        return self._access, self._desk


class TokenBootstrap:
    """Finds a cluster through its cluster-info, believes it because of the token's signature and the pins, and asks with the token.

    Implements `Bootstrap`. Every machine looks for itself and checks the signature of what it finds; only connections, and the
    reading of a text that is the same, are shared by those that join with the same token.
    """

    def __init__(
        self,
        server: str,
        token: BootstrapTokenString,
        *,
        pins: Sequence[Pin] = (),
        within: float = discovery.WITHIN,
        connect: Connect = connect,
    ) -> None:
        """Keep the arguments. `server` is the URL of an API server, `within` the seconds that one attempt may last."""
        self._question = Question(server=server, token=token, pins=pins, within=within)
        self._connect = connect
        self._clients: dict[Access, _Lent] = {}
        self._desks: dict[Access, Desk] = {}

    async def admit(self) -> tuple[Access, Issuer]:
        """Find the cluster. Raises TrustError for one that cannot be believed, WaitTimeout where nothing could be read."""
        access = await discovery.discover_async(self._question, connect=self._client)
        if access not in self._desks:
            self._desks[access] = Desk(self._client(access))
        return access.as_identity(Anonymous()), self._desks[access]

    async def close(self) -> None:
        """Close every connection; one that is needed later is opened again. Idempotent."""
        desks, self._desks = list(self._desks.values()), {}
        await asyncio.gather(*(desk.close() for desk in desks))
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.owned.close() for client in clients))

    def _client(self, access: Access) -> AsyncKubeAPI:
        if access not in self._clients:
            self._clients[access] = _Lent(self._connect(access))
        return self._clients[access]


class _Lent(AsyncKubeAPI):
    """A client whose borrowers may not close it."""

    def __init__(self, owned: AsyncKubeClient) -> None:
        self.owned = owned

    async def send(self, call: Call, /) -> Object:
        return await self.owned.send(call)

    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        return self.owned.stream(call)

    async def raw(
        self, method: str, path: str, *, body: bytes | None = None, headers: Headers | None = None, timeout: float | None = None
    ) -> Response:
        return await self.owned.raw(method, path, body=body, headers=headers, timeout=timeout)
