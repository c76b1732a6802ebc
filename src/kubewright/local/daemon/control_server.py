"""The daemon's services that need the HTTP libraries: the control socket, the node agents, the kubelet API."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any, Final

from kubewright.base.clock import Clock, rfc3339
from kubewright.base.messages import quoted
from kubewright.host.processes import Identity, RealProcesses
from kubewright.http.messages import Response
from kubewright.http.routes import Handler, Request, Route, Streaming
from kubewright.http.serving import Server, serve_unix
from kubewright.local.daemon.machines import MachineSupervisors
from kubewright.local.daemon.nodes import LocalNodes
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.supervisor.state import ComponentPhase, ComponentState
from kubewright.local.supervisor.termination import readable

LONGEST_WAIT: Final = 5.0
"""The longest time in seconds that a request may make the daemon wait before it answers."""


class ControlServer:
    """The daemon's services.

    `start` returns when the control socket answers; `stop` ends the agents, `close` the socket. Requests that change
    machines and nodes are completed even if the client disconnects, one after the other: a machine may be requested to
    start while it is still stopping.
    """

    def __init__(
        self, paths: ClusterPaths, cluster: ClusterRecord, machines: MachineSupervisors, *, stopping: asyncio.Event, clock: Clock
    ) -> None:
        self._paths = paths
        self._machines = machines
        self._stopping = stopping
        self._ended = asyncio.Event()
        self._works: set[asyncio.Task[Response | Streaming]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._clock = clock
        self._control: Server | None = None
        self._nodes = LocalNodes(paths, cluster, machines, clock=clock)

    async def start(self) -> None:
        """Serve the control socket, and resume the nodes that have joined before."""
        self._control = await serve_unix(self._routes(), path=self._paths.socket)
        await self._nodes.start()

    async def stop(self) -> None:
        """Stop the node agents after all earlier requests; the control socket continues to answer."""
        async with self._one_at_a_time:
            await self._nodes.stop()

    async def close(self) -> None:
        """Answer the clients that wait for the end, and stop listening."""
        self._ended.set()
        if self._control is not None:
            await self._control.stop()
        self._paths.socket.unlink(missing_ok=True)

    def _routes(self) -> tuple[Route, ...]:
        return (
            Route(method="GET", pattern="/ping", handler=self._ping),
            Route(method="GET", pattern="/status", handler=self._status),
            Route(method="GET", pattern="/nodes", handler=self._settled),
            Route(method="GET", pattern="/logs/{component}", handler=self._logs),
            Route(method="POST", pattern="/begin", handler=self._uninterrupted(self._begin)),
            Route(method="POST", pattern="/rest", handler=self._uninterrupted(self._rest)),
            Route(method="POST", pattern="/end", handler=self._uninterrupted(self._end)),
            Route(method="POST", pattern="/join", handler=self._uninterrupted(self._join)),
            Route(method="POST", pattern="/leave", handler=self._uninterrupted(self._leave)),
            Route(method="POST", pattern="/restart", handler=self._uninterrupted(self._restart)),
            Route(method="POST", pattern="/retry", handler=self._retry),
            Route(method="POST", pattern="/stop", handler=self._stop),
        )

    def _uninterrupted(self, handler: Handler) -> Handler:
        """Wrap a handler so that it completes even if its client disconnects, on which the server would cancel it."""

        async def in_turn(request: Request) -> Response | Streaming:
            async with self._one_at_a_time:
                return await handler(request)

        async def carried(request: Request) -> Response | Streaming:
            work = asyncio.create_task(in_turn(request), name=request.path)
            self._works.add(work)  # the loop keeps no reference to a task
            work.add_done_callback(self._works.discard)
            return await asyncio.shield(work)

        return carried

    async def _ping(self, _: Request) -> Response:
        return _json({})

    async def _status(self, _: Request) -> Response:
        mine = Identity.of(os.getpid())
        usage = RealProcesses().usage(mine) if mine is not None else None
        return _json(
            {
                "pid": os.getpid(),
                "rssBytes": usage.rss_bytes if usage else 0,
                "cpuSeconds": usage.cpu_seconds if usage else 0.0,
                "components": self._components(),
                "nodes": self._nodes.snapshot(),
            }
        )

    def _components(self) -> list[dict[str, Any]]:
        """Return the components of all machines, with the reason for those that cannot start by themselves."""
        found = []
        for machine, supervisor, states in self._machines.snapshot():
            refused = supervisor.refused()
            for state in states:
                row = {"machine": machine, **_component(state), "refused": state.pod in refused}
                if state.phase is ComponentPhase.CRASH_LOOP:
                    row["lastWords"] = [readable(line) for line in supervisor.last_lines(state.name)]
                found.append(row)
        return found

    async def _settled(self, request: Request) -> Response:
        return _json(await self._nodes.settled(within=min(float(request.query.get("within", "0")), LONGEST_WAIT)))

    async def _logs(self, request: Request) -> Response | Streaming:
        component, machine = request.parts["component"], request.query.get("machine", "")
        tail = int(request.query.get("tail", "-1"))
        try:
            supervisor = self._machines.supervisor(machine)
            lines = supervisor.read_log(component, tail=None if tail < 0 else tail, follow=request.query.get("follow") == "1")
        except KeyError:
            where = f" on the machine {machine}" if machine else ""
            return Response(status=404, body=f"there is no component {quoted(component)}{where}\n".encode())
        return Streaming(chunks=lines)

    async def _begin(self, request: Request) -> Response:
        machine = await self._machines.begin(json.loads(request.body)["machine"])
        await self._nodes.begin(machine)
        return _json({})

    async def _rest(self, request: Request) -> Response:
        await self._nodes.end([json.loads(request.body)["machine"]])
        return _json({})

    async def _end(self, request: Request) -> Response:
        names = json.loads(request.body)["machines"]
        await self._nodes.end(names)
        await self._machines.end(names)
        return _json({})

    async def _join(self, request: Request) -> Response:
        asked = json.loads(request.body)
        await self._nodes.join(asked["nodes"], server=asked["server"], token=asked["token"], pins=asked["pins"])
        return _json({})

    async def _leave(self, request: Request) -> Response:
        await self._nodes.leave(json.loads(request.body)["nodes"])
        return _json({})

    async def _restart(self, request: Request) -> Response:
        await self._nodes.restart(json.loads(request.body)["nodes"])
        return _json({})

    async def _retry(self, _: Request) -> Response:
        self._machines.retry()
        return _json({})

    async def _stop(self, _: Request) -> Response:
        """Stop the daemon, even if the client does not wait for the response, which is sent when the components have stopped."""
        self._stopping.set()
        await self._ended.wait()
        return _json({})


def _component(state: ComponentState) -> dict[str, Any]:
    return {
        "name": state.name,
        "pid": state.pid,
        "state": state.phase.value,
        "restarts": state.restarts,
        "rssBytes": state.rss_bytes,
        "cpuSeconds": state.cpu_seconds,
        "reason": state.reason,
        "startedAt": rfc3339(state.started_at) if state.started_at else None,
    }


def _json(value: Mapping[str, Any]) -> Response:
    return Response(status=200, headers={"content-type": "application/json"}, body=json.dumps(value).encode())
