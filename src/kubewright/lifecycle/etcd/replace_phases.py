"""The tree of `etcd member replace`, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.etcd.context import ReplaceContext

_FLAGS: Final = "endpoints yes"

PHASES: Final[Phases[ReplaceContext]] = Phases(
    Phase("preflight", "Check that the other members have a majority, and ask", run=lambda ctx: ctx.bound.preflight(ctx), flags=_FLAGS),
    Phase("replace", "Remove the member, and add it again without data", run="kubewright.lifecycle.etcd.replace:carried_out", flags=_FLAGS),
)
