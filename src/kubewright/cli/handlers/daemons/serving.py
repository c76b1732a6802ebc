"""The health and metrics server of a daemon: its certificate, and the authorization of its clients.

The flags are those of `model.serving`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.base.unexpected import keep_running
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.host.filesystem.files import Files
from kubewright.http.proxies import Proxies
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.daemons.delegation import DelegatedAuthorizer
from kubewright.kube.daemons.limiting import LimitedKube
from kubewright.kube.daemons.queueing import TokenBucket
from kubewright.kube.kubeconfigs import load_access

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry
    from kubewright.kube.daemons.serving_identity import Shown

Close = Callable[[], Awaitable[None]]


async def serve(parsed: Parsed, *, files: Files, ready: Callable[[], str], metrics: Registry, own: AsyncKubeAPI | None) -> Close:
    """Serve health and metrics if a port is given, and return a function that stops the server.

    `own` is the client of the pod that we run in: as in kube-controller-manager, it is used if no kubeconfig is named
    for authorization.
    """
    port = parsed.number("secure-port")
    clients = [] if not port else [_client(parsed.text(f"{name}-kubeconfig"), files) for name in ("authentication", "authorization")]

    async def close() -> None:
        for client in clients:
            if client is not None:
                await client.close()

    if not port:
        return close
    from kubewright.kube import health  # aiohttp takes 0.2 s: a daemon without a server starts without it
    from kubewright.kube.daemons.serving_identity import ClusterAuthorities, ServingIdentity

    authentication, authorization = (client or own for client in clients)
    authorizer = DelegatedAuthorizer(authentication=authentication, authorization=authorization)
    known = ClusterAuthorities(authentication) if authentication is not None else None
    context = ServingIdentity(_shown(parsed, files), client_ca=known).context()
    server = await health.serve_health(
        host=parsed.text("bind-address"), port=port, context=context, ready=ready, metrics=metrics, authorizer=authorizer
    )
    looking: asyncio.Task[None] | None = None
    if known is not None:
        looking = asyncio.create_task(keep_running("authorities of clients", known.run, expected=()), name="authorities of clients")

    async def stop() -> None:
        if looking is not None:
            looking.cancel()
            await asyncio.wait([looking])
        await server.stop()
        await close()

    return stop


def _client(path: str, files: Files) -> AsyncKubeAPI | None:
    """Return a client limited to the rate of the API server's own delegated options (200 a second), in case clients invent tokens."""
    if not path:
        return None
    access = load_access(PurePosixPath(absolute(path)), read=files.read)
    return LimitedKube(AsyncKubeClient(access, proxies=Proxies.from_environment(os.environ)), TokenBucket(rate=200, burst=400))


def _shown(parsed: Parsed, files: Files) -> Shown:
    """Return the serving certificate: that of two files, reloaded when they change, or a self-signed one of this process."""
    from kubewright.kube.daemons.serving_identity import CertificateFiles, own_pair
    from kubewright.pki import certificates
    from kubewright.pki.keys import Algorithm

    names = [absolute(parsed.text(name)) for name in ("tls-cert-file", "tls-private-key-file")]
    if not any(names):
        made = own_pair(name="localhost", algorithm=Algorithm.ECDSA_P256, now=SystemClock().now(), random=SystemRandom())
        pair = certificates.pair_of(*made, source="the certificate of this process")
        return lambda: pair
    if not all(names):
        raise UsageError("--tls-cert-file and --tls-private-key-file go together", remedy="name both")
    found = CertificateFiles(*map(PurePosixPath, names), read=files.read)
    found.require()
    return found
