"""Joining the machines of a cluster that have not joined: control planes one after the other, workers at the same time."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.local.whole import documents, endpoints, members, operations
from kubewright.local.whole.run import MachinesRun
from kubewright.machines.machine import Machine
from kubewright.pki import pins

_RECORD: Final = str(Layout().machine_record)
_LOOK: Final = 0.1
"""Seconds between two checks of the machines while some of them join."""


def newcomers(run: MachinesRun, names: Collection[str]) -> list[str]:
    """Return the running machines that have not completed their join and are not leaving."""
    wanted = members.members(run.cluster.settled())
    return [name for name in names if name in wanted and name != run.first.name and not _has_joined(run.group.machines[name])]


def join(run: MachinesRun, names: Sequence[str]) -> list[Change]:
    """Join machines to the cluster: control planes one after the other, workers at the same time.

    etcd accepts one new member at a time, and each control plane needs most of the two cores of a small host.
    Raises ComponentFailed if a join fails, HostError if a machine stops in the meantime. All joins are ended then.
    """
    planes = [name for name in names if run.cluster.machine(name) is not None]
    groups = [*([planes] if planes else []), *([name] for name in names if name not in planes)]
    if not groups:
        return []
    pinned = [str(pin) for pin in pins.of_bundle(endpoints.access(run.paths, run.cluster).ca_pem or b"")]

    def join_all(group: Sequence[str]) -> list[Change]:
        return [change for name in group for change in _join(run, name, pinned)]

    with ThreadPoolExecutor(len(groups)) as pool:
        joins = [pool.submit(join_all, group) for group in groups]
        try:
            while wait(joins, timeout=_LOOK).not_done:
                run.require_running()  # otherwise, a join would wait for a stopped control plane until its timeout
            return [change for one in joins for change in one.result()]
        except BaseException:  # the pool waits for its threads, and they wait for the operations
            while wait(joins, timeout=_LOOK).not_done:
                for name in names:
                    operations.end(run.group.machines[name])
            raise


def _join(run: MachinesRun, name: str, pinned: Sequence[str]) -> list[Change]:
    machine = run.group.machines[name]
    document = documents.of_join(
        run.cluster,
        name,
        addresses=members.addresses_of(run.cluster, name),
        credentials=documents.Credentials(token=run.token, pins=pinned, certificate_key=run.certificate_key),
        within=run.options.within,
        unverified=run.unverified,
    )
    run.mark(name, "Joining")
    return operations.operate(machine, ("join",), document, reporter=run.reporter)


def _has_joined(machine: Machine) -> bool:
    """Return whether a join was completed, according to the record that it keeps on the machine."""
    try:
        return bool(json.loads(machine.run("cat", _RECORD, check=False).out)["finished"])
    except (ValueError, KeyError, TypeError):
        return False
