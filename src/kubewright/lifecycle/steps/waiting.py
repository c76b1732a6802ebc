"""Waiting for the components of this machine, with what it says of them as the reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError

if TYPE_CHECKING:
    from kubewright.base.events import Waited
    from kubewright.base.wait import Condition
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.context import MachineContext
    from kubewright.workflow.phases import Step

LOOK: Final = 0.02
"""Seconds between two looks at a server that is about to answer: its start is what everything else waits for."""
_REMEDY: Final = "mend what the component complains about, then run the same command again"


def until(
    ctx: MachineContext,
    condition: Condition,
    *,
    saying: str,
    blame: Sequence[str],
    within: float | None = None,
    every: float = LOOK,
    remedy: str = _REMEDY,
) -> Waited:
    """Wait, `within` seconds at most; without them, for as long as the configuration allows for components.

    `blame` names the static pods that it needs, in the order in which they need each other. What they, the kubelet and the runtime say is
    the reason that is shown, and the diagnosis of a failure. Raises ComponentFailed as soon as waiting is pointless, WaitTimeout in the end.
    """
    reasons = ctx.reasons(blame)
    return ctx.waiter.until(
        reasons.beside(condition),
        within=ctx.configuration.init.timeouts.control_plane_component_health_check.seconds if within is None else within,
        saying=saying,
        every=every,
        at_most=every,
        diagnose=reasons.diagnose,
        remedy=remedy,
    )


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
