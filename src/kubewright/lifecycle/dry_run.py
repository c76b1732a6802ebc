"""kubeadm's form of a dry run (kubeadm v1.36: util/apiclient/dryrun.go): actions are reported, and files are written to a directory.

The environment names the directory; otherwise a new one is used and removed at the end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, cast

from kubewright.base.change import Action, Change
from kubewright.base.errors import UsageError
from kubewright.base.events import Line, Reporter
from kubewright.base.masking import mask
from kubewright.base.wait import InstantWaiter, Waiter
from kubewright.host import overlay
from kubewright.host.desired import Accounts, Desired, Directory, File, Ownership, Service, Show
from kubewright.host.filesystem.trees import remove_tree
from kubewright.host.overlay import OverlayHost
from kubewright.host.seam import Host
from kubewright.lifecycle.machine import TargetMachine, is_root, state_home

TOPIC: Final = "dryrun"
_TRIES: Final = 20


def announce(reporter: Reporter, text: str) -> None:
    """Report an action."""
    reporter.emit(Line(topic=TOPIC, text=text))


class DryRunHost(OverlayHost):
    """An overlay that reports each file with its real path and content, except certificates and kubeconfigs.

    Files in `keeps` stay although a run removes them, so that users can see them.
    """

    def __init__(self, base: Host, *, reporter: Reporter, keeps: Iterable[PurePosixPath] = ()) -> None:
        super().__init__(base)
        self._reporter = reporter
        self._keeps = frozenset(keeps)

    def remove(self, path: PurePosixPath, /, *, own: Collection[PurePosixPath] = ()) -> Change:
        return Change(target=f"file {path}", action=Action.NONE) if path in self._keeps else super().remove(path, own=own)

    def ensure(self, desired: Desired, /) -> Change:
        if isinstance(desired, Accounts):  # reported and not added, as in kubeadm: their IDs are known only after creation
            announce(self._reporter, f"Would create the users and groups [{' '.join(desired.groups)}] unless they exist")
            return Change(target=desired.target, action=Action.NONE)
        change = super().ensure(desired)
        if change:
            self._report(desired, change)
        return change

    def _report(self, desired: Desired, change: Change) -> None:
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


def waiter(reporter: Reporter) -> Waiter:
    """Return a waiter that does not wait, and reports the waits."""
    return InstantWaiter(report=lambda saying: announce(reporter, f"Would wait for {saying}"))


@contextmanager
def directory(writer: Host, machine: TargetMachine, *, variable: str, prefix: str) -> Iterator[PurePosixPath]:
    """Yield the directory of one dry run.

    The one that the variable names stays; a new one is removed at the end. As root it is below /etc/kubernetes/tmp,
    else below $XDG_STATE_HOME/kubewright/dryrun. Raises UsageError for a relative path.
    """
    named = machine.environment.get(variable, "")
    if named:
        yield _absolute(named, variable)
        return
    made = _free(writer, machine, prefix)
    try:
        writer.ensure(Directory(path=made.parent, mode=0o700))
        writer.ensure(Directory(path=made, mode=0o700))
        yield made
    finally:
        _remove(made)


def _remove(made: PurePosixPath) -> None:
    """Remove a directory with keys, also if it is interrupted.

    When a terminal is closed, a write to it may fail before SIGHUP arrives, so that the signal arrives during the removal.
    """
    try:
        remove_tree(made)
    except KeyboardInterrupt:
        remove_tree(made)
        raise


def write(host: Host, place: PurePosixPath, *, writer: Host, copies: Iterable[PurePosixPath], reporter: Reporter) -> list[Change]:
    """Write the files of an overlay, and copies of some existing files, to the directory, and report this.

    Returns the changes there.
    """
    written = overlay.materialise(cast("OverlayHost", host), place, writer=writer, copies=copies)
    announce(reporter, f'Wrote certificates, kubeconfigs, manifests and the files of the kubelet to "{place}"')
    announce(reporter, "Certificates and kubeconfigs were not printed, because they contain private keys")
    return written


def say_whether_kept(machine: TargetMachine, variable: str, *, reporter: Reporter) -> None:
    """Report that the directory was removed, if it was."""
    if not machine.environment.get(variable):
        announce(reporter, f"That directory is removed again; set {variable} to a directory to keep it")


def parent(host: Host, machine: TargetMachine) -> PurePosixPath:
    """Return the directory that contains the directories of dry runs."""
    return host.layout.kubernetes / "tmp" if is_root(host) else state_home(machine.environment) / "dryrun"


def _absolute(named: str, variable: str) -> PurePosixPath:
    if not named.startswith("/"):
        raise UsageError(f"{variable}={named} is not an absolute path", remedy="use an absolute path")
    return PurePosixPath(named)


def _free(writer: Host, machine: TargetMachine, prefix: str) -> PurePosixPath:
    above = parent(writer, machine)
    for _ in range(_TRIES):
        made = above / f"{prefix}{int.from_bytes(machine.random.token_bytes(4), 'big')}"
        if writer.state(made) is None:
            return made
    raise UsageError(f"no name for a directory is free in {above}", remedy=f"remove what earlier dry runs have left in {above}")
