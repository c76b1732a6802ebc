"""Seams that do nothing and say what would be done, in kubeadm's form for a dry run (spec/kubeadm.md 2.5)."""

from __future__ import annotations

from collections.abc import Callable

from kubewright.base.change import Action as ChangeAction
from kubewright.base.change import Change
from kubewright.base.events import Line, Reporter, Waited
from kubewright.base.masking import mask
from kubewright.base.waiting import Condition
from kubewright.host.desired import Accounts, Desired, Directory, File, Ownership, Service, Show
from kubewright.host.facts import Facts
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host
from kubewright.kube.dry_run import TOPIC


def announce(reporter: Reporter, text: str) -> None:
    """Say one thing that would be done."""
    reporter.emit(Line(topic=TOPIC, text=text))


class TellingHost(OverlayHost):
    """An overlay that tells each file with its real path and content; certificates and kubeconfigs are not told."""

    def __init__(self, base: Host, *, reporter: Reporter, facts: Facts | None = None) -> None:
        super().__init__(base, facts=facts)
        self._reporter = reporter

    def ensure(self, desired: Desired, /) -> Change:
        if isinstance(desired, Accounts):  # told and not added, as with kubeadm: their numbers are only known when they are
            announce(self._reporter, f"Would create the users and groups [{' '.join(desired.groups)}] unless they are there")
            return Change(target=desired.target, action=ChangeAction.NONE)
        change = super().ensure(desired)
        if change:
            self._tell(desired, change)
        return change

    def _tell(self, desired: Desired, change: Change) -> None:
        match desired:
            case File(show=Show.DIFF):
                text = mask(desired.content.decode(errors="replace").rstrip("\n"))
                announce(self._reporter, f'Would write file "{desired.path}" with content:\n{text}')
            case Directory():
                announce(self._reporter, f'Would make sure that the directory "{desired.path}" is there')
            case Ownership():
                announce(self._reporter, f'Would give "{desired.path}" to user {desired.owner} and group {desired.group}')
            case Service():
                announce(self._reporter, f"Would {change.reason.replace(', ', ' and ')} the service {desired.name}")


class TellingWaiter:
    """Waits for nothing, and says what would be waited for."""

    def __init__(self, *, reporter: Reporter) -> None:
        self._reporter = reporter

    def until(
        self,
        condition: Condition,
        /,
        *,
        within: float,
        saying: str,
        every: float = 0.05,
        at_most: float = 0.5,
        diagnose: Callable[[], str] | None = None,
        remedy: str = "",
    ) -> Waited:
        announce(self._reporter, f"Would wait for {saying}")
        return Waited(what=saying, seconds=0.0)
