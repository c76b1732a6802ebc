"""The phase `preflight`: the list of what goes, the user's word, and root."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

from kubewright.base.change import Change
from kubewright.base.errors import CheckFailed, UsageError
from kubewright.base.events import Line
from kubewright.lifecycle.reset.context import ResetContext

ROOT = "IsPrivilegedUser"
QUESTION = "[reset] Are you sure you want to proceed? [y/N]: "
_CLEANUP = "cleanup-node"
_YES = frozenset({"y", "yes"})


def asked(ctx: ResetContext) -> Iterable[Change]:
    """Check a run that changes the machine: list what goes, and ask, unless the configuration says `force` or nothing is there."""
    ask = None if ctx.configuration.force else ctx.request.ask
    if ask is None:
        checked(ctx)
        _hurry(ctx)
    lines = ctx.remains.listing()
    if not lines:
        ctx.say("There is nothing of a cluster on this machine")
    else:
        ctx.say("What goes from this machine:\n" + "\n".join(f"\t{line}" for line in lines))
        confirm(ask)
    if ask is not None:
        checked(ctx)
    return ()


def _hurry(ctx: ResetContext) -> None:
    """Begin what takes time and will be done: nobody is asked."""
    with suppress(Exception):  # the step that stops it meets the same, and tells it
        if _CLEANUP in ctx.bound.phases and ctx.remains.kubelet is not None:
            ctx.stopping.begin()


def confirm(ask: Callable[[str], str] | None) -> None:
    """Ask whether to go on. Raises UsageError for any other answer than y or yes."""
    if ask is not None and ask(QUESTION).rstrip("\r\n").lower() not in _YES:
        raise UsageError("nothing was reset: the answer was not y", remedy="answer y, or give --force, which does not ask")


def checked(ctx: ResetContext) -> Iterable[Change]:
    """Check that the user may do this. Raises CheckFailed."""
    ctx.reporter.emit(Line(topic="preflight", text="Running pre-flight checks"))
    ignored = {name.lower() for name in ctx.configuration.ignore_preflight_errors}
    if ctx.host.facts.user != 0 and not ignored & {ROOT.lower(), "all"}:
        raise CheckFailed(
            "this machine cannot be reset by this user", detail=f"[ERROR {ROOT}]: user is not running as root", remedy="run it with sudo"
        )
    return ()
