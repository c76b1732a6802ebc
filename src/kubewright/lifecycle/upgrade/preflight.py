"""The checks of a machine before it is upgraded. Those of control planes are in `control_plane.checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.base.checks import run_checks
from kubewright.lifecycle.steps import preflight
from kubewright.lifecycle.upgrade.context import NO_CONTROL_PLANE
from kubewright.preflight import lists
from kubewright.preflight.checks import Subject

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

TOPIC: Final = "upgrade/preflight"


def node(ctx: UpgradeContext) -> None:
    """Check the machine before `upgrade node`. Raises CheckFailed."""
    ctx.say(TOPIC, "Running pre-flight checks")
    check_machine(ctx)
    if not ctx.control_plane:
        ctx.say(TOPIC, f"Skipping prepull. {NO_CONTROL_PLANE}")


def check_machine(ctx: UpgradeContext) -> None:
    """Check the machine. Raises CheckFailed."""
    subject = Subject(host=ctx.host, node=ctx.task.init.node_registration, addresses=ctx.addresses, user=ctx.host.facts.user)
    preflight.require_passed(run_checks(lists.UPGRADE, subject, ignored=ctx.task.settings.ignore_preflight_errors), reporter=ctx.reporter)
