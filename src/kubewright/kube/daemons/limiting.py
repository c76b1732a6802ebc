"""A client with a rate limit, shared by all of its callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from kubewright.http.messages import Request, Response
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Call, Object
from kubewright.kube.daemons.queueing import TokenBucket


class LimitedKube(AsyncKubeAPI):
    """A client that limits its requests per second (`--kube-api-qps`, `--kube-api-burst`), except watches."""

    def __init__(self, inner: AsyncKubeAPI, bucket: TokenBucket[str]) -> None:
        self._inner = inner
        self._bucket = bucket

    async def send(self, call: Call, /) -> Object:
        await self._wait()
        return await self._inner.send(call)

    def stream(self, call: Call, /) -> AsyncGenerator[WatchEvent, None]:
        return self._inner.stream(call)

    async def exchange(self, request: Request, /) -> Response:
        await self._wait()
        return await self._inner.exchange(request)

    async def close(self) -> None:
        await self._inner.close()

    async def _wait(self) -> None:
        pause = self._bucket.delay("")
        if pause > 0:
            await asyncio.sleep(pause)
