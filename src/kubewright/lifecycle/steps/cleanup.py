"""The phase `cleanup-node`, of `reset` and of `node leave`: steps in a table, each tried whatever became of those before it (kubeadm v1.36: cmd/phases/reset/cleanupnode.go).

kubeadm unmounts first and removes pods then, and stops at a file system that is busy. Here pods go first: they keep them busy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError, RuntimeSilent, RuntimeUnavailable
from kubewright.base.events import Reporter, Warned
from kubewright.base.records import dataclass, field
from kubewright.host.desired import Service
from kubewright.host.failures import BUG, expected
from kubewright.host.seam import Host
from kubewright.lifecycle.background_task import BackgroundTask
from kubewright.lifecycle.steps import boot_recovery, kubelet_service
from kubewright.lifecycle.steps.inventory import SERVICE, Inventory

if TYPE_CHECKING:
    from kubewright.host.packet_filter import Rules


@dataclass(frozen=True, kw_only=True)
class Cleanup:
    """What the steps work with. `tell` reports a step, as `Bound.tell` does: what is said where it is done, and in a dry run.

    `member_removed`: the etcd member has been removed in this run, and may have written until it ended.
    """

    host: Host
    clock: Clock
    reporter: Reporter
    inventory: Inventory
    tell: Callable[[str, str], None]
    unmount_flags: Sequence[str] = ()
    member_removed: bool = False
    failures: list[KubewrightError] = field(default_factory=list)

    @functools.cached_property
    def stopping(self) -> BackgroundTask[Change]:
        """Stopping the kubelet, which may be begun before its step."""
        return BackgroundTask(lambda: self.host.ensure(Service(name=SERVICE, running=False)))

    def attempt(self, work: Callable[[], Iterable[Change]]) -> Iterator[Change]:
        """Yield the changes of a step. What it raises, be it a bug of ours, is told and kept for the end, and the next step follows."""
        try:
            yield from work()
        except Exception as error:  # the keys that the next step removes are worth more than our surprise
            failure = expected(error)
            self.failures.append(failure)
            self.warn(str(failure))

    def warn(self, text: str) -> None:
        """Report what the user should know, and what is no failure of the run."""
        self.reporter.emit(Warned(text=text))


Step = Callable[[Cleanup], Iterable[Change]]


def run(ctx: Cleanup) -> Iterator[Change]:
    """Go through all steps. What we keep of the machine goes last, and not after a failure: the next run needs it."""
    before = len(ctx.failures)
    for step in STEPS:
        yield from ctx.attempt(lambda step=step: step(ctx))  # type: ignore[misc]
    if len(ctx.failures) == before:
        yield from ctx.attempt(lambda: forget(ctx))


def stop_kubelet(ctx: Cleanup) -> Iterator[Change]:
    """Stop the kubelet: it would start the pods again."""
    runs = True
    with suppress(Exception):  # what does not tell its state may stop all the same
        found = ctx.inventory.kubelet
        if found is None:
            ctx.warn("no service manager that knows the kubelet was found: make sure that it does not run")
            return
        runs = found.running or found.again
    ctx.tell("Stopping the kubelet service" * runs, "Would stop the kubelet service")
    yield ctx.stopping.result()


def remove_pods(ctx: Cleanup) -> Iterator[Change]:
    """Stop and remove all pods. Without a container runtime that is a warning, as with kubeadm.

    One that did not list its pods at the beginning is asked again. One that is there and never answers may have them running: a failure.
    """
    ctx.tell("", "Would remove Kubernetes-managed containers")
    known = not isinstance(ctx.inventory.pods, HostError)
    from kubewright.host.images_and_sandboxes import remove_sandboxes

    try:
        removals = remove_sandboxes(ctx.host.runtime, clock=ctx.clock)
    except RuntimeUnavailable as error:
        if known or isinstance(error, RuntimeSilent):
            raise
        ctx.warn(f"pods cannot be removed: {error}")
        return
    yield from (removal.change for removal in removals if removal.change is not None)
    failed = {removal.sandbox.target: removal.error for removal in removals if removal.error is not None}
    if failed:
        told = "check them in the container runtime"
        raise _combined([*failed.values()], what="not every pod could be removed", remedy=told, names=[*failed])


def remove_files(ctx: Cleanup) -> Iterator[Change]:
    """Remove the kubeconfigs, and certificates that lie where nobody named them. All of them are tried."""
    paths = [*ctx.inventory.kubeconfigs, *ctx.inventory.certificates]
    there = [path for path in paths if _seen(ctx.host.state, path)]
    ctx.tell(f"Deleting files: {_list(there)}" * bool(there), f"Would delete files: {_list(paths)}")
    return _attempt_all((partial(ctx.host.remove, path) for path in paths), what="not every file could be removed")


def empty_directories(ctx: Cleanup) -> Iterator[Change]:
    """Empty the directories of the cluster, which stay, but for the kubelet's. All of them are tried."""
    inventory, kubelet = ctx.inventory, ctx.inventory.layout.kubelet
    if kubelet not in inventory.directories:
        ctx.warn(f'"{kubelet}" is not there, and not emptied')
    told = [path for path in inventory.directories if path != kubelet]  # kubeadm's dry run leaves it out
    filled = [path for path in inventory.directories if _seen(ctx.host.entries, path)]
    ctx.tell(f"Deleting contents of directories: {_list(filled)}" * bool(filled), f"Would delete contents of directories: {_list(told)}")
    return _attempt_all((partial(ctx.host.empty, path) for path in told), what="not every directory could be emptied")


def unmount(ctx: Cleanup) -> Iterator[Change]:
    """Unmount what is below the kubelet's directory, what was mounted last first. All of it is tried."""
    directory = ctx.inventory.layout.kubelet
    flags, mounts = ctx.unmount_flags, ctx.inventory.mounts
    ctx.tell(f'Unmounting mounted directories in "{directory}"' * bool(mounts), f'Would unmount mounted directories in "{directory}"')
    acts = (partial(ctx.host.unmount, path, flags=flags) for path in reversed(mounts))
    return _attempt_all(acts, what="not everything could be unmounted")


def empty_kubelet(ctx: Cleanup) -> Iterator[Change]:
    """Empty the kubelet's directory, after all else: pods have filled it, and nobody knows with what."""
    if ctx.inventory.layout.kubelet in ctx.inventory.directories:
        yield ctx.host.empty(ctx.inventory.layout.kubelet)


def remove_accounts(ctx: Cleanup) -> Iterator[Change]:
    """Remove the users and groups of a control plane that does not run as root."""
    if not ctx.inventory.accounts:
        return
    from kubewright.manifests import rootless

    ctx.tell("Deleting the users and groups of the control plane", "Would delete the users and groups of the control plane")
    yield ctx.host.remove_accounts(rootless.accounts(ctx.inventory.layout))


def remove_cni(ctx: Cleanup) -> Iterator[Change]:
    """Remove the CNI configuration that the list named. All of it is tried."""
    paths = ctx.inventory.cni
    if paths:
        ctx.tell(f"Deleting CNI configuration: {_list(paths)}", f"Would delete CNI configuration: {_list(paths)}")
    return _attempt_all((partial(ctx.host.remove, path) for path in paths), what="not every file of CNI could be removed")


def remove_rules(ctx: Cleanup) -> Iterator[Change]:
    """Remove what kube-proxy and CNI plugins left in the packet filter. All of it is tried."""
    rules = ctx.inventory.rules
    if isinstance(rules, HostError):
        raise rules

    def remove(one: Rules) -> Change:
        ctx.tell(f"Removing rules of the packet filter: {one.target}", f"Would remove rules of the packet filter: {one.target}")
        return ctx.host.packet_filter.remove(one)

    acts = (partial(remove, one) for one in rules)
    return _attempt_all(acts, what="the packet filter still has rules of the cluster", remedy="see what `nft list ruleset` says")


def empty_etcd(ctx: Cleanup) -> Iterator[Change]:
    """Empty the data directory of this machine's member."""
    data = ctx.inventory.layout.etcd_data
    if not ctx.inventory.etcd_data:
        return
    ctx.tell("", f"Would delete contents of the etcd data directory: {data}")
    yield ctx.host.empty(data)
    ctx.tell(f"Deleted contents of the etcd data directory: {data}", "")


def empty_etcd_again(ctx: Cleanup) -> Iterator[Change]:
    """Remove what etcd wrote between the phase that emptied its directory and its end."""
    return empty_etcd(ctx) if ctx.member_removed else iter(())


def remove_units(ctx: Cleanup) -> Iterator[Change]:
    """Remove the unit files of the kubelet that we installed: those of a package stay."""
    units = ctx.inventory.units
    if units:
        ctx.tell(f"Deleting the units of the kubelet: {_list(units)}", f"Would delete the units of the kubelet: {_list(units)}")
        yield ctx.host.remove_units(SERVICE, units=units)


def remove_recovery(ctx: Cleanup) -> Iterator[Change]:
    """Remove the unit that completes an interrupted operation at boot: nothing is left to complete."""
    if ctx.host.state(boot_recovery.unit_path(ctx.host)) is not None:
        ctx.tell(f"Deleting the unit {boot_recovery.SERVICE}", f"Would delete the unit {boot_recovery.SERVICE}")
        yield boot_recovery.remove(ctx.host)


def restore_service(ctx: Cleanup) -> Iterator[Change]:
    """Enable or disable the kubelet's service as it was before a join changed that, where its unit is not ours."""
    earlier = kubelet_service.to_restore(ctx.host)
    if earlier is not None:
        what = f"the kubelet service, as it was before: {'enabled' if earlier.enabled else 'disabled'}"
        ctx.tell(f"Restoring {what}", f"Would restore {what}")
        yield ctx.host.ensure(earlier)


def remove_tunnel(ctx: Cleanup) -> Iterator[Change]:
    """Remove the machine's end of a VPN: its service, an interface that outlived it, its unit. The key has gone with its directory."""
    unit = ctx.inventory.tunnel
    if unit is None:
        return
    ctx.tell(f"Removing the tunnel {unit.stem}", f"Would remove the tunnel {unit.stem}")
    yield ctx.host.ensure(Service(name=unit.stem, running=False))
    yield ctx.host.remove_tunnel(unit.stem)
    yield ctx.host.remove_units(unit.stem, units=(unit,))  # last: a run that is broken off leaves what the next one finds


def forget(ctx: Cleanup) -> Iterator[Change]:
    """Remove what we keep of the machine. What else is in its directory is not this machine's: a hub may have its state there."""
    layout = ctx.inventory.layout
    there = [path for path in layout.kept_files if ctx.host.state(path) is not None]
    if there:
        ctx.tell(f"Deleting the records of this machine: {_list(there)}", f"Would delete the records of this machine: {_list(there)}")
    yield from map(ctx.host.remove, there)
    if ctx.host.state(layout.state) is not None and not ctx.host.entries(layout.state):
        yield ctx.host.remove(layout.state)


STEPS: Final[tuple[Step, ...]] = (
    stop_kubelet,
    remove_pods,
    empty_etcd_again,
    empty_directories,
    remove_files,
    unmount,
    empty_kubelet,
    remove_rules,
    remove_cni,
    remove_accounts,
    remove_units,
    remove_recovery,
    restore_service,
    remove_tunnel,
)
"""Keys and kubeconfigs go before the kubelet's directory, where a mount may hang and a tree may take long."""


def _list(paths: Iterable[PurePosixPath]) -> str:
    return f"[{' '.join(map(str, paths))}]"


def _seen(look: Callable[[PurePosixPath], object], path: PurePosixPath) -> bool:
    """Whether there is something; True if that cannot be seen: the step tries it all the same."""
    try:
        return bool(look(path))
    except Exception:  # the step tells of it
        return True


def _attempt_all(acts: Iterable[Callable[[], Change]], *, what: str, remedy: str = "") -> Iterator[Change]:
    """Do all of a step, whatever becomes of its parts, and yield the changes. Then raises HostError, saying `what`, for those that failed."""
    failed = list[KubewrightError]()
    for act in acts:
        try:
            change = act()
        except Exception as error:
            failed.append(expected(error))
        else:
            yield change
    if failed:
        raise _combined(failed, what=what, remedy=remedy or failed[0].remedy)


def _combined(failed: Sequence[KubewrightError], *, what: str, remedy: str, names: Sequence[str] = ()) -> HostError:
    """Return one error for several, by the names of what failed; where one of them is a bug of ours, its remedy says so too."""
    told_of = [f"{name}: {error}" for name, error in zip(names, failed, strict=True)] if names else list(map(str, failed))
    remedies = dict.fromkeys([remedy, *(error.remedy for error in failed if error.remedy == BUG)])
    told = HostError(what, detail="\n".join(told_of), remedy="; ".join(filter(None, remedies)))
    told.__cause__ = failed[0] if len(failed) == 1 else ExceptionGroup(what, failed)
    return told
