"""TLS bootstrapping: find the cluster, get admitted, and request the first certificate.

Many nodes may share one credential: each has its own request, and a single watch follows all of them. If each request
had its own watch, as in a kubelet, each would need a connection: a TLS handshake on both sides, for 50 ms of use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import PurePosixPath
from typing import Final, NamedTuple, Protocol

from kubewright.agent.dependencies import Connect, connect
from kubewright.base import unexpected
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, CertificateError, KubewrightError, NotFound, Unauthorized, WaitTimeout
from kubewright.discovery import csr, node_requests
from kubewright.discovery import token as discovery
from kubewright.discovery.csr import RequestedCertificate, Seen
from kubewright.discovery.node_requests import Binding
from kubewright.discovery.token import Question
from kubewright.http.messages import Request, Response
from kubewright.kube.answers import EventType, WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.core import Call, Object
from kubewright.kube.credentials import Access, Anonymous
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.kubeconfigs import ReadFile, load_access
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.pki.pins import Pin
from kubewright.tokens.strings import BootstrapTokenString

_REMEMBERED: Final = 10.0
"""Seconds for which an answer about permissions is cached."""


class Issuer(Protocol):
    """Obtains certificates from the cluster."""

    async def obtain(self, wanted: RequestedCertificate, *, within: float, seen: Seen = ...) -> bytes:
        """Request a certificate, wait for up to `within` seconds, and return it as PEM.

        `seen` is called with each state of the request.
        """
        ...

    async def may(self, binding: Binding) -> bool:
        """Whether the client has the permission that a binding grants.

        Raises APIError if that cannot be determined.
        """
        ...


class SingleIssuer:
    """Sends requests with one client and watches each by name: for a node's own certificate, which rotates rarely."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api

    async def obtain(self, wanted: RequestedCertificate, *, within: float, seen: Seen = lambda _: None) -> bytes:
        return await csr.obtain(self._api, wanted, within=within, seen=seen)

    async def may(self, binding: Binding) -> bool:
        return node_requests.allowed(await self._api.create(node_requests.rights_review(binding)))


class EitherIssuer:
    """Asks one issuer, and falls back to another if the first does not accept our credentials. Implements `Issuer`."""

    def __init__(self, first: Issuer, second: Issuer) -> None:
        self._first = first
        self._second = second

    async def obtain(self, wanted: RequestedCertificate, *, within: float, seen: Seen = lambda _: None) -> bytes:
        try:
            return await self._first.obtain(wanted, within=within, seen=seen)
        except Unauthorized as error:
            try:
                return await self._second.obtain(wanted, within=within, seen=seen)
            except Unauthorized:
                raise error from None

    async def may(self, binding: Binding) -> bool:
        try:
            return await self._first.may(binding)
        except Unauthorized:
            return await self._second.may(binding)


class _Waiting(NamedTuple):
    """A request that a caller waits for."""

    wanted: RequestedCertificate
    answer: asyncio.Future[bytes]
    seen: Seen

    def end(self, error: KubewrightError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class SharedIssuer:
    """Sends certificate requests with one client and watches them together, for as long as any of them is undecided."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._waiting: dict[str, _Waiting] = {}
        self._informer: Informer | None = None
        self._since = ""
        self._task: asyncio.Task[None] | None = None
        self._rights: dict[Binding, tuple[float, bool]] = {}
        self._asking = asyncio.Lock()

    async def obtain(self, wanted: RequestedCertificate, *, within: float, seen: Seen = lambda _: None) -> bytes:
        """Request a certificate, wait until it is issued, and return it as PEM.

        Raises CertificateError if it is refused, WaitTimeout if the request is not decided within `within` seconds,
        and the API's error if the request cannot be created.
        """
        created = await csr.ask(self._api, wanted)
        name, uid = created["metadata"]["name"], created["metadata"]["uid"]
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = _Waiting(wanted, answer, seen)
        try:
            async with asyncio.timeout(within):
                await self._follow(created)
                return await answer
        except TimeoutError as error:
            raise WaitTimeout(
                f"certificate request {name} was not signed within {within:g} s",
                remedy=f"see `kubectl describe csr {name}`: kube-controller-manager approves and signs the requests of nodes",
            ) from error
        finally:
            del self._waiting[uid]
            if not self._waiting:
                await self.close()

    async def may(self, binding: Binding) -> bool:
        """Ask as `Issuer.may` does.

        Concurrent callers share one question, and its answer is cached for some seconds.
        """
        async with self._asking:
            now = asyncio.get_running_loop().time()
            asked, answer = self._rights.get(binding, (float("-inf"), False))
            if now - asked >= _REMEMBERED:
                answer = node_requests.allowed(await self._api.create(node_requests.rights_review(binding)))
                self._rights[binding] = now, answer
            return answer

    async def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._task is not None:
            task, self._task, self._informer = self._task, None, None
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, created: Object) -> None:
        """Watch from the creation of this request on, unless a running watch has seen it or will see it.

        A running watch may have begun after this request was decided, if the answer to another request of a later time
        arrived first. Such a request is read once.
        """
        name, version = created["metadata"]["name"], created["metadata"]["resourceVersion"]
        informer = self._informer
        if informer is None:
            self._since = version
            informer = self._informer = Informer(self._api, CERTIFICATE_SIGNING_REQUEST, version=version, failed=self._failed)
            self._task = asyncio.get_running_loop().create_task(self._watch(informer), name="certificate requests")
        elif _is_before(version, self._since):
            try:
                created = await self._api.get(CERTIFICATE_SIGNING_REQUEST, name)
            except NotFound:
                self._lose(created)
                return
        self._settle(informer.objects.get((None, name), created))

    async def _watch(self, informer: Informer) -> None:
        async with aclosing(informer.events()) as events:  # the watch continues even if this request fails
            async for event in events:
                unexpected.attempted("an answer to a certificate request", self._apply, event)

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._lose(event.object)
        elif event.type is not EventType.SYNCED:
            self._settle(event.object)

    def _settle(self, request: Object) -> None:
        """End the wait for this request if it has been decided."""
        found = self._waiting.get(request["metadata"]["uid"])
        if found is None or found.answer.done():
            return
        found.seen(request)
        try:
            content = csr.verdict(request, uid=request["metadata"]["uid"])
        except CertificateError as error:
            found.end(error)
        else:
            if content is not None:
                found.answer.set_result(content)

    def _lose(self, request: Object) -> None:
        found = self._waiting.get(request["metadata"]["uid"])
        if found is not None:
            name = request["metadata"]["name"]
            found.end(CertificateError(f"certificate request {name} was deleted before it was signed", remedy="a new one is made"))

    def _failed(self, error: APIError) -> None:
        """Fail the waits that an error ends; the others continue with the next watch."""
        for one in self._waiting.values():
            if csr.ends_wait(error, one.wanted):
                one.end(error)


def _is_before(version: str, other: str) -> bool:
    """Whether a resource version may be older than another one. Both are decimal numbers (since Kubernetes 1.35 guaranteed: KEP-5504)."""
    return not (version.isdecimal() and other.isdecimal() and int(version) >= int(other))


class Bootstrap(Protocol):
    """Access to a cluster for a node that has no certificate yet."""

    async def admit(self) -> tuple[Access, Issuer]:
        """Find the cluster, verify it, and return its location and the issuer to ask for a certificate.

        Called again for each attempt. Raises TrustError, APIError or any other error of the tree that explains the
        failure.
        """
        ...


class TokenBootstrap:
    """Finds a cluster through its cluster-info ConfigMap, and authenticates with the bootstrap token.

    The token's signature and the pins establish trust. Every machine fetches cluster-info and checks its signature
    itself; machines that join with the same token share only connections, and the parsed form of identical documents.
    Implements `Bootstrap`.
    """

    def __init__(
        self,
        server: str,
        token: BootstrapTokenString,
        *,
        pins: Sequence[Pin] = (),
        clock: Clock,
        within: float = discovery.WITHIN,
        connect: Connect = connect,
    ) -> None:
        """Keep the arguments.

        `server` is the URL of an API server, `within` the time limit of one attempt in seconds.
        """
        self._clock = clock
        self._question = Question(server=server, token=token, pins=pins, within=within)
        self._connect = connect
        self._clients: dict[Access, _SharedClient] = {}
        self._issuers: dict[Access, SharedIssuer] = {}

    async def admit(self) -> tuple[Access, Issuer]:
        """Find the cluster.

        Raises TrustError if it cannot be trusted, WaitTimeout if nothing could be read in time.
        """
        access = await discovery.discover_async(self._question, connect=self._client, clock=self._clock)
        if access not in self._issuers:
            self._issuers[access] = SharedIssuer(self._client(access))
        return access.as_identity(Anonymous()), self._issuers[access]

    async def close(self) -> None:
        """Close every connection; later attempts open new ones. Idempotent."""
        issuers, self._issuers = list(self._issuers.values()), {}
        await asyncio.gather(*(issuer.close() for issuer in issuers))
        clients, self._clients = list(self._clients.values()), {}
        await asyncio.gather(*(client.owned.close() for client in clients))

    def _client(self, access: Access) -> AsyncKubeAPI:
        if access not in self._clients:
            self._clients[access] = _SharedClient(self._connect(access))
        return self._clients[access]


class KubeconfigBootstrap:
    """Authenticates with a bootstrap kubeconfig, as a kubelet does.

    The file is read again for each attempt. Implements `Bootstrap`.
    """

    def __init__(self, path: PurePosixPath, *, read: ReadFile, connect: Connect = connect) -> None:
        self._path = path
        self._read = read
        self._connect = connect
        self._clients: list[AsyncKubeClient] = []

    async def admit(self) -> tuple[Access, Issuer]:
        """Return where the cluster is, and the issuer. Raises CertificateError if the file is missing."""
        await self.close()
        access = load_access(self._path, read=self._read)
        client = self._connect(access)
        self._clients.append(client)
        return access.as_identity(Anonymous()), SharedIssuer(client)

    async def close(self) -> None:
        """Close the connections of earlier attempts. Idempotent."""
        clients, self._clients = self._clients, []
        await asyncio.gather(*(client.close() for client in clients))


class _SharedClient(AsyncKubeAPI):
    """A shared client whose users must not close it: `close` does nothing."""

    def __init__(self, owned: AsyncKubeClient) -> None:
        self.owned = owned

    async def send(self, call: Call, /) -> Object:
        return await self.owned.send(call)

    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        return self.owned.stream(call)

    async def exchange(self, request: Request, /) -> Response:
        return await self.owned.exchange(request)
