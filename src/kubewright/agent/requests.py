"""Certificates for many nodes with one credential: each has a request of its own, and one watch tells them all what became of it.

A watch of its own for each request, as a kubelet has it, costs a connection each: a TLS handshake on both sides, for 50 ms of use.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from typing import Protocol

from kubewright.base.errors import APIError, CertificateError, KubewrightError, WaitTimeout
from kubewright.discovery import csr
from kubewright.discovery.csr import RequestedCertificate
from kubewright.kube.answers import EventType, WatchEvent, worth_retrying
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.kube.informers import Informer
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST


class Issuer(Protocol):
    """Who is asked for a certificate."""

    async def obtain(self, wanted: RequestedCertificate, *, within: float) -> bytes:
        """Ask, wait for the answer for so many seconds, and return the certificate as PEM."""
        ...


class Single:
    """Sends requests with one client and watches each by its name: for a node's own certificate, which rotates once in a while."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api

    async def obtain(self, wanted: RequestedCertificate, *, within: float) -> bytes:
        return await csr.obtain(self._api, wanted, within=within)


class Desk:
    """Sends certificate requests with one client and watches them together, for as long as any of them is undecided."""

    def __init__(self, api: AsyncKubeAPI) -> None:
        self._api = api
        self._waiting: dict[str, asyncio.Future[bytes]] = {}
        self._informer: Informer | None = None
        self._task: asyncio.Task[None] | None = None

    async def obtain(self, wanted: RequestedCertificate, *, within: float) -> bytes:
        """Ask for a certificate, wait until it is there, and return it as PEM.

        Raises CertificateError when it is refused, WaitTimeout when nobody decides within so many seconds, and the API's error where
        the request cannot be made.
        """
        created = await self._api.create(wanted.body())
        name, uid = created["metadata"]["name"], created["metadata"]["uid"]
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[uid] = answer
        try:
            self._follow(created)
            async with asyncio.timeout(within):
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

    async def close(self) -> None:
        """Stop watching. Idempotent."""
        if self._task is not None:
            task, self._task, self._informer = self._task, None, None
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _follow(self, created: Object) -> None:
        """Watch from this request's creation on, unless a watch runs that has seen it or will."""
        if self._informer is None:
            self._informer = Informer(
                self._api, CERTIFICATE_SIGNING_REQUEST, version=created["metadata"]["resourceVersion"], failed=self._failed
            )
            self._task = asyncio.get_running_loop().create_task(self._watch(self._informer), name="certificate requests")
        else:
            self._settle(self._informer.objects.get((None, created["metadata"]["name"]), created))

    async def _watch(self, informer: Informer) -> None:
        try:
            async with aclosing(informer.events()) as events:
                async for event in events:
                    self._apply(event)
        except KubewrightError as error:
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(error)

    def _apply(self, event: WatchEvent) -> None:
        if event.type is EventType.DELETED:
            self._lose(event.object)
        elif event.type is not EventType.SYNCED:
            self._settle(event.object)

    def _settle(self, request: Object) -> None:
        """Tell who waits for this request what has become of it, if anything has."""
        answer = self._waiting.get(request["metadata"]["uid"])
        if answer is None or answer.done():
            return
        try:
            content = csr.verdict(request, uid=request["metadata"]["uid"])
        except CertificateError as error:
            answer.set_exception(error)
        else:
            if content is not None:
                answer.set_result(content)

    def _lose(self, request: Object) -> None:
        answer = self._waiting.get(request["metadata"]["uid"])
        if answer is not None and not answer.done():
            name = request["metadata"]["name"]
            answer.set_exception(
                CertificateError(f"certificate request {name} was deleted before it was signed", remedy="a new one is made")
            )

    def _failed(self, error: APIError) -> None:
        """End every wait for an error that no waiting mends."""
        if not worth_retrying(error):
            raise error
