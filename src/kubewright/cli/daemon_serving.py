"""What a daemon serves for those who watch it: with which certificate, and whom it asks who may see its metrics. The flags are `SERVING` of `model`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.base.clock import SystemClock
from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.inputs import absolute
from kubewright.cli.parser import Parsed
from kubewright.controllers.manager import LimitedKube
from kubewright.host.files import Files
from kubewright.http.proxies import Proxies
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.delegation import DelegatedAuthorizer
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.queueing import TokenBucket

if TYPE_CHECKING:
    import ssl

    from kubewright.http.metrics import Registry

Close = Callable[[], Awaitable[None]]


async def serve(parsed: Parsed, *, files: Files, ready: Callable[[], str], metrics: Registry, own: AsyncKubeAPI | None) -> Close:
    """Serve health and metrics where a port is given, and return what stops it.

    `own` is the client of the pod that we run in: as in kube-controller-manager it is asked where no kubeconfig for that is named.
    """
    port = parsed.number("secure-port")
    clients = [] if not port else [_client(parsed.text(f"{name}-kubeconfig"), files) for name in ("authentication", "authorization")]

    async def close() -> None:
        for client in clients:
            if client is not None:
                await client.close()

    if not port:
        return close
    from kubewright.controllers import health  # aiohttp takes 0.2 s: who serves nothing starts without it

    authentication, authorization = (client or own for client in clients)
    authorizer = DelegatedAuthorizer(authentication=authentication, authorization=authorization)
    server = await health.serve_health(
        host=parsed.text("bind-address"), port=port, context=_context(parsed, files), ready=ready, metrics=metrics, authorizer=authorizer
    )

    async def stop() -> None:
        await server.stop()
        await close()

    return stop


def _client(path: str, files: Files) -> AsyncKubeAPI | None:
    """Return a client that asks no more often than the API server's own delegated options let (200 a second), whoever makes up tokens."""
    if not path:
        return None
    access = load_access(PurePosixPath(absolute(path)), read=files.read)
    return LimitedKube(AsyncKubeClient(access, proxies=Proxies.from_environment(os.environ)), TokenBucket(rate=200, burst=400))


def _context(parsed: Parsed, files: Files) -> ssl.SSLContext:
    from kubewright.controllers import health
    from kubewright.http import tls

    names = [absolute(parsed.text(name)) for name in ("tls-cert-file", "tls-private-key-file")]
    if not any(names):
        return health.own_context(clock=SystemClock(), random=SystemRandom())
    if not all(names):
        raise UsageError("--tls-cert-file and --tls-private-key-file go together", remedy="name both")
    contents = [files.read(PurePosixPath(name)) for name in names]
    for name, content in zip(names, contents, strict=True):
        if content is None:
            raise CertificateError(f"{name} does not exist", remedy="name the files to serve with, or leave them out")
    return tls.server_context(*(content or b"" for content in contents))
