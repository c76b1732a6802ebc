"""Joining the machines of a cluster that have not joined: control planes one after the other, workers at the same time."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.local.whole import access, documents, members, operations
from kubewright.local.whole.run import UpRun
from kubewright.machines.machine import Machine
from kubewright.pki import pins

_RECORD: Final = str(Layout().machine_record)


def newcomers(run: UpRun, names: Collection[str]) -> list[str]:
    """Return those of these running machines that have not joined completely and are not leaving."""
    wanted = members.members(run.cluster.settled())
    return [name for name in names if name in wanted and name != run.first.name and not _has_joined(run.group.machines[name])]


def join(run: UpRun, names: Sequence[str]) -> list[Change]:
    """Let machines join. etcd accepts one new member at a time, and each control plane needs most of the two cores of a small host."""
    planes = [name for name in names if run.cluster.machine(name) is not None]
    groups = [*([planes] if planes else []), *([name] for name in names if name not in planes)]
    if not groups:
        return []
    pinned = [str(pin) for pin in pins.of_bundle(access.access(run.paths, run.cluster).ca_pem or b"")]

    def join_all(group: Sequence[str]) -> list[Change]:
        return [change for name in group for change in _join(run, name, pinned)]

    with ThreadPoolExecutor(len(groups)) as pool:
        return [change for changes in pool.map(join_all, groups) for change in changes]


def _join(run: UpRun, name: str, pinned: Sequence[str]) -> list[Change]:
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
