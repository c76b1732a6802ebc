"""The waiting phases of init: until the API server takes writes, and until every component is healthy."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.base.errors import APIError, NotFound
from kubewright.base.events import Waited
from kubewright.kube.resources import named
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps.waiting import healthy, until
from kubewright.workflow.phases import Step


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
