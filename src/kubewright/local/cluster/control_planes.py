"""Further control planes of a local cluster: they join with the phases of `join`, concurrently with the first one's phases, and leave.

Etcd accepts one learner at a time; everything else overlaps. Every step of leaving checks the state first, so that an
interrupted one is continued.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeadm.node_types import BootstrapTokenDiscovery, Discovery, JoinConfiguration, JoinControlPlane
from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.deadlines import carried
from kubewright.base.errors import Conflict, Interrupted, NotFound, Unreachable
from kubewright.base.events import Changed, Event, Line, PhaseFinished, PhaseSkipped, PhaseStarted, Reporter, SilentReporter
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import retry
from kubewright.etcd import membership
from kubewright.etcd.api import PASSING
from kubewright.etcd.client import EtcdClient
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.host.real import RealHost
from kubewright.kube.credentials import Access
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import named
from kubewright.lifecycle import engine, machine_record, stacked_etcd
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.join import configuration as cluster_configuration
from kubewright.lifecycle.join import discovery
from kubewright.lifecycle.join.context import JoinContext
from kubewright.lifecycle.join.operation import SOURCES, start_conditions
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared, Start, nothing
from kubewright.local import flags, record
from kubewright.local.cluster import configuration
from kubewright.local.cluster.context import JoinCredentials, LocalContext, UpRun, machine_of
from kubewright.local.cluster.join_phases import JOIN_PHASES, LocalJoinContext
from kubewright.local.cluster.machine import machine_host
from kubewright.local.record import ClusterRecord, LocalMachineRecord

if TYPE_CHECKING:
    from kubewright.lifecycle.machine import TargetMachine


LEASES: Final = ("kube-controller-manager", "kube-scheduler")
_SYSTEM: Final = "kube-system"
PRIVATE: Final = 0o700
SHARED: Final = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key", "etcd/ca.crt", "etcd/ca.key")
"""Files that a control plane cannot create and gets from the others."""


class MachineJoins:
    """The joins of one `up`. Implements `context.ControlPlaneJoins`.

    created ── start() ──> each machine joins in a thread ── finish() ──> all have joined ── cancel() ──> nothing runs
    """

    def __init__(self, run: UpRun) -> None:
        self._run = run
        self._cancelled = threading.Event()
        self._threads = ThreadPoolExecutor(max_workers=len(run.cluster.further), thread_name_prefix="join")
        self._joins: list[Future[tuple[Change, ...]]] = []

    @functools.cached_property
    def newcomers(self) -> tuple[str, ...]:
        now = self._run.clock.now()
        return tuple(machine.name for machine in self._run.cluster.further if not _has_all(self._host(machine), now=now))

    def start(self, credentials: JoinCredentials | None, configured: Configuration) -> None:
        self._joins = [
            self._threads.submit(carried(self._join), machine, configured, credentials if machine.name in self.newcomers else None)
            for machine in self._run.cluster.further
        ]

    def finish(self) -> Iterable[Change]:
        done, _ = wait(self._joins, return_when=FIRST_EXCEPTION)
        for failed in (join for join in done if join.exception() is not None):
            self._cancelled.set()
            failed.result()
        return [change for join in self._joins for change in join.result()]

    def cancel(self) -> None:
        self._cancelled.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _host(self, machine: LocalMachineRecord) -> RealHost:
        run = self._run
        return machine_host(run.paths, machine.name, programs=run.programs, daemon=run.daemon, further=True)

    def _join(self, machine: LocalMachineRecord, configured: Configuration, credentials: JoinCredentials | None) -> tuple[Change, ...]:
        """Run the phases of join on one machine. Runs in a thread."""
        run, host = self._run, self._host(machine)
        Files(durable=False).make(Directory(path=PurePosixPath(run.paths.machine(machine.name)), mode=PRIVATE))
        request = MachineJoinRequest(run=run, machine=machine, host=host, configured=configured, credentials=credentials)
        done = engine.run(
            MACHINE_JOIN,
            request,
            machine_of(run, host, clock=CancellableClock(run.clock, self._cancelled)),
            reporter=NamedReporter(machine.name, run.reporter),
        )
        if not done.context.joined_before:
            machine_record.save(host, replace(machine_record.of_join(done.context.join), finished=True))
        return done.changes


@dataclass(frozen=True, kw_only=True)
class MachineJoinRequest:
    """The join of one machine; `configured` is the first machine's configuration."""

    run: UpRun
    machine: LocalMachineRecord
    host: RealHost
    configured: Configuration
    credentials: JoinCredentials | None

    def administrator(self, _: JoinContext) -> Access:
        """Return access to the cluster for a machine that already belongs to it."""
        return load_access(self.run.host.layout.kubeconfig("admin"), read=self.run.host.read)

    def configuration(self, ctx: JoinContext) -> Configuration:
        """Return the cluster's configuration with this machine's directories and addresses.

        It is read as the administrator: a joining node waits for the permission to read objects of kube-proxy, which
        `up` creates later. `up` has already shown the warnings for the first machine.
        """
        quiet = replace(ctx.bound, reporter=SilentReporter())
        found = cluster_configuration.configuration(replace(ctx, bound=quiet, sources=replace(ctx.sources, discover=self.administrator)))
        mine = configuration.load(
            self.run.cluster.config,
            machine=self.machine,
            layout=self.host.layout,
            version=self.run.cluster.kubernetes_version,
            detected=self.host.facts.detected,
            random=ctx.random,
            strict=self.run.cluster.strict,
        ).configuration
        return adapted(found, mine=mine)


def prepare(request: MachineJoinRequest, _: TargetMachine) -> Prepared[JoinConfiguration]:
    """Return the configuration of `join` on the machine."""
    return Prepared(
        configuration=join_configuration(request.machine, request.host, request.configured, request.credentials), host=request.host
    )


def context(request: MachineJoinRequest, join: JoinConfiguration, bound: Bound) -> LocalJoinContext:
    """Return the context of the phases."""
    run, machine = request.run, request.machine
    return LocalJoinContext(
        bound=bound,
        join=join,
        addresses=machine.addresses,
        sources=replace(
            SOURCES,
            discover=request.administrator if request.credentials is None else discovery.find,
            known=nothing,
            configuration=request.configuration,
            etcd=lambda ctx: _etcd(ctx, run.cluster),
        ),
        overrides=lambda component: flags.overrides(component, machine.addresses, alone=False, own_controllers=run.cluster.own_controllers),
        run=run,
        machine=machine,
        joined_before=_has_joined(request.host),
    )


# An API server waits 20 s for its etcd and exits; that etcd may have to wait much longer for its turn to join.
MACHINE_JOIN: Final = Operation(
    name="join",
    phases=JOIN_PHASES,
    configure=prepare,
    context=context,
    policy=Policy(locks=False),
    start=Start(phases=frozenset(), conditions=start_conditions),
)


def _etcd(ctx: JoinContext, cluster: ClusterRecord) -> EtcdClient:
    """Return a client for the etcd members in the record.

    The pods that show them on a real machine are created slightly later.
    """
    urls = [machine.etcd_client_url for machine in cluster.machines]
    made = stacked_etcd.client(urls, pki=ctx.layout.pki, files=ctx.host, clock=ctx.clock)
    made.follow(retry(made.members, clock=ctx.clock, on=(*PASSING, Unreachable), within=ctx.join.timeouts.etcd_api_call.seconds))
    return made


def join_configuration(
    machine: LocalMachineRecord, host: RealHost, configured: Configuration, credentials: JoinCredentials | None
) -> JoinConfiguration:
    """Return the configuration of `join` on a machine: the user's InitConfiguration for the first one applies to all."""
    init = configured.init
    endpoint = replace(init.local_api_endpoint, advertise_address=machine.address, bind_port=machine.ports["api_server"])
    return JoinConfiguration(
        node_registration=replace(init.node_registration, name=machine.name),
        ca_cert_path=str(host.layout.certificate("ca")),
        discovery=_discovery(credentials, machine.name),
        control_plane=JoinControlPlane(local_api_endpoint=endpoint, certificate_key=credentials.certificate_key if credentials else ""),
        patches_directory=init.patches_directory,
        timeouts=init.timeouts,
    )


def _discovery(credentials: JoinCredentials | None, name: str) -> Discovery:
    if credentials is None:
        return Discovery()
    by_token = BootstrapTokenDiscovery(
        token=credentials.tokens[name], api_server_endpoint=credentials.server.removeprefix("https://"), ca_cert_hashes=credentials.pins
    )
    return Discovery(bootstrap_token=by_token, tls_bootstrap_token=credentials.tokens[name])


def adapted(found: Configuration, *, mine: Configuration) -> Configuration:
    """Return the cluster's configuration, which contains the first machine's directories, with a machine's own directories."""
    cluster = replace(found.cluster, certificates_dir=mine.cluster.certificates_dir, etcd=mine.cluster.etcd)
    return replace(found, cluster=cluster, kubelet=mine.kubelet)


def _has_all(host: RealHost, *, now: datetime) -> bool:
    """Return whether a machine has all files that it can get only from others."""
    pki: PurePosixPath = host.layout.pki
    return all(host.state(pki / name) is not None for name in SHARED) and discovery.node_access(host, now=now) is not None


def _has_joined(host: RealHost) -> bool:
    """Return whether an earlier join of a machine was completed."""
    found = machine_record.load(host)
    return found is not None and found.finished


class CancellableClock:
    """A clock whose sleeps end once the run is cancelled, which ends every wait and every retry."""

    def __init__(self, inner: Clock, cancelled: threading.Event) -> None:
        self._inner = inner
        self._cancelled = cancelled

    def now(self) -> datetime:
        return self._inner.now()

    def monotonic(self) -> float:
        return self._inner.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep as the other clock does. Raises Interrupted once the run is cancelled."""
        if not self._cancelled.is_set():
            self._inner.sleep(seconds)
        if self._cancelled.is_set():
            raise Interrupted("another part of the run ended it", remedy="run the same command again: it finishes the work")


class NamedReporter:
    """Names the machine in the events of one of several. Changes are reported when they are collected."""

    def __init__(self, name: str, inner: Reporter) -> None:
        self._name = name
        self._inner = inner

    def emit(self, event: Event, /) -> None:
        if isinstance(event, Changed):
            return
        if isinstance(event, PhaseStarted | PhaseFinished | PhaseSkipped):
            event = replace(event, phase=f"{self._name}/{event.phase}")
        elif isinstance(event, Line):
            event = replace(event, text=f"{self._name}: {event.text}")
        self._inner.emit(event)


def free_leases(ctx: InitContext) -> Iterable[Change]:
    """Remove the leader election leases: a candidate that sees a dead process's lease waits 15 seconds."""
    for name in LEASES:
        remove_object(ctx.api, named("Lease"), name, _SYSTEM)
    return ()


def leave(ctx: LocalContext) -> Iterable[Change]:
    """Remove machines that leave: for each, its etcd member, its processes, its Node and its files; at the end, remove all from the record.

    Machines whose etcd does not answer leave first, then the others, the last one first: whenever one leaves, most of
    the remaining ones are up.
    """
    for machine in sorted(ctx.run.cluster.leaving, key=lambda machine: _answers(ctx, machine)):
        yield _remove_member(ctx, machine)
        ctx.control.end(machines=[machine.name])
        yield from _remove_node(ctx, machine)
        yield _remove_files(ctx, machine)
    record.save(ctx.run.cluster.settled(), ctx.run.paths.record)


def _answers(local: LocalContext, machine: LocalMachineRecord) -> bool:
    with closing(_etcd_of(local, machine)) as etcd:
        return all(status.serves for status in etcd.statuses())


def _remove_member(local: LocalContext, machine: LocalMachineRecord) -> Change:
    """Remove the member while its etcd still runs: in a cluster of two, both have to agree to that."""
    with closing(_etcd_of(local, local.run.cluster.control_plane)) as etcd:
        return membership.remove_member(etcd, machine.etcd_peer_url, clock=local.clock, within=local.run.within)


def _remove_node(local: LocalContext, machine: LocalMachineRecord) -> Iterable[Change]:
    """Remove the Node, and force-delete its pods: nothing is left that could terminate them."""
    for pod in local.api.list(named("Pod"), field_selector=f"spec.nodeName={machine.name}"):
        metadata = pod["metadata"]
        with suppress(NotFound, Conflict):  # it is gone, or its controller has created another one with its name
            local.api.delete(named("Pod"), metadata["name"], metadata["namespace"], grace_seconds=0, uid=metadata["uid"])
    yield remove_object(local.api, named("Node"), machine.name)


def _remove_files(local: LocalContext, machine: LocalMachineRecord) -> Change:
    directory = PurePosixPath(local.run.paths.machine(machine.name))
    there = local.run.paths.machine(machine.name).exists()
    Files().remove(directory, below=[PurePosixPath(local.run.paths.machines)])
    return Change(target=f"machine {machine.name}", action=Action.DELETE if there else Action.NONE)


def _etcd_of(local: LocalContext, machine: LocalMachineRecord) -> EtcdClient:
    return stacked_etcd.client([machine.etcd_client_url], pki=local.layout.pki, files=local.host, clock=local.clock)
