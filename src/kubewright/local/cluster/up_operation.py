"""The main part of `up`: init's phases on the local machine, then the nodes.

Loaded while the daemon starts. The order is that of `init` with one exception: nodes join as soon as they have the
permissions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.base.records import dataclass
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.lifecycle import engine
from kubewright.lifecycle.init import phases
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.machine import TargetMachine
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.local import flags
from kubewright.local.cluster import configuration
from kubewright.local.cluster.context import ControlPlaneJoins, LocalContext, UpRun, machine_of
from kubewright.local.cluster.up_phases import UP_PHASES


@dataclass(frozen=True, kw_only=True)
class UpRequest:
    """The part of `up` for the first machine, and the joins of further ones; None if there are none."""

    run: UpRun
    joins: ControlPlaneJoins | None


def bring_up(run: UpRun) -> tuple[Change, ...]:
    """Run the phases, let nodes join, wait until the cluster is healthy, and return the changes."""
    with further_joins(run) as joins:
        done = engine.run(UP, UpRequest(run=run, joins=joins), machine_of(run, run.host), reporter=run.reporter)
    milestones = done.context.milestones
    if done.changes or not run.paths.timings.exists():  # an earlier run that was killed may have made all changes
        save_timings(run, milestones)
    return done.changes


def prepare(request: UpRequest, machine: TargetMachine) -> Prepared[Configuration]:
    """Load the configuration of the first machine. Raises as `configuration.load` does."""
    run = request.run
    loaded = configuration.load(
        run.cluster.config,
        machine=run.cluster.control_plane,
        layout=run.host.layout,
        version=run.cluster.kubernetes_version,
        detected=run.host.facts.detected,
        random=machine.random,
        strict=run.cluster.strict,
    )
    return Prepared(
        configuration=loaded.configuration,
        host=run.host,
        warnings=loaded.warnings,
        skip=tuple(_skipped(loaded.configuration.init.skip_phases)),
    )


def _skipped(names: Sequence[str]) -> list[str]:
    """Return the phases of init that a local cluster skips: for example, it uploads no certificates."""
    local, general = {node.name for node in UP_PHASES.nodes}, {node.name for node in phases.PHASES.nodes}
    return [name for name in names if name in local or name not in general]


def context(request: UpRequest, configured: Configuration, bound: Bound) -> LocalContext:
    """Return the context of the phases."""
    run, joins = request.run, request.joins
    machine = run.cluster.control_plane
    return LocalContext(
        bound=bound,
        configuration=configured,
        layout=run.host.layout,
        addresses=machine.addresses,
        overrides=lambda component: flags.overrides(
            component, machine.addresses, alone=run.cluster.alone, own_controllers=run.cluster.own_controllers
        ),
        request=InitOptions(
            upload_certs=joins is not None, skip_certificate_key_print=True, serving_certificates=run.cluster.serving_certificates
        ),
        run=run,
        joins=joins,
    )


@contextmanager
def further_joins(run: UpRun) -> Iterator[ControlPlaneJoins | None]:
    """Yield the joins of further control planes, None if there are none; unfinished ones are cancelled at the end."""
    if not run.cluster.further:
        yield None
        return
    from kubewright.local.cluster.control_planes import MachineJoins

    joins = MachineJoins(run)
    try:
        yield joins
    finally:
        joins.cancel()


UP: Final = Operation(name="up", phases=UP_PHASES, configure=prepare, context=context, policy=Policy(locks=False))
"""The part of `up` for the first machine. The cluster has its own lock and record."""


def save_timings(run: UpRun, milestones: Mapping[str, float]) -> None:
    """Store the milestones of this run for `local status`."""
    content = json.dumps(milestones).encode()
    Files(durable=False).write(File(path=PurePosixPath(run.paths.timings), content=content, mode=0o600))
