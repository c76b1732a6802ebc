"""The control socket of the daemon: it sets machines and published ports, loads archives of images, and stops and starts single machines."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from kubewright.base.errors import DocumentError, HostError, KubewrightError, UsageError
from kubewright.http.messages import Response
from kubewright.http.routes import Request, Route
from kubewright.local import published
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import images
from kubewright.local.whole.services import commands
from kubewright.local.whole.services.forwarding import Forwarder
from kubewright.local.whole.services.states import MachineStates


def routes(own: ClusterPaths, paths: ClusterPaths, states: MachineStates, forwarder: Forwarder) -> tuple[Route, ...]:
    """Return the routes. Requests contain the desired state, so that they may be repeated. `own` are the daemon's own files."""

    async def status(_: Request) -> Response:
        return _json({"pid": os.getpid(), "running": sorted(states.running), "ports": [str(port) for port in forwarder.ports]})

    async def expect(request: Request) -> Response:
        if request.uid != 0:
            return Response(status=403, body=b"only root changes machines\n")
        states.expect(json.loads(request.body)["machines"])
        return _json({})

    async def publish(request: Request) -> Response:
        try:
            await forwarder.publish([published.parse(text) for text in json.loads(request.body)["ports"]])
        except UsageError as error:
            return _refused(error, 400)
        except KubewrightError as error:
            return _refused(error, 409)
        return _json({})

    async def load(request: Request) -> Response:
        assert request.uid is not None  # `serve_unix` refuses requests without one
        found = [machine for name in sorted(states.running) if (machine := states.machine(name)) is not None]
        try:
            if not found:
                raise HostError("no machine of the cluster runs", remedy=f"`sudo kubewright up --name {paths.name}` starts them")
            names = await asyncio.to_thread(images.load_as, request.uid, found, str(json.loads(request.body)["archive"]))
        except DocumentError as error:
            return _refused(error, 422)
        except KubewrightError as error:
            return _refused(error, 500)
        return _json({"images": names, "machines": [machine.name for machine in found]})

    async def change(request: Request) -> Response:
        asked = json.loads(request.body)
        verb, machine, form = (str(asked[name]) for name in ("change", "machine", "form"))
        if verb not in commands.CHANGES or not states.exists(machine):
            return Response(status=403, body=b"only root does this\n")
        return _json(await asyncio.to_thread(commands.change, own, paths, verb, machine, form=form))

    return (
        Route(method="GET", pattern="/status", handler=status),
        Route(method="PUT", pattern="/images", handler=load),
        Route(method="PUT", pattern="/machine", handler=change),
        Route(method="PUT", pattern="/machines", handler=expect),
        Route(method="PUT", pattern="/ports", handler=publish),
    )


def _refused(error: KubewrightError, status: int) -> Response:
    return _json({"what": error.what, "detail": error.detail, "remedy": error.remedy}, status=status)


def _json(value: Mapping[str, Any], *, status: int = 200) -> Response:
    return Response(status=status, headers={"content-type": "application/json"}, body=json.dumps(value).encode())
