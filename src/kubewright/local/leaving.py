"""Taking further control planes out of a local cluster again. Every step looks first: one that was interrupted goes on where it was."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import PurePosixPath
from typing import Final, cast

from kubewright.base.change import Action, Change
from kubewright.etcd import membership
from kubewright.etcd.client import EtcdClient
from kubewright.host.files import Files
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import named
from kubewright.lifecycle import etcd_access
from kubewright.lifecycle.init.context import InitContext
from kubewright.local import record
from kubewright.local.context import LocalContext
from kubewright.local.record import Machine

LEASES: Final = ("kube-controller-manager", "kube-scheduler")
_SYSTEM: Final = "kube-system"


def free_leases(ctx: InitContext) -> Iterable[Change]:
    """Remove the leases of leader election: whoever reads that of a process that has ended waits 15 seconds for it to be renewed."""
    for name in LEASES:
        remove_object(ctx.api, named("Lease"), name, _SYSTEM)
    return ()


def leave(ctx: InitContext) -> Iterable[Change]:
    """Take the machines out that leave: of each its etcd member, its processes, its Node, its files; in the end all from the record.

    Those go first whose etcd does not answer, and of the others the last one: whenever one goes, most of those that are left are up.
    """
    local = cast("LocalContext", ctx)
    for machine in sorted(local.record.leaving, key=lambda machine: _answers(local, machine)):
        yield _remove_member(local, machine)
        local.control.end(machines=[machine.name])
        yield from _remove_node(local, machine)
        yield _remove_files(local, machine)
    record.save(local.record.settled(), local.places.record)


def _answers(local: LocalContext, machine: Machine) -> bool:
    with closing(_etcd(local, machine)) as etcd:
        return all(status.healthy for status in etcd.statuses())


def _remove_member(local: LocalContext, machine: Machine) -> Change:
    """Remove the member while its etcd still runs: of two, both are needed to agree on it."""
    with closing(_etcd(local, local.record.control_plane)) as etcd:
        return membership.remove_member(etcd, machine.etcd_peer_url, clock=local.clock, within=local.within)


def _remove_node(local: LocalContext, machine: Machine) -> Iterable[Change]:
    """Remove the Node, and its pods at once: nobody is left who could end them."""
    for pod in local.api.list(named("Pod"), field_selector=f"spec.nodeName={machine.name}"):
        metadata = pod["metadata"]
        local.api.delete(named("Pod"), metadata["name"], metadata["namespace"], grace_seconds=0)
    yield remove_object(local.api, named("Node"), machine.name)


def _remove_files(local: LocalContext, machine: Machine) -> Change:
    directory = PurePosixPath(local.places.machine(machine.name))
    there = local.places.machine(machine.name).exists()
    Files().remove(directory, below=[PurePosixPath(local.places.machines)])
    return Change(target=f"machine {machine.name}", action=Action.DELETE if there else Action.NONE)


def _etcd(local: LocalContext, machine: Machine) -> EtcdClient:
    return etcd_access.client([machine.etcd_client_url], pki=local.layout.pki, files=local.host, clock=local.clock)
