"""The waiting phases of init: until the API server takes writes, and until every component is healthy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from kubewright.base.errors import APIError, NotFound
from kubewright.base.events import Waited
from kubewright.base.waiting import Condition
from kubewright.kube.resources import named
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.waiting import until
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI


def control_plane(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the API server accepts what the next phases write."""
    ctx.say("wait-control-plane", f'Waiting for the control plane to start as static pods from "{ctx.layout.manifests}"')

    def accepts() -> str | None:
        ctx.turns.look()
        try:
            ctx.probe.get(named("Namespace"), "kube-system")
        except NotFound:
            return "its namespaces are not there yet"
        except APIError as error:
            return str(error)
        return None

    yield until(ctx, accepts, saying="the API server to take requests", blame=("etcd", "kube-apiserver"))


def components(ctx: InitContext) -> Iterable[Step]:
    """Wait until the API server is ready and the other components answer that they are healthy."""
    yield from healthy(ctx, probe=ctx.probe, others=ctx.health_checks)


def healthy(ctx: MachineContext, *, probe: KubeAPI, others: Mapping[str, Condition]) -> Iterable[Step]:
    """Wait for the API server that `probe` asks, then for the other components of this machine."""
    yield from api_server(ctx, probe=probe)
    yield from ctx.turns.finish()
    for name, condition in others.items():
        yield until(ctx, condition, saying=f"{name} to be healthy", blame=(name,))


def api_server(ctx: MachineContext, *, probe: KubeAPI) -> Iterable[Waited]:
    """Wait until the API server calls itself ready: all its post-start hooks are through."""

    def ready() -> str | None:
        ctx.turns.look()
        try:
            answer = probe.raw("GET", "/readyz")
        except APIError as error:
            return str(error)
        return None if answer.status == 200 else _failing(answer.body.decode(errors="replace"))

    yield until(ctx, ready, saying="the API server to be ready", blame=("kube-apiserver",))


def _failing(body: str) -> str:
    """Name the checks that /readyz calls failed."""
    names = [line.removeprefix("[-]").split(" ")[0] for line in body.splitlines() if line.startswith("[-]")]
    return f"not yet: {', '.join(names)}" if names else "it is not ready"
