"""Removing single machines of a cluster: the member of etcd, the Node, and then the machine, so that an interrupted removal is continued."""

from __future__ import annotations

from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import UsageError
from kubewright.base.records import replace
from kubewright.base.wait import Waiter
from kubewright.host.programs.commands import Ended
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import named
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import members
from kubewright.machines import program
from kubewright.machines.group import bridge_of
from kubewright.machines.machine import Machine
from kubewright.machines.network import Network

_WITHIN: Final = 120.0
"""Seconds for etcd to answer: a control plane may have been started just before."""


def surplus(paths: ClusterPaths, cluster: ClusterRecord) -> list[str]:
    """Return the machines that leave, and existing machines that are missing in the record, workers first. Needs root."""
    leaving = [machine.name for machine in cluster.leaving]
    unknown = [name for name in members.existing(paths) if name not in members.members(cluster)]
    return [*unknown, *leaving]


def remove(paths: ClusterPaths, cluster: ClusterRecord, name: str, api: KubeAPI, *, waiter: Waiter) -> list[Change]:
    """Remove a machine and its disk from its cluster; parts that are already gone are ignored. Needs root."""
    changes = []
    if not cluster.is_worker(name):
        changes.append(_remove_member(paths, cluster, name, waiter))
    changes.append(remove_object(api, named("Node"), name))
    Network(bridge=bridge_of(members.group_name(paths))).detach(members.index_of(cluster.name, name))
    members.machine_of_group(paths, name).remove()  # last: its directory says that it is not removed yet
    return [*(change for change in changes if change), Change(target=f"machine {name}", action=Action.DELETE)]


def without(cluster: ClusterRecord, name: str) -> ClusterRecord:
    """Return the record without a machine. Raises UsageError for the first control plane, and for unknown machines."""
    members.require_known(cluster, name)
    if name == cluster.control_plane.name:
        raise UsageError(
            f"machine {name} cannot be removed: it is the first control plane",
            remedy=f"`{cluster.removal}` removes the cluster",
        )
    if cluster.is_worker(name):
        return cluster.without(name)
    return replace(
        cluster, machines=tuple(replace(machine, leaving=True) if machine.name == name else machine for machine in cluster.machines)
    )


def _remove_member(paths: ClusterPaths, cluster: ClusterRecord, name: str, waiter: Waiter) -> Change:
    """Remove a member through another control plane that runs: the one that leaves may be broken.

    etcd refuses while the members that stay have no majority, for example because one has just been started.
    """
    others = [members.machine_of(paths, cluster, one.name) for one in cluster.settled().machines if one.name != name]
    own = program.own()
    actions = list[Action]()

    def etcd(machine: Machine, *words: str) -> Ended:
        return machine.run(*own.argv, "etcd", "member", *words, env=own.environment, check=False)

    def removed() -> str | None:
        machine = next((one for one in others if one.runs), None)
        if machine is None:
            return "no other control plane runs"
        listed = etcd(machine, "list")
        if not listed.code and name not in listed.out.split():
            actions.append(Action.NONE)
            return None
        ended = listed if listed.code else etcd(machine, "remove", name, "--yes")
        if not ended.code:
            actions.append(Action.DELETE)
            return None
        return ended.err.strip().partition("\n")[0].removeprefix("error: ")

    remedy = f"`sudo kubewright up --name {cluster.name}` starts all control planes and removes it"
    waiter.until(removed, within=_WITHIN, saying=f"etcd to remove its member {name}", remedy=remedy)
    return Change(target=f"etcd member {name}", action=actions[0])
