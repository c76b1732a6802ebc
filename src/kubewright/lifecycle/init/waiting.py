"""The waiting phases of init: until the API server takes writes, and until every component is healthy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kubewright.base.errors import APIError, NotFound
from kubewright.base.events import Waited
from kubewright.base.waiting import Condition
from kubewright.kube.resources import named
from kubewright.lifecycle.init.context import InitContext

_LOOK: Final = 0.02
"""Seconds between two looks at a server that is about to answer: its start is what everything else waits for."""


def control_plane(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the API server accepts what the next phases write."""
    ctx.say("wait-control-plane", f'Waiting for the control plane to start as static pods from "{ctx.layout.manifests}"')

    def accepts() -> str | None:
        try:
            ctx.probe.get(named("Namespace"), "kube-system")
        except NotFound:
            return "its namespaces are not there yet"
        except APIError as error:
            return str(error)
        return None

    yield until(ctx, accepts, saying="the API server to take requests", blame=("kube-apiserver", "etcd"))


def components(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the API server is ready and the other components answer that they are healthy."""
    yield from api_server(ctx)
    for name, healthy in ctx.health_checks.items():
        yield until(ctx, healthy, saying=f"{name} to be healthy", blame=(name,))


def api_server(ctx: InitContext) -> Iterable[Waited]:
    """Wait until the API server calls itself ready: all its post-start hooks are through."""

    def ready() -> str | None:
        try:
            answer = ctx.probe.raw("GET", "/readyz")
        except APIError as error:
            return str(error)
        return None if answer.status == 200 else _failing(answer.body.decode(errors="replace"))

    yield until(ctx, ready, saying="the API server to be ready", blame=("kube-apiserver",))


def until(ctx: InitContext, condition: Condition, *, saying: str, blame: Sequence[str]) -> Waited:
    """Wait for a part of the control plane, for as long as the configuration allows; a failure shows the last words of those to blame."""
    return ctx.waiter.until(
        condition,
        within=ctx.configuration.init.timeouts.control_plane_component_health_check.seconds,
        saying=saying,
        every=_LOOK,
        at_most=_LOOK,
        diagnose=_last_words(ctx, *blame),
        remedy="mend what the component complains about, then run the same command again",
    )


def _failing(body: str) -> str:
    """Name the checks that /readyz calls failed."""
    names = [line.removeprefix("[-]").split(" ")[0] for line in body.splitlines() if line.startswith("[-]")]
    return f"not yet: {', '.join(names)}" if names else "it is not ready"


def _last_words(ctx: InitContext, *names: str) -> Callable[[], str]:
    def tell() -> str:
        told = []
        for name in names:
            lines = ctx.host.runtime.last_lines(name, count=10)
            if lines:
                told.append(f"the last lines of {name}:\n" + "\n".join(lines))
        return "\n".join(told)

    return tell
