"""Removes the files of a failed attempt, if another configuration replaces it.

As long as nothing is in permanent use, nothing is lost: no component has served, and no cluster knows the machine. The
next run, of any command and configuration, then finds the machine as it was before the first one. A path is removed
only if it did not exist when the first run began; and a certificate, key or kubeconfig only if it is still the run's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import RuntimeSilent, RuntimeUnavailable
from kubewright.base.events import Line, Reporter, Warned
from kubewright.base.records import replace
from kubewright.host.desired import Service
from kubewright.host.seam import Host
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.attempts import PODS, digest
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.lifecycle.operation import nothing
from kubewright.lifecycle.steps import cleanup
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster
from kubewright.lifecycle.steps.inventory import SERVICE, CleanupOptions, Inventory

if TYPE_CHECKING:
    from kubewright.host.states import Sandbox

TOPIC: Final = "preflight"
_NAMESPACE: Final = "kube-system"
_ENDPOINT: Final = "apiServerEndpoint"


def withdraw(
    host: Host, found: MachineRecord, wanted: MachineRecord, *, clock: Clock, at: Callable[[Layout], Host], reporter: Reporter
) -> tuple[Change, ...]:
    """Remove the files of a failed attempt, its record last, so that an interrupted removal can continue.

    `at` returns the host for a layout. Raises HostError for files that cannot be removed.
    """
    left = _leftovers(host, found.free or {})
    if left:
        reporter.emit(
            Line(topic=TOPIC, text=f"Removing what an earlier attempt with another configuration left: [{' '.join(map(str, left))}]")
        )
    return tuple(_withdraw(host, found, wanted, left, clock=clock, at=at, reporter=reporter))


def _leftovers(host: Host, free: Mapping[str, str | None]) -> list[PurePosixPath]:
    """Return the leftovers of an attempt."""
    there = [(PurePosixPath(path), left) for path, left in free.items() if host.state(PurePosixPath(path)) is not None]
    return [path for path, left in there if left is None or left == digest(host, str(path))]


def _withdraw(
    host: Host,
    found: MachineRecord,
    wanted: MachineRecord,
    left: Sequence[PurePosixPath],
    *,
    clock: Clock,
    at: Callable[[Layout], Host],
    reporter: Reporter,
) -> Iterator[Change]:
    inventory = Inventory(host, detected=DetectedCluster(host), options=CleanupOptions(), default_pki=host.layout.pki)
    ctx = cleanup.Cleanup(host=host, clock=clock, reporter=reporter, inventory=inventory, report_step=nothing)
    kubelet = inventory.kubelet
    if kubelet is not None and (kubelet.running or kubelet.again):
        yield host.ensure(Service(name=SERVICE, running=False))
    if any(path.parent == host.layout.manifests for path in left):  # before the manifests, so that an interrupted run finds them again
        yield from _remove_pods(_with_runtime_of(found, host, at), clock, reporter)
    for path in reversed(inventory.mounts):
        if any(path.is_relative_to(one) for one in left):
            yield host.unmount(path)
    for path in left:
        yield host.remove(path, own=[path])
    for step in (cleanup.remove_accounts, cleanup.remove_units, cleanup.restore_service, cleanup.remove_tunnel):
        yield from step(ctx)
    for path in map(PurePosixPath, found.directories):
        if host.state(path) is not None and not host.entries(path):
            yield host.remove(path, own=[path])
    layout = host.layout
    needed = (layout.join_key, layout.tunnel_key) if _same_hub(found, wanted) else ()
    for path in layout.kept_files:
        if path not in needed:
            yield host.remove(path)


def _with_runtime_of(record: MachineRecord, host: Host, at: Callable[[Layout], Host]) -> Host:
    """Return the host with the container runtime that the attempt used."""
    socket = machine_record.runtime_socket(record)
    return host if socket in {"", host.layout.cri_socket} else at(replace(host.layout, cri_socket=socket))


def _remove_pods(host: Host, clock: Clock, reporter: Reporter) -> Iterator[Change]:
    """Remove the static pods of a control plane. Without a container runtime there are none."""
    try:
        there = [pod for pod in host.runtime.sandboxes() if _is_static(pod)]
    except RuntimeSilent:
        raise
    except RuntimeUnavailable as error:
        reporter.emit(Warned(text=f"pods cannot be removed: {error}"))
        return
    from kubewright.host.cri.images_and_sandboxes import remove_sandbox

    yield from (remove_sandbox(pod, runtime=host.runtime, clock=clock) for pod in there)


def _is_static(pod: Sandbox) -> bool:
    return pod.namespace == _NAMESPACE and pod.name.startswith(tuple(f"{name}-" for name in PODS))


def _same_hub(found: MachineRecord, wanted: MachineRecord) -> bool:
    """Whether both join through the hub of one cluster, which identifies a request by the key that it was sent with."""
    asked = [machine_record.field(one, _ENDPOINT) for one in (found, wanted)]
    return asked[0] == asked[1] != ""
