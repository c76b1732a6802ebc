"""The kubelet API: answers over HTTPS about a node, for the API server and other authorized clients.

Source: kubelet v1.36: pkg/kubelet/server. Node, pods, health, metrics and the logs of static pods are real. A pod
that is simulated, or that nothing runs, has no logs; `exec` and the like are refused with an explanation. `access`
authenticates and authorizes clients, and `kube.daemons.serving_identity` has the server's certificate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubewright.agent.access import AccessRules, Callers, Refused
from kubewright.agent.logs import LogOptions, LogSource, NoLog, limited
from kubewright.agent.node import NodeAgent
from kubewright.agent.pods import lifecycle
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import dataclass, field
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route, Streaming
from kubewright.kube.core import Object
from kubewright.kube.daemons.delegation import trusted
from kubewright.kube.daemons.serving_identity import ServingIdentity, own_pair
from kubewright.pki import certificates
from kubewright.pki.keys import Algorithm

if TYPE_CHECKING:
    from kubewright.http.metrics import Registry
    from kubewright.http.serving import Server

_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}
_JSON: Final = {"content-type": "application/json"}
_INTERACTIVE: Final = ("exec", "attach", "run", "portForward")
_CHECKS: Final = ("ping", "log", "syncloop")
"""The checks that the kubelet's health consists of."""
_DISABLED: Final = {"logs": "logs endpoint is disabled.", "debug": "profiling endpoint is disabled."}
"""The kubelet's answer if its configuration has disabled an endpoint. We do not have these endpoints."""

Answer = Response | Streaming
Handler = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True, kw_only=True)
class Contents:
    """The resources that an API serves besides pods. None is not served."""

    metrics: Registry | None = None
    usage: Callable[[], str] | None = None
    """Metrics of the machine's resource usage, as text."""
    configuration: Mapping[str, Any] | None = None
    """The document that `/configz` shows."""
    unhealthy: Callable[[], str] = field(default_factory=lambda: _well)
    """Returns why the node is not healthy; '' if it is."""
    debugging: bool = True
    """Whether containers have logs and can be entered."""
    nothing_runs: str = "is simulated by kubewright: nothing runs in it"
    """The answer about a pod that nothing runs."""


def _well() -> str:
    return ""


class KubeletServer:
    """Serves the kubelet API for the agents of one address.

    made ── start() ──> serving ── stop() ──> stopped
    """

    def __init__(
        self,
        agents: Callable[[], Iterable[NodeAgent]],
        *,
        client_ca_pem: bytes = b"",
        identity: ServingIdentity | None = None,
        rules: AccessRules | None = None,
        contents: Contents | None = None,
        logs: LogSource | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Store the arguments.

        `agents` returns the agents to answer for, and is called for each request; `logs` has the logs of static pods.
        Without `identity`, a certificate is generated for each run, and the clients of `client_ca_pem` are accepted.
        """
        self._agents = agents
        self._client_ca_pem = client_ca_pem
        self._identity = identity
        self._clock = clock or SystemClock()
        trusts = identity.trusts if identity is not None else trusted
        self._callers = Callers(rules or AccessRules(), self._clock, trusts=trusts)
        self._contents = contents or Contents()
        self._logs = logs
        self._random = random or SystemRandom()
        self._server: Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; returns the port. Raises PortInUse or HostError."""
        from kubewright.http.serving import serve

        identity = self._identity or self._own_identity(host)
        self._server = await serve(self.routes(), host=host, port=port, context=identity.context())
        return self._server.port

    def _own_identity(self, host: str) -> ServingIdentity:
        made = own_pair(name="kubelet", addresses=[host], algorithm=Algorithm.ECDSA_P256, now=self._clock.now(), random=self._random)
        pair = certificates.pair_of(*made, source="the kubelet API's own certificate")
        return ServingIdentity(lambda: pair, client_ca=lambda: self._client_ca_pem)

    async def stop(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def routes(self) -> list[Route]:
        """Return the routes."""
        contents = self._contents
        rows: list[tuple[str, str, Handler]] = [
            ("GET", "/healthz", self._on_node(self._health)),
            ("GET", "/healthz/{check}", self._on_node(self._health)),
            ("GET", "/pods", self._list_pods),
            ("GET", "/runningpods/", self._on_node(self._list_running)),
        ]
        if contents.metrics is not None:
            rows.append(("GET", "/metrics", self._on_node(self._show_metrics)))
        if contents.usage is not None:
            rows.append(("GET", "/metrics/resource", self._on_node(self._show_usage)))
        if contents.configuration is not None and contents.debugging:
            rows.append(("GET", "/configz", self._on_node(self._show_configuration)))
        ways = [
            ("GET", "/containerLogs/{namespace}/{pod}/{container}", self._read_log),
            *(
                ("*", f"/{verb}/{{namespace}}/{{pod}}{rest}", self._refuse)
                for verb in _INTERACTIVE
                for rest in ("", "/{container}", "/{uid}/{container}")
            ),
        ]
        rows += ways if contents.debugging else [("*", pattern, self._on_node(_debugging_disabled)) for _, pattern, _ in ways]
        rows.append(("*", "/{path:.*}", self._on_node(_nothing_here)))
        return [Route(method=method, pattern=pattern, handler=_answering(handler)) for method, pattern, handler in rows]

    def _on_node(self, handler: Handler) -> Handler:
        """Require permission for this path of the node. If there are several nodes, the first one is checked."""

        async def guarded(request: Request) -> Answer:
            agent = next(iter(self._agents()), None)
            api = agent.client if agent is not None else None
            user = await self._callers.user(request, api)
            await self._callers.require(user, request, node_name=agent.name if agent is not None else "", api=api)
            return await handler(request)

        return guarded

    async def _health(self, request: Request) -> Response:
        check = request.parts.get("check", "")
        if check and check not in _CHECKS:
            return _text(404, "404: Page Not Found")
        reason = self._contents.unhealthy()
        if reason:
            return _text(500, f"[-]syncloop failed: {reason}\nhealthz check failed")
        if "verbose" in request.query and not check:
            return _text(200, "\n".join((*(f"[+]{name} ok" for name in _CHECKS), "healthz check passed")))
        return Response(status=200, headers=_TEXT, body=b"ok")

    async def _list_pods(self, request: Request) -> Response:
        """List the pods of every node that the caller may read."""
        agents, refused = list(self._agents()), None
        user = await self._callers.user(request, agents[0].client if agents else None)
        items = []
        allowed = False
        for agent in agents:
            try:
                await self._callers.require(user, request, node_name=agent.name, api=agent.client)
            except Refused as error:
                refused = refused or error
            else:
                allowed = True
                items += agent.pods.all()
        if refused is not None and not allowed:
            raise refused
        return _pod_list(items)

    async def _list_running(self, _: Request) -> Response:
        """List the pods that a container runtime runs for us: none."""
        return _pod_list([])

    async def _show_metrics(self, request: Request) -> Response:
        assert self._contents.metrics is not None
        return self._contents.metrics.read(request.headers.get("accept", ""))

    async def _show_usage(self, _: Request) -> Response:
        assert self._contents.usage is not None
        return Response(status=200, headers={"content-type": "text/plain; version=0.0.4"}, body=self._contents.usage().encode())

    async def _show_configuration(self, _: Request) -> Response:
        return Response(status=200, headers=_JSON, body=json.dumps({"kubeletconfig": self._contents.configuration}).encode())

    async def _read_log(self, request: Request) -> Answer:
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        options = LogOptions.parse(request.query, now=self._clock.now())
        container = request.parts["container"]
        if container not in _containers(found):
            return _text(404, f'container "{container}" does not exist in pod {_name(request)}')
        if self._logs is None or not lifecycle.is_mirror(found):
            return _text(400, f"pod {_name(request)} {self._contents.nothing_runs}, so it has no logs")
        pieces = self._logs.read(found, container, options)
        try:
            first = await anext(pieces, b"")
        except NoLog as error:
            return _text(400, str(error))
        return Streaming(chunks=limited(_resumed(first, pieces), options.limit), headers=_TEXT)

    async def _refuse(self, request: Request) -> Response:
        """Answer exec, attach, run and port-forward: there is nothing to connect to."""
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        verb = request.path.strip("/").partition("/")[0]
        if lifecycle.is_mirror(found):
            return _text(400, f"pod {_name(request)} runs as a process without a container: {verb} is not possible there")
        return _text(400, f"pod {_name(request)} {self._contents.nothing_runs}, so {verb} is not possible")

    async def _find(self, request: Request) -> Object | Response:
        """Return the pod that a request names, or raise that it does not exist.

        Clients without permission do not learn which pods exist.
        """
        namespace, name = request.parts["namespace"], request.parts["pod"]
        agents = list(self._agents())
        holder = next((agent for agent in agents if agent.pods.find(namespace, name) is not None), agents[0] if agents else None)
        api = holder.client if holder is not None else None
        user = await self._callers.user(request, api)
        await self._callers.require(user, request, node_name=holder.name if holder is not None else "", api=api)
        pod = holder.pods.find(namespace, name) if holder is not None else None
        return pod if pod is not None else _text(404, f"pod {_name(request)} does not exist")


def _answering(handler: Handler) -> Handler:
    """Convert a refusal to a response."""

    async def answer(request: Request) -> Answer:
        try:
            return await handler(request)
        except Refused as error:
            return _text(error.code, str(error))

    return answer


async def _nothing_here(request: Request) -> Response:
    """Respond that nothing is there, in the kubelet's words: the endpoint is disabled, or does not exist."""
    first = request.path.strip("/").partition("/")[0]
    if first in _DISABLED:
        return _text(405, _DISABLED[first])
    return _text(404, "404: Page Not Found")


async def _debugging_disabled(_: Request) -> Response:
    return _text(405, "Debug endpoints are disabled.")


def _pod_list(items: list[Object]) -> Response:
    body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
    return Response(status=200, headers=_JSON, body=body.encode())


async def _resumed(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a chunk that was already read before the others, and close the source when the reader disconnects."""
    try:
        yield first
        async for piece in rest:
            yield piece
    finally:
        close = getattr(rest, "aclose", None)
        if close is not None:
            await close()


def _containers(pod: Object) -> set[str]:
    lists = ("containers", "initContainers", "ephemeralContainers")
    return {row["name"] for kind in lists for row in pod["spec"].get(kind) or ()}


def _name(request: Request) -> str:
    return f"{request.parts['namespace']}/{request.parts['pod']}"


def _text(status: int, text: str) -> Response:
    return Response(status=status, headers=_TEXT, body=f"{text}\n".encode())
