"""The part of `up` that makes and checks things: init's phases on the local machine, then the nodes.

Loaded while the daemon starts. The order is that of `init` but for one thing: nodes join as soon as the rights for it are there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final, cast

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.base.records import dataclass
from kubewright.host.desired import File
from kubewright.host.files import Files
from kubewright.lifecycle import operation
from kubewright.lifecycle.init import phases
from kubewright.lifecycle.init.request import InitRequest
from kubewright.lifecycle.machine import Machine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.local import configuration, flags
from kubewright.local.context import COMPONENTS, ControlPlaneJoins, LocalContext, LocalMachine, UpRun, healthy, machine_of
from kubewright.local.daemon_client import ControlClient
from kubewright.local.up_phases import UP_PHASES


@dataclass(frozen=True, kw_only=True)
class UpRequest:
    """What `up` does to the first machine, and the joins of further ones, None where there are none to be."""

    work: UpRun
    joins: ControlPlaneJoins | None


def bring_up(work: UpRun) -> tuple[tuple[Change, ...], float]:
    """Run the phases, let nodes join, and wait until the cluster is well. Returns the changes and when the API server was ready."""
    with further_joins(work) as joins:
        done = operation.run(UP, UpRequest(work=work, joins=joins), machine_of(work, work.host), reporter=work.reporter)
    milestones = cast("LocalContext", done.context).milestones
    if done.changes or not work.paths.timings.exists():  # a run that was killed may have left the last one nothing to change
        save_timings(work, milestones)
    return done.changes, milestones["apiReady"]


def prepare(request: UpRequest, machine: Machine) -> Prepared[Configuration]:
    """Load the configuration of the first machine. Raises as `configuration.load` does."""
    work = request.work
    loaded = configuration.load(
        work.cluster.config,
        machine=work.cluster.control_plane,
        layout=work.host.layout,
        version=work.cluster.kubernetes_version,
        detected=work.host.facts.detected,
        random=machine.random,
    )
    return Prepared(
        configuration=loaded.configuration,
        host=work.host,
        warnings=loaded.warnings,
        skip=tuple(_skipped(loaded.configuration.init.skip_phases)),
    )


def _skipped(names: Sequence[str]) -> list[str]:
    """Return those of init's phases to skip that a local cluster has at all: there are no uploaded certificates, for example."""
    local, general = {node.name for node in UP_PHASES.nodes}, {node.name for node in phases.PHASES.nodes}
    return [name for name in names if name in local or name not in general]


def context(request: UpRequest, configured: Configuration, bound: Bound) -> LocalContext:
    """Make the context of the phases."""
    work, joins = request.work, request.joins
    machine, control = work.cluster.control_plane, ControlClient(work.paths)
    return LocalContext(
        bound=bound,
        configuration=configured,
        layout=work.host.layout,
        addresses=machine.addresses,
        look=cast("LocalMachine", bound.machine).look,
        overrides=lambda component: flags.overrides(component, machine.addresses, alone=work.cluster.alone),
        health_checks={name: functools.partial(healthy, control, machine.name, name) for name in COMPONENTS},
        request=InitRequest(upload_certs=joins is not None, show_certificate_key=False),
        record=work.cluster,
        paths=work.paths,
        daemon=work.daemon,
        joins=joins,
        free_leases=work.free_leases,
        plain=work.waiter,
        within=work.within,
        start=work.start,
    )


@contextmanager
def further_joins(work: UpRun) -> Iterator[ControlPlaneJoins | None]:
    """Give what lets further control planes join, None where there are none to be; joins that still run in the end are called off."""
    if not work.cluster.further:
        yield None
        return
    from kubewright.local.control_planes import MachineJoins

    joins = MachineJoins(work)
    try:
        yield joins
    finally:
        joins.call_off()


UP: Final = Operation(name="up", phases=UP_PHASES, configure=prepare, context=context, policy=Policy(locks=False))
"""The part of `up` that is done to the first machine. The cluster has a lock, and a record, of its own."""


def save_timings(work: UpRun, milestones: Mapping[str, float]) -> None:
    """Keep the milestones of this run for `local status`."""
    content = json.dumps(milestones).encode()
    Files(durable=False).write(File(path=PurePosixPath(work.paths.timings), content=content, mode=0o600))
