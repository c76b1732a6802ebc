"""The tree of `upgrade rollback`, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

PHASES: Final[Phases[UpgradeContext]] = Phases(
    Phase("preflight", "List what goes back, and ask", run=lambda ctx: ctx.bound.preflight(ctx), flags="yes"),
    Phase("control-plane", "Put the earlier static pods of this machine back", run="kubewright.lifecycle.upgrade.rollback:take_back"),
)
