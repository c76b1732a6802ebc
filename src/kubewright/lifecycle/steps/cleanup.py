"""The phase `cleanup-node` of `reset` and of `node leave`: a table of steps, each tried even after failures.

Source: kubeadm v1.36: cmd/phases/reset/cleanupnode.go.

kubeadm unmounts first and then removes pods, and stops at a busy file system. Here pods are removed first, because they
keep file systems busy.
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
    from kubewright.host.programs.packet_filter import Rules


@dataclass(frozen=True, kw_only=True)
class Cleanup:
    """The context of the steps.

    `report_step` reports a step, as `Bound.report_step` does: one text if it is done, another in a dry run.
    `member_removed`: the etcd member was removed in this run, and may have written until it exited.
    """

    host: Host
    clock: Clock
    reporter: Reporter
    inventory: Inventory
    report_step: Callable[[str, str], None]
    unmount_flags: Sequence[str] = ()
    member_removed: bool = False
    failures: list[KubewrightError] = field(default_factory=list)

    @functools.cached_property
    def stopping(self) -> BackgroundTask[Change]:
        """The stop of the kubelet, which takes time and may therefore begin before its step."""
        return BackgroundTask(lambda: self.host.ensure(Service(name=SERVICE, running=False)))

    def attempt(self, work: Callable[[], Iterable[Change]]) -> Iterator[Change]:
        """Yield the changes of a step.

        Exceptions, including bugs of ours, are reported and kept for the end, and the next step follows.
        """
        try:
            yield from work()
        except Exception as error:  # removing the keys in the next step matters more than this exception
            failure = expected(error)
            self.failures.append(failure)
            self.warn(str(failure))

    def warn(self, text: str) -> None:
        """Report a warning, which is not a failure of the run."""
        self.reporter.emit(Warned(text=text))


Step = Callable[[Cleanup], Iterable[Change]]


def run(ctx: Cleanup) -> Iterator[Change]:
    """Run all steps. Our record of the machine is removed last, and not after a failure: the next run needs it."""
    before = len(ctx.failures)
    for step in STEPS:
        yield from ctx.attempt(lambda step=step: step(ctx))  # type: ignore[misc]
    if len(ctx.failures) == before:
        yield from ctx.attempt(lambda: forget(ctx))


def stop_kubelet(ctx: Cleanup) -> Iterator[Change]:
    """Stop the kubelet, which would start the pods again."""
    runs = True
    with suppress(Exception):  # a service of unknown state may still be stopped
        found = ctx.inventory.kubelet
        if found is None:
            ctx.warn("no service manager that knows the kubelet was found: make sure that it does not run")
            return
        runs = found.running or found.again
    ctx.report_step("Stopping the kubelet service" if runs else "", "Would stop the kubelet service")
    yield ctx.stopping.result()


def remove_pods(ctx: Cleanup) -> Iterator[Change]:
    """Stop and remove all pods. A missing container runtime is a warning, as in kubeadm.

    A runtime that did not list its pods at the beginning is tried again. One that exists and never answers may have
    running pods: a failure.
    """
    ctx.report_step("", "Would remove Kubernetes-managed containers")
    known = not isinstance(ctx.inventory.pods, HostError)
    from kubewright.host.cri.images_and_sandboxes import remove_sandboxes

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
        hint = "check them in the container runtime"
        raise _combined([*failed.values()], what="not every pod could be removed", remedy=hint, names=[*failed])


def remove_files(ctx: Cleanup) -> Iterator[Change]:
    """Remove the kubeconfigs, and certificates in a directory that was not named explicitly. All of them are tried."""
    paths = [*ctx.inventory.kubeconfigs, *ctx.inventory.certificates]
    there = [path for path in paths if _seen(ctx.host.state, path)]
    ctx.report_step(f"Deleting files: {_list(there)}" * bool(there), f"Would delete files: {_list(paths)}")
    return _attempt_all((partial(ctx.host.remove, path) for path in paths), what="not every file could be removed")


def empty_directories(ctx: Cleanup) -> Iterator[Change]:
    """Empty the directories of the cluster, except the kubelet's; the directories stay. All of them are tried."""
    inventory, kubelet = ctx.inventory, ctx.inventory.layout.kubelet
    if kubelet not in inventory.directories:
        ctx.warn(f'"{kubelet}" does not exist and was not emptied')
    directories = [path for path in inventory.directories if path != kubelet]  # kubeadm's dry run leaves it out
    filled = [path for path in inventory.directories if _seen(ctx.host.entries, path)]
    ctx.report_step(
        f"Deleting contents of directories: {_list(filled)}" * bool(filled), f"Would delete contents of directories: {_list(directories)}"
    )
    return _attempt_all((partial(ctx.host.empty, path) for path in directories), what="not every directory could be emptied")


def unmount(ctx: Cleanup) -> Iterator[Change]:
    """Unmount file systems below the kubelet's directory, the latest mount first. All of them are tried."""
    directory = ctx.inventory.layout.kubelet
    flags, mounts = ctx.unmount_flags, ctx.inventory.mounts
    ctx.report_step(
        f'Unmounting mounted directories in "{directory}"' * bool(mounts), f'Would unmount mounted directories in "{directory}"'
    )
    acts = (partial(ctx.host.unmount, path, flags=flags) for path in reversed(mounts))
    return _attempt_all(acts, what="not everything could be unmounted")


def empty_kubelet(ctx: Cleanup) -> Iterator[Change]:
    """Empty the kubelet's directory last: pods have filled it with arbitrary contents."""
    if ctx.inventory.layout.kubelet in ctx.inventory.directories:
        yield ctx.host.empty(ctx.inventory.layout.kubelet)


def remove_accounts(ctx: Cleanup) -> Iterator[Change]:
    """Remove the users and groups of a control plane that does not run as root."""
    if not ctx.inventory.accounts:
        return
    from kubewright.manifests import rootless

    ctx.report_step("Deleting the users and groups of the control plane", "Would delete the users and groups of the control plane")
    yield ctx.host.remove_accounts(rootless.accounts(ctx.inventory.layout))


def remove_cni(ctx: Cleanup) -> Iterator[Change]:
    """Remove the CNI configuration in the list. All of it is tried."""
    paths = ctx.inventory.cni
    if paths:
        ctx.report_step(f"Deleting CNI configuration: {_list(paths)}", f"Would delete CNI configuration: {_list(paths)}")
    return _attempt_all((partial(ctx.host.remove, path) for path in paths), what="not every file of CNI could be removed")


def remove_rules(ctx: Cleanup) -> Iterator[Change]:
    """Remove rules of kube-proxy and CNI plugins from the packet filter. All of them are tried."""
    rules = ctx.inventory.rules
    if isinstance(rules, HostError):
        raise rules

    def remove(one: Rules) -> Change:
        ctx.report_step(f"Removing rules of the packet filter: {one.target}", f"Would remove rules of the packet filter: {one.target}")
        return ctx.host.packet_filter.remove(one)

    acts = (partial(remove, one) for one in rules)
    return _attempt_all(acts, what="the packet filter still has rules of the cluster", remedy="see the output of `nft list ruleset`")


def empty_etcd(ctx: Cleanup) -> Iterator[Change]:
    """Empty the data directory of this machine's member."""
    data = ctx.inventory.layout.etcd_data
    if not ctx.inventory.etcd_data:
        return
    ctx.report_step("", f"Would delete contents of the etcd data directory: {data}")
    yield ctx.host.empty(data)
    ctx.report_step(f"Deleted contents of the etcd data directory: {data}", "")


def empty_etcd_again(ctx: Cleanup) -> Iterator[Change]:
    """Remove files that etcd wrote between the phase that emptied its directory and its exit."""
    return empty_etcd(ctx) if ctx.member_removed else iter(())


def remove_units(ctx: Cleanup) -> Iterator[Change]:
    """Remove the kubelet's unit files that we installed; those of a package stay."""
    units = ctx.inventory.units
    if units:
        ctx.report_step(f"Deleting the units of the kubelet: {_list(units)}", f"Would delete the units of the kubelet: {_list(units)}")
        yield ctx.host.remove_units(SERVICE, units=units)


def remove_recovery(ctx: Cleanup) -> Iterator[Change]:
    """Remove the unit that completes an interrupted operation at boot: nothing is left to complete."""
    if ctx.host.state(boot_recovery.unit_path(ctx.host)) is not None:
        ctx.report_step(f"Deleting the unit {boot_recovery.SERVICE}", f"Would delete the unit {boot_recovery.SERVICE}")
        yield boot_recovery.remove(ctx.host)


def restore_service(ctx: Cleanup) -> Iterator[Change]:
    """Enable or disable the kubelet's service as it was before a join changed it, if its unit is not ours."""
    earlier = kubelet_service.to_restore(ctx.host)
    if earlier is not None:
        what = f"the kubelet service, as it was before: {'enabled' if earlier.enabled else 'disabled'}"
        ctx.report_step(f"Restoring {what}", f"Would restore {what}")
        yield ctx.host.ensure(earlier)


def remove_tunnel(ctx: Cleanup) -> Iterator[Change]:
    """Remove the machine's end of a VPN: its service, an interface that outlived it, its unit.

    The key was removed with its directory.
    """
    unit = ctx.inventory.tunnel
    if unit is None:
        return
    ctx.report_step(f"Removing the tunnel {unit.stem}", f"Would remove the tunnel {unit.stem}")
    yield ctx.host.ensure(Service(name=unit.stem, running=False))
    yield ctx.host.remove_tunnel(unit.stem)
    yield ctx.host.remove_units(unit.stem, units=(unit,))  # last: an interrupted run leaves it for the next one


def forget(ctx: Cleanup) -> Iterator[Change]:
    """Remove our files of the machine.

    Other files in the directory are not this machine's: a hub may have its state there.
    """
    layout = ctx.inventory.layout
    there = [path for path in layout.kept_files if ctx.host.state(path) is not None]
    if there:
        ctx.report_step(
            f"Deleting the records of this machine: {_list(there)}", f"Would delete the records of this machine: {_list(there)}"
        )
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
"""Keys and kubeconfigs are removed before the kubelet's directory, where a mount may hang and a tree may take long."""


def _list(paths: Iterable[PurePosixPath]) -> str:
    return f"[{' '.join(map(str, paths))}]"


def _seen(look: Callable[[PurePosixPath], object], path: PurePosixPath) -> bool:
    """Return whether something exists; True if that cannot be determined: the step then tries it."""
    try:
        return bool(look(path))
    except Exception:  # the step reports it
        return True


def _attempt_all(acts: Iterable[Callable[[], Change]], *, what: str, remedy: str = "") -> Iterator[Change]:
    """Do all parts of a step, regardless of failures, and yield the changes.

    Then raises HostError, with `what`, for those that failed.
    """
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
    """Return one error for several, with the names of the failed parts.

    If one of them is a bug of ours, its remedy includes that.
    """
    details = [f"{name}: {error}" for name, error in zip(names, failed, strict=True)] if names else list(map(str, failed))
    remedies = dict.fromkeys([remedy, *(error.remedy for error in failed if error.remedy == BUG)])
    combined = HostError(what, detail="\n".join(details), remedy="; ".join(filter(None, remedies)))
    combined.__cause__ = failed[0] if len(failed) == 1 else ExceptionGroup(what, failed)
    return combined
