"""The kubelet's API of one machine address: what `kubectl logs` and its relatives end up at, and who may use it.

Simulated nodes share an address, and so one server answers for all of them. Nothing but health is shown to callers without a client
certificate of the cluster. Pods that are only simulated have no logs and nothing to execute in, and say so.

The kubelet knows nobody by name (kubelet v1.36: pkg/kubelet/server/auth.go, and the delegating authorizer in the mode `Webhook`). Whoever shows
a client certificate of the cluster is asked about at the API server, that server itself included: kubeadm's gives itself one of the group
kubeadm:cluster-admins, which RBAC lets do everything. A name alone proves little, as each signer of the cluster could have made a certificate
with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from kubewright.agent.logs import LogOptions, LogSource, NoLog, limited
from kubewright.agent.node import NodeAgent
from kubewright.agent.pods import lifecycle
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.errors import APIError
from kubewright.base.randomness import Random, SystemRandom
from kubewright.http import tls
from kubewright.http.messages import Response
from kubewright.http.serving import Request, Route, Server, Streaming, serve
from kubewright.http.tls import Clients, Peer
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.keys import Algorithm
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority
from kubewright.pki.table import Usage

_TEXT: Final = {"content-type": "text/plain; charset=utf-8"}
_JSON: Final = {"content-type": "application/json"}
_INTERACTIVE: Final = ("exec", "attach", "run", "portForward")

_CREDENTIAL: Final = "authentication.kubernetes.io/credential-id"
_VERBS: Final = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_SUBRESOURCES: Final = {"pods": ("pods", "proxy"), "healthz": ("healthz", "proxy")}
"""First part of a path to the subresources of nodes that allow it; everything else is `proxy`."""
_LIFETIME: Final = timedelta(days=365)
"""Of a certificate that was made at start."""


class KubeletServer:
    """Serves the kubelet API for the agents of one address.

    made ── start() ──> serving ── stop() ──> stopped
    """

    def __init__(
        self,
        agents: Callable[[], Iterable[NodeAgent]],
        *,
        client_ca_pem: bytes,
        logs: LogSource | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        """Keep the arguments. `agents` are those answered for, asked anew each time; `logs` has the logs of static pods."""
        self._agents = agents
        self._client_ca_pem = client_ca_pem
        self._logs = logs
        self._clock = clock or SystemClock()
        self._random = random or SystemRandom()
        self._server: Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, with a certificate made for this run; returns the port. Raises PortInUse or HostError."""
        certificate, key = serving_pair(name="kubelet", addresses=[host], now=self._clock.now(), random=self._random)
        context = tls.server_context(certificate, key, client_ca_pem=self._client_ca_pem, clients=Clients.OPTIONAL)
        self._server = await serve(self.routes(), host=host, port=port, context=context)
        return self._server.port

    async def stop(self) -> None:
        """Stop listening and close every connection. Idempotent."""
        if self._server is not None:
            server, self._server = self._server, None
            await server.stop()

    def routes(self) -> list[Route]:
        """Return what is answered."""
        named = [
            Route(method="*", pattern=f"/{verb}/{{namespace}}/{{pod}}{rest}", handler=self._refuse)
            for verb in _INTERACTIVE
            for rest in ("", "/{container}", "/{uid}/{container}")
        ]
        return [
            Route(method="GET", pattern="/healthz", handler=self._health),
            Route(method="GET", pattern="/pods", handler=self._list_pods),
            Route(method="GET", pattern="/containerLogs/{namespace}/{pod}/{container}", handler=self._read_log),
            *named,
        ]

    async def _health(self, _: Request) -> Response:
        return _text(200, "ok")

    async def _list_pods(self, request: Request) -> Response:
        """List the pods of every node that the caller may ask; without a certificate there is none."""
        if request.peer is None:
            return _text(401, "Unauthorized")
        allowed = [agent for agent in self._agents() if await self._may(request, agent)]
        if not allowed:
            return self._forbidden(request, "the nodes here")
        items = [pod for agent in allowed for pod in agent.pods.all()]
        body = json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items})
        return Response(status=200, headers=_JSON, body=body.encode())

    async def _read_log(self, request: Request) -> Response | Streaming:
        found = await self._find(request)
        if isinstance(found, Response):
            return found
        options = LogOptions.parse(request.query, now=self._clock.now())
        container = request.parts["container"]
        if container not in _containers(found):
            return _text(404, f'container "{container}" does not exist in pod {_name(request)}')
        if self._logs is None or not lifecycle.is_mirror(found):
            return _text(400, f"pod {_name(request)} is played by kubewright: nothing runs in it, so it has no logs")
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
        return _text(400, f"pod {_name(request)} is played by kubewright: nothing runs in it, so {verb} is not possible")

    async def _find(self, request: Request) -> Object | Response:
        """Return the pod that a request names, or the refusal. Who may not ask does not learn which pods there are."""
        if request.peer is None:
            return _text(401, "Unauthorized")
        namespace, name = request.parts["namespace"], request.parts["pod"]
        for agent in self._agents():
            pod = agent.pods.find(namespace, name)
            if pod is not None:
                return pod if await self._may(request, agent) else self._forbidden(request, f"node {agent.name}")
        for agent in self._agents():
            if not await self._may(request, agent):
                return self._forbidden(request, f"node {agent.name}")
            break
        return _text(404, f"pod {_name(request)} does not exist")

    async def _may(self, request: Request, agent: NodeAgent) -> bool:
        assert request.peer is not None
        return await is_allowed(request.peer, method=request.method, path=request.path, node_name=agent.name, api=agent.client)

    def _forbidden(self, request: Request, what: str) -> Response:
        assert request.peer is not None
        return _text(403, f"Forbidden (user={request.peer.common_name}, {request.method} {request.path} of {what})")


async def _resumed(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Put a piece that was read already before the others, and end the source when the reader goes away."""
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


async def is_allowed(peer: Peer, *, method: str, path: str, node_name: str, api: AsyncKubeAPI | None) -> bool:
    """Whether the holder of a verified client certificate may make this request to a node.

    The node asks the API. Where that cannot answer, nobody may.
    """
    if api is None or not peer.common_name:
        return False
    for subresource in _SUBRESOURCES.get(path.strip("/").partition("/")[0], ("proxy",)):
        try:
            answer = await api.create(access_review(peer, verb=_VERBS.get(method, "get"), subresource=subresource, node_name=node_name))
        except APIError:
            return False
        if answer.get("status", {}).get("allowed") is True:
            return True
    return False


def access_review(peer: Peer, *, verb: str, subresource: str, node_name: str) -> dict[str, Any]:
    """Return the SubjectAccessReview of a request. As for the API server, everybody with a certificate is `system:authenticated`.

    The certificate is named in it as the API server names it (apiserver: authentication/request/x509), for audit logs and webhooks.
    """
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "metadata": {},
        "spec": {
            "user": peer.common_name,
            "groups": [*peer.organizations, "system:authenticated"],
            "extra": {_CREDENTIAL: [f"X509SHA256={hashlib.sha256(peer.der).hexdigest()}"]},
            "resourceAttributes": {
                "verb": verb,
                "group": "",
                "version": "v1",
                "resource": "nodes",
                "subresource": subresource,
                "name": node_name,
            },
        },
    }


def serving_pair(*, name: str, addresses: Sequence[str], now: datetime, random: Random) -> tuple[bytes, bytes]:
    """Make a certificate for a year and its key, both PEM. The API server does not verify it unless a flag asks for that."""
    common_name = f"{name}-ca@{int(now.timestamp())}"
    authority = CertificateSpec(
        name=common_name, base="kubelet-ca", common_name=common_name, lifetime=_LIFETIME, algorithm=Algorithm.ECDSA_P256
    )
    authority_key = keys.generate(Algorithm.ECDSA_P256)
    authority_pem = issuing.self_signed(authority, authority_key, started=now, random=random)
    certificate = certificates.first(authority_pem, source=common_name)
    loaded = LoadedAuthority(base="kubelet-ca", pem=authority_pem, bundle=(certificate,), certificate=certificate, key=authority_key)
    leaf = CertificateSpec(
        name=name,
        base="kubelet",
        signer="kubelet-ca",
        common_name=f"{name}@{int(now.timestamp())}",
        usages=(Usage.SERVER,),
        names=Names(dns=(name,), ips=tuple(addresses)),
        lifetime=_LIFETIME,
        algorithm=Algorithm.ECDSA_P256,
    )
    key = keys.generate(Algorithm.ECDSA_P256)
    return issuing.signed(leaf, key, loaded, started=now, random=random) + authority_pem, key.pem()
