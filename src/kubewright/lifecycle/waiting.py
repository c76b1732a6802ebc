"""Waiting for something on this machine, with what it says of its components as the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kubewright.base.events import Waited
    from kubewright.base.waiting import Condition
    from kubewright.lifecycle.context import MachineContext

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
