"""The phase `cleanup-node`: a table of steps, each tried whatever became of those before it (spec/kubeadm.md 11).

kubeadm unmounts first and removes pods then, and stops at a file system that is busy. Here pods go first: they keep them busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.change import Change
from kubewright.base.errors import HostError, RuntimeSilent, RuntimeUnavailable
from kubewright.lifecycle.reset import etcd_member
from kubewright.lifecycle.reset.context import ResetContext
from kubewright.lifecycle.reset.remains import SERVICE

Step = Callable[[ResetContext], Iterable[Change]]

_ETCD: Final = "remove-etcd-member"


def run(ctx: ResetContext) -> Iterator[Change]:
    """Go through all steps. What we keep of the machine goes last, and not after a failure: the next run needs it."""
    before = len(ctx.failures)
    for step in STEPS:
        yield from ctx.attempt(lambda step=step: step(ctx))  # type: ignore[misc]
    if len(ctx.failures) == before:
        yield from ctx.attempt(lambda: forget(ctx))


def stop_kubelet(ctx: ResetContext) -> Iterator[Change]:
    """Stop the kubelet: it would start the pods again."""
    if ctx.remains.kubelet is None:
        ctx.warn("no service manager that knows the kubelet was found: see that it does not run")
        return
    ctx.tell("Stopping the kubelet service", "Would stop the kubelet service")
    yield ctx.stopping.result()


def remove_pods(ctx: ResetContext) -> Iterator[Change]:
    """Stop and remove all pods. Without a container runtime that is a warning, as with kubeadm.

    One that did not tell its pods at the beginning is asked again. One that is there and never answers may have them running: a failure.
    """
    ctx.tell("", "Would remove Kubernetes-managed containers")
    known = not isinstance(ctx.remains.pods, HostError)
    from kubewright.host.sandboxes import remove_sandboxes

    try:
        removals = remove_sandboxes(ctx.host.runtime, clock=ctx.clock)
    except RuntimeUnavailable as error:
        if known or isinstance(error, RuntimeSilent):
            raise
        ctx.warn(f"pods cannot be removed: {error}")
        return
    failed = []
    for removal in removals:
        if removal.change is not None:
            yield removal.change
        if removal.error is not None:
            failed.append(f"{removal.sandbox.target}: {removal.error}")
    if failed:
        raise HostError("not every pod could be removed", detail="\n".join(failed), remedy="see what the container runtime says of them")


def unmount(ctx: ResetContext) -> Iterator[Change]:
    """Unmount what is below the kubelet's directory, what was mounted last first. All of it is tried."""
    directory, failed = ctx.remains.layout.kubelet, list[HostError]()
    there = ctx.host.state(directory) is not None
    ctx.tell(f'Unmounting mounted directories in "{directory}"' * there, f'Would unmount mounted directories in "{directory}"')
    for path in reversed(ctx.remains.mounts):
        try:
            yield ctx.host.unmount(path, flags=ctx.configuration.unmount_flags)
        except HostError as error:
            failed.append(error)
    if failed:
        detail = "\n".join(str(error) for error in failed)
        raise HostError("not everything could be unmounted", detail=detail, remedy=failed[0].remedy)


def empty_directories(ctx: ResetContext) -> Iterator[Change]:
    """Empty the directories of the cluster, which stay. All of them are tried."""
    remains, failed = ctx.remains, list[HostError]()
    if remains.layout.kubelet not in remains.directories:
        ctx.warn(f'"{remains.layout.kubelet}" is not there, and not emptied')
    told = [path for path in remains.directories if path != remains.layout.kubelet]  # kubeadm's dry run leaves it out
    ctx.tell(f"Deleting contents of directories: {_list(remains.directories)}", f"Would delete contents of directories: {_list(told)}")
    for path in remains.directories:
        try:
            yield ctx.host.empty(path)
        except HostError as error:
            failed.append(error)
    if failed:
        raise (
            failed[0]
            if len(failed) == 1
            else HostError("not every directory could be emptied", detail="\n".join(map(str, failed)), remedy=failed[0].remedy)
        )


def remove_files(ctx: ResetContext) -> Iterator[Change]:
    """Remove the kubeconfigs, and certificates that lie where nobody named them."""
    paths = [*ctx.remains.kubeconfigs, *ctx.remains.certificates]
    ctx.tell(f"Deleting files: {_list(paths)}", f"Would delete files: {_list(paths)}")
    yield from map(ctx.host.remove, paths)


def remove_accounts(ctx: ResetContext) -> Iterator[Change]:
    """Remove the users and groups of a control plane that does not run as root."""
    if not ctx.remains.accounts:
        return
    from kubewright.manifests import rootless

    ctx.tell("Deleting the users and groups of the control plane", "Would delete the users and groups of the control plane")
    yield ctx.host.remove_accounts(rootless.accounts(ctx.remains.layout))


def remove_cni(ctx: ResetContext) -> Iterator[Change]:
    """Remove the CNI configuration that the list named."""
    if ctx.remains.cni:
        ctx.tell(f"Deleting CNI configuration: {_list(ctx.remains.cni)}", f"Would delete CNI configuration: {_list(ctx.remains.cni)}")
    yield from map(ctx.host.remove, ctx.remains.cni)


def remove_rules(ctx: ResetContext) -> Iterator[Change]:
    """Remove what kube-proxy and CNI plugins left in the packet filter. All of it is tried."""
    rules, failed = ctx.remains.rules, list[str]()
    if isinstance(rules, HostError):
        raise rules
    for one in rules:
        ctx.tell(f"Removing rules of the packet filter: {one.target}", f"Would remove rules of the packet filter: {one.target}")
        try:
            yield ctx.host.packet_filter.remove(one)
        except HostError as error:
            failed.append(str(error))
    if failed:
        raise HostError(
            "the packet filter still has rules of the cluster", detail="\n".join(failed), remedy="see what `nft list ruleset` says"
        )


def empty_etcd_again(ctx: ResetContext) -> Iterator[Change]:
    """Remove what etcd wrote between the phase that emptied its directory and its end."""
    return etcd_member.empty_data(ctx) if _ETCD in ctx.phases else iter(())


def remove_units(ctx: ResetContext) -> Iterator[Change]:
    """Remove the unit files of the kubelet that we installed: those of a package stay."""
    units = ctx.remains.units
    if units:
        ctx.tell(f"Deleting the units of the kubelet: {_list(units)}", f"Would delete the units of the kubelet: {_list(units)}")
        yield ctx.host.remove_units(SERVICE, units=units)


def forget(ctx: ResetContext) -> Iterator[Change]:
    """Remove what we keep of the machine."""
    state = ctx.remains.layout.state
    if ctx.host.state(state) is not None:
        ctx.tell(f'Deleting what was kept of this machine in "{state}"', f'Would delete "{state}"')
        yield ctx.host.remove(state)


STEPS: Final[tuple[Step, ...]] = (
    stop_kubelet,
    remove_pods,
    unmount,
    empty_etcd_again,
    remove_rules,
    remove_cni,
    empty_directories,
    remove_files,
    remove_accounts,
    remove_units,
)


def _list(paths: Iterable[PurePosixPath]) -> str:
    return f"[{' '.join(map(str, paths))}]"
