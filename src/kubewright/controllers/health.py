"""What a controllers' process serves, with kube-controller-manager's paths: its health, which anybody may ask, and its metrics, which need a right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kubewright.base.clock import Clock
from kubewright.base.randomness import Random
from kubewright.http import tls
from kubewright.http.messages import Response
from kubewright.http.serving import Request, Route, Server, serve
from kubewright.kube.delegation import DelegatedAuthorizer
from kubewright.pki import issuing, keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec

if TYPE_CHECKING:
    import ssl

    from kubewright.http.metrics import Registry

_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}
_LIFETIME: Final = timedelta(days=365)


async def serve_health(
    *, host: str, port: int, context: ssl.SSLContext, ready: Callable[[], str], metrics: Registry, authorizer: DelegatedAuthorizer
) -> Server:
    """Serve `/healthz` and `/livez`, which answer while the process does, `/readyz`, and `/metrics` for those whom `authorizer` lets.

    `ready` says why it is not ready yet, '' if it is. Without rights nothing else is shown, not even that a path does not exist.
    Raises PortInUse and HostError.
    """

    async def live(_: Request) -> Response:
        return Response(status=200, headers=_TEXT, body=b"ok")

    async def is_ready(_: Request) -> Response:
        reason = ready()
        return Response(status=503 if reason else 200, headers=_TEXT, body=(reason or "ok").encode())

    async def show_metrics(request: Request) -> Response:
        await _require(request)
        return metrics.read(request.headers.get("accept", ""))

    async def nothing_here(request: Request) -> Response:
        await _require(request)
        return Response(status=404, headers=_TEXT, body=b"404 page not found\n")

    async def _require(request: Request) -> None:
        await authorizer.require(request.headers.get("authorization", ""), verb=request.method.lower(), path=request.path)

    routes = [
        *(Route(method="GET", pattern=path, handler=live) for path in ("/healthz", "/livez")),
        Route(method="GET", pattern="/readyz", handler=is_ready),
        Route(method="GET", pattern="/metrics", handler=show_metrics),
        Route(method="*", pattern="/{path:.*}", handler=nothing_here),
    ]
    return await serve(routes, host=host, port=port, context=context)


def own_context(*, clock: Clock, random: Random) -> ssl.SSLContext:
    """Make a certificate for this process, which nobody knows, as kube-controller-manager does where no files are named; nothing is written."""
    key = keys.generate(Algorithm.ECDSA_P256)
    spec = CertificateSpec(
        name="serving certificate",
        base="serving",
        common_name="kubewright-controllers",
        lifetime=_LIFETIME,
        algorithm=Algorithm.ECDSA_P256,
        names=Names(dns=("localhost",)),
    )
    return tls.server_context(issuing.self_signed(spec, key, started=clock.now(), random=random), key.pem())
