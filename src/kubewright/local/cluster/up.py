"""`up`: create, repair, resume or scale a local cluster according to its record.

Each step checks first, so a second run changes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kubewright.base.change import Change
from kubewright.base.clock import Clock, SystemClock
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.durations import format_seconds
from kubewright.base.errors import APIError, UsageError, WaitTimeout
from kubewright.base.events import Reporter, State
from kubewright.base.randomness import Random, SystemRandom
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.binaries import BinarySources
from kubewright.host.network.interfaces import RealNetwork
from kubewright.local import daemon_process, programs, record
from kubewright.local.cluster import allocation, preflight
from kubewright.local.cluster.allocation import AddressClaims
from kubewright.local.cluster.daemon_client import Daemon
from kubewright.local.daemon_process import DaemonSettings
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.state_directory import changing
from kubewright.local.up_options import UpOptions, UpResult, machines_are_wanted
from kubewright.local.user_documents import version_of

if TYPE_CHECKING:
    from kubewright.local.cluster.context import UpRun

DYING = 0.1
"""Seconds between the end of a dying process's connections and its exit."""


def up(
    paths: ClusterPaths,
    options: UpOptions,
    *,
    sources: BinarySources,
    reporter: Reporter,
    clock: Clock | None = None,
    random: Random | None = None,
) -> UpResult:
    """Bring the cluster up and wait until all its nodes are ready.

    Raises Locked while another `up` or `down` is running, ConfigurationChanged for another configuration than the
    cluster's. Errors found before anything is started leave nothing behind. A new cluster that could not be created is
    stopped again; its files stay for inspection, and the next `up` may use another configuration.
    """
    clock, random = clock or SystemClock(), random or SystemRandom()
    if machines_are_wanted(paths, options):
        from kubewright.local.whole.up import up as up_machines

        return up_machines(paths, options, sources=sources, reporter=reporter, clock=clock, random=random)
    start = clock.monotonic()
    with changing(paths, doing=f"up of cluster {paths.name}"), AddressClaims() as claims:
        daemon = Daemon(paths)
        found = record.load(paths.record)
        cluster = _wanted(paths, options, found, claims, random)
        version = cluster.kubernetes_version
        located = _located(cluster, options, sources=sources, reporter=reporter, clock=clock)
        running = daemon.runs or bool(daemon_process.marked_processes(paths))
        fresh = _names(cluster) - (_names(found) if found is not None else frozenset())
        subject = preflight.Subject(paths=paths, record=cluster, programs=located, network=RealNetwork(), running=running, fresh=fresh)
        preflight.run(subject, clock=clock)
        _write_down(paths, cluster, found)
        if running:
            _end_strays(paths, daemon)
        daemon_process.write_settings(DaemonSettings.of(located, owner=options.owner), paths)
        with _undone_on_failure(paths, cluster), _in_time(options.within, clock), _explaining_a_dead_daemon(daemon, clock):
            daemon.start()  # it loads while we generate keys
            from kubewright.local.cluster.context import UpRun

            run = UpRun(
                paths=paths,
                cluster=cluster,
                programs=located,
                daemon=daemon,
                clock=clock,
                random=random,
                reporter=reporter,
                waiter=PollingWaiter(clock=clock, reporter=reporter),
                within=options.within,
                start=start,
                free_leases=found is not None and not cluster.alone and (found.alone or not running),
            )
            changes = _bring_up(run)
        if not cluster.made:
            record.save(replace(cluster.settled(), made=True), paths.record)
        total = clock.monotonic() - start
        reporter.emit(State(subject="cluster", state="Ready", elapsed=total))
        if options.kubectl:
            programs.bring_kubectl(version, sources=sources, reporter=reporter, clock=clock)
        return UpResult(changes=changes, created=found is None, total=total)


def _bring_up(run: UpRun) -> tuple[Change, ...]:
    """Run the phases, and again if machines have left: the remaining ones may have other flags then."""
    from kubewright.local.cluster.up_operation import bring_up

    changes = bring_up(run)
    if run.cluster.leaving:
        settled = run.cluster.settled()
        changes += bring_up(replace(run, cluster=settled, free_leases=settled.alone))
    return changes


def _wanted(paths: ClusterPaths, options: UpOptions, found: ClusterRecord | None, claims: AddressClaims, random: Random) -> ClusterRecord:
    """Return the requested cluster. One that never came up may change its configuration.

    A configuration is checked before it is compared with the cluster's. Raises as `_require_valid` and
    `record.require_same` do.
    """
    asked = _new_record(paths, options, found, claims, random)
    if options.config:
        _require_valid(paths, asked, random)
    if found is None or not found.made:
        if asked.strict_clients and not asked.strict:
            raise UsageError("--client-certificates strict needs the approver of certificates", remedy="add --serving-certificates strict")
        base = asked
    else:
        record.require_same(
            found,
            kubernetes_version=options.kubernetes_version,
            config=options.config,
            controllers=options.controllers,
            serving_certificates=options.serving_certificates,
            client_certificates=options.client_certificates,
        )
        base = found.scaled(found.nodes if options.nodes is None else options.nodes)
    return base if options.control_planes is None else allocation.resized(paths, base, control_planes=options.control_planes, claims=claims)


def _located(cluster: ClusterRecord, options: UpOptions, *, sources: BinarySources, reporter: Reporter, clock: Clock) -> dict[str, Path]:
    """Return the programs of the components, and our Python if one of them is ours. Raises BinariesError."""
    version = cluster.kubernetes_version
    found = programs.components(version, sources=sources, reporter=reporter, clock=clock, with_kubectl=options.kubectl)
    return found | ({programs.PYTHON: Path(sys.executable)} if cluster.runs_controllers else {})


def _require_valid(paths: ClusterPaths, cluster: ClusterRecord, random: Random) -> None:
    """Refuse an invalid configuration before anything is started. Raises DocumentError and ValidationError."""
    from kubewright.local.cluster import configuration
    from kubewright.local.cluster.machine import machine_host

    machine = cluster.control_plane
    host = machine_host(paths, machine.name, programs={}, daemon=Daemon(paths))
    configuration.load(
        cluster.config,
        machine=machine,
        layout=host.layout,
        version=cluster.kubernetes_version,
        detected=host.facts.detected,
        random=random,
        strict=cluster.strict,
    )


def _write_down(paths: ClusterPaths, cluster: ClusterRecord, found: ClusterRecord | None) -> None:
    """Save the record.

    Before that, remove leftovers of a start with another configuration, and processes of a cluster whose files were
    removed.
    """
    if cluster == found:
        return
    if (found is None and _has_leftover_files(paths)) or (found is not None and not _same_making(found, cluster)):
        from kubewright.local.cluster.down import clear, stop

        stop(paths)
        clear(paths, keep_data=False)
    record.save(cluster, paths.record)


def _has_leftover_files(paths: ClusterPaths) -> bool:
    """Return whether files of a cluster without a record exist: an interrupted `down` has removed the record first."""
    return bool(daemon_process.marked_processes(paths)) or paths.machines.exists() or paths.nodes.exists()


def _same_making(found: ClusterRecord, wanted: ClusterRecord) -> bool:
    def making(record: ClusterRecord) -> tuple[object, ...]:
        return (
            record.kubernetes_version,
            record.config,
            record.controllers,
            record.serving_certificates,
            record.client_certificates,
            record.control_plane,
        )

    return making(found) == making(wanted)


def _names(cluster: ClusterRecord) -> frozenset[str]:
    return frozenset(machine.name for machine in cluster.machines)


def _new_record(
    paths: ClusterPaths, options: UpOptions, found: ClusterRecord | None, claims: AddressClaims, random: Random
) -> ClusterRecord:
    if found is None:
        first = allocation.new_machine(paths, record.first_name(paths.name), claims=claims)
        found = ClusterRecord(name=paths.name, id=record.new_id(random), machines=(first,))
    for machine in found.machines:
        claims.take(machine.address)
    config = found.config if options.config is None else options.config
    return replace(
        found,
        nodes=found.nodes if options.nodes is None else options.nodes,
        kubernetes_version=version_of(config, options.kubernetes_version),
        config=config,
        controllers=options.controllers or found.controllers,
        serving_certificates=options.serving_certificates or found.serving_certificates,
        client_certificates=options.client_certificates or found.client_certificates,
    )


def _end_strays(paths: ClusterPaths, daemon: Daemon) -> None:
    """Terminate daemons whose records were lost, which would conflict with a new daemon. Components continue to run."""
    from kubewright.local.cluster.down import end_daemons

    if not daemon.runs:
        end_daemons(paths)


@contextmanager
def _in_time(within: float, clock: Clock) -> Iterator[None]:
    """Limit everything in this block to `within` seconds. Raises WaitTimeout with the time that it took."""
    start = clock.monotonic()
    try:
        with holding(Deadline(within, clock=clock)):
            yield
    except (APIError, WaitTimeout) as error:
        took = clock.monotonic() - start
        if took < within:
            raise
        what = f"gave up waiting for the cluster to be ready after {format_seconds(took)}"
        detail = "\n".join(part for part in (error.what, error.detail) if part)
        raise WaitTimeout(what, detail=detail, remedy="give it more time with --wait") from error


@contextmanager
def _explaining_a_dead_daemon(daemon: Daemon, clock: Clock) -> Iterator[None]:
    """Report that the daemon died, with its last lines, instead of a phase's connection error."""
    try:
        yield
    except APIError:
        clock.sleep(DYING)
        daemon.require_alive()
        raise


@contextmanager
def _undone_on_failure(paths: ClusterPaths, cluster: ClusterRecord) -> Iterator[None]:
    """Stop all processes of a cluster that could not be created.

    An existing one is left as it is, for inspection and repair.
    """
    try:
        yield
    except BaseException:
        if not cluster.made:
            from kubewright.local.cluster.down import stop

            stop(paths)
        raise
