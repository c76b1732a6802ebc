"""The health and metrics that a daemon serves, under the paths of kube-controller-manager.

Anyone may read its health; metrics need permission.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route
from kubewright.http.serving import Server, serve
from kubewright.kube.daemons.delegation import DelegatedAuthorizer

if TYPE_CHECKING:
    import ssl

    from kubewright.http.metrics import Registry

_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}


async def serve_health(
    *, host: str, port: int, context: ssl.SSLContext, ready: Callable[[], str], metrics: Registry, authorizer: DelegatedAuthorizer
) -> Server:
    """Serve `/healthz` and `/livez` (the process answers), `/readyz`, and `/metrics` for callers that `authorizer` permits.

    `ready` returns why the daemon is not ready, '' if it is. Callers without permission learn nothing else, not even
    whether a path exists. Raises PortInUse and HostError.
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
        await authorizer.require(
            request.headers.get("authorization", ""), verb=request.method.lower(), path=request.path, peer=request.peer
        )

    routes = [
        *(Route(method="GET", pattern=path, handler=live) for path in ("/healthz", "/livez")),
        Route(method="GET", pattern="/readyz", handler=is_ready),
        Route(method="GET", pattern="/metrics", handler=show_metrics),
        Route(method="*", pattern="/{path:.*}", handler=nothing_here),
    ]
    return await serve(routes, host=host, port=port, context=context)
