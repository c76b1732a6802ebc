"""The health and metrics server of a daemon: its certificate, and the authorization of its clients.

The flags are those of `model.serving`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

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
from kubewright.kube.daemons import identities
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
    if not port:
        return _stop_nothing
    from kubewright.kube import health  # aiohttp takes 0.2 s: a daemon without a server starts without it
    from kubewright.kube.daemons.serving_identity import ClusterAuthorities, ServingIdentity

    reviewers = ("authentication", "authorization")
    named = {name: _named(path, files) for name in reviewers if (path := absolute(parsed.text(f"{name}-kubeconfig")))}
    authentication, authorization = (named[name].api if name in named else own for name in reviewers)
    known = ClusterAuthorities(authentication) if authentication is not None else None
    identity = ServingIdentity(_shown(parsed, files), client_ca=known)
    authorizer = DelegatedAuthorizer(authentication=authentication, authorization=authorization, trusts=identity.trusts)
    server = await health.serve_health(
        host=parsed.text("bind-address"), port=port, context=identity.context(), ready=ready, metrics=metrics, authorizer=authorizer
    )
    work: dict[str, Callable[[], Awaitable[None]]] = {f"credentials for {name}": one.keep for name, one in named.items()}
    if known is not None:
        work["authorities of clients"] = known.run
    tasks = [asyncio.create_task(keep_running(name, run, expected=()), name=name) for name, run in work.items()]

    async def stop() -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.stop()
        for one in named.values():
            await one.api.close()

    return stop


async def _stop_nothing() -> None:
    """Do nothing: there is no server."""


class _Named(NamedTuple):
    """The client of a kubeconfig, and the function that keeps its credentials current."""

    api: AsyncKubeAPI
    keep: Callable[[], Awaitable[None]]


def _named(path: str, files: Files) -> _Named:
    """Return a client limited to the rate of the API server's own delegated options (200 a second), in case clients invent tokens."""
    source = PurePosixPath(path)
    access = load_access(source, read=files.read)
    client = AsyncKubeClient(access, proxies=Proxies.from_environment(os.environ))
    return _Named(
        LimitedKube(client, TokenBucket(rate=200, burst=400)),
        lambda: identities.keep_kubeconfig((client,), access, source, read=files.read),
    )


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
        raise UsageError("--tls-cert-file and --tls-private-key-file must be used together", remedy="name both")
    found = CertificateFiles(*map(PurePosixPath, names), read=files.read)
    found.require()
    return found
