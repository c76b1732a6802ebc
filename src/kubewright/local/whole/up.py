"""`up --machines`: create, repair, resume or scale a cluster of whole machines according to its record.

Each step checks first: running machines are left alone, `init` runs again on the first machine and repairs it, and only new workers join.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.agent.leases import NAMESPACE as NODE_LEASES
from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock, rfc3339_micro
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.errors import APIError, Conflict, NotFound, UsageError
from kubewright.base.events import Reporter, Warned
from kubewright.base.randomness import Random
from kubewright.base.records import replace
from kubewright.binaries import BinarySources
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.kube import lease_rules
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import LEASE, named
from kubewright.local import mounts, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import MOST_WORKERS, UpOptions, UpResult
from kubewright.local.user_documents import version_of
from kubewright.local.whole import (
    addons,
    documents,
    endpoints,
    joining,
    members,
    operations,
    owner,
    ports,
    preflight,
    registries,
    removal,
    resolvers,
    scheduling,
    status,
    subnets,
)
from kubewright.local.whole.down import sweep
from kubewright.local.whole.run import MachinesRun, Moment
from kubewright.local.whole.services import client
from kubewright.machines.network import Network
from kubewright.machines.parts import ensure_parts
from kubewright.machines.places import disks
from kubewright.manifests import configmaps
from kubewright.pki.encryption import sealing
from kubewright.tokens import secrets, strings

_ADMIN: Final = "/etc/kubernetes/admin.conf"
_DOCUMENT: Final = "kubeadm.yaml"
"""The documents with which the first machine was made; they do not change when the cluster is scaled."""
_ELECTING: Final = ("kube-controller-manager", "kube-scheduler")


def up(paths: ClusterPaths, options: UpOptions, *, sources: BinarySources, reporter: Reporter, clock: Clock, random: Random) -> UpResult:
    """Bring the cluster up and wait until all its nodes are ready.

    Raises CheckFailed on an unsuitable host, before anything is changed, and ConfigurationChanged for another
    configuration than the cluster's. The machines of a new cluster that could not be created are removed again.
    """
    preflight.require(preflight.this_host(sources))
    documents.require_valid(options.config or "")
    _require_supported(options)
    start = clock.monotonic()
    user = owner.of_cluster(paths)
    with owner.changing_as(user, paths, doing=f"up of cluster {paths.name}"):
        found = record.load(paths.record)
        if found is not None:
            members.require_disks(found)
        cluster = _wanted(paths, options, found, random)
        _require_possible(paths, cluster, options)
        parts = ensure_parts(version=cluster.kubernetes_version, sources=sources, reporter=reporter)
        if found is not None and not found.made:
            sweep(paths)  # of a start that did not succeed
        with _undone_on_failure(paths), holding(Deadline(options.within, clock=clock)):
            network = members.claim_network(paths, cluster)
            parts.remember(members.directory(paths))
            cluster = replace(_addressed(cluster, network), disks=str(disks()))
            former = found if found is not None and found.made else cluster
            with owner.acting_as(user):
                record.save(members.while_changing(cluster, former), paths.record)
            if not resolvers.of_host().text(ipv6=network.has_ipv6):
                reporter.emit(Warned(text="machines can reach no name server of this host, so pods resolve only names of the cluster"))
            registries.write_proxies(paths, network, os.environ, reporter=reporter)
            group = members.group_of(paths, cluster, network=network, parts=parts, shared=registries.shared(paths))
            run = MachinesRun(
                paths=paths,
                cluster=cluster,
                former=former,
                group=group,
                token=strings.generate(random).text,
                certificate_key=sealing.new_key(random),
                options=options,
                reporter=reporter,
                clock=clock,
                start=start,
            )
            changes, state = _bring_up(run)
        with owner.acting_as(user):
            publish = tuple(map(str, ports.wanted(cluster, options)))
            record.save(replace(cluster.settled(), publish=publish, begun=(), made=True), paths.record)
        total = clock.monotonic() - start
        run.mark("cluster", state)
        return UpResult(changes=tuple(change for change in changes if change), created=found is None, total=total)


def _bring_up(run: MachinesRun) -> tuple[list[Change], str]:
    """Start machines, make the first one a control plane, join the others, and wait for all nodes.

    Workers start while `init` runs. Returns the changes and the state of the nodes.
    """
    daemon = client.start(run.paths, owner=owner.uid_of(run.paths), outlived=run.options.owner)  # it loads while machines start
    began = Moment.now(run.clock)
    started = _start(run)
    changes = [Change(target=f"machine {name}", action=Action.CREATE, reason="started") for name in started]
    changes += _ready(run, run.planes, started=started)
    changes += ports.ensure(run.paths, run.cluster, run.options, daemon=daemon, waiter=run.waiter)
    newcomers = joining.newcomers(run, run.planes)
    changes += _init(run, newcomers)
    run.mark("apiReady", "reached")
    with endpoints.client(run.paths, run.cluster, clock=run.clock) as api:
        release_leases(api, started=started, since=began.time.timestamp())
        surplus = removal.surplus(run.paths, run.cluster)
        for name in surplus:
            changes += removal.remove(run.paths, run.cluster, name, api, waiter=run.waiter)
        changes += scheduling.ensure(api, run.cluster)
        changes += addons.ensure(api, gateway=run.group.network.gateway)  # before CoreDNS starts, which rereads its file only after 30 s
        changes += _ready(run, run.cluster.workers, started=started)
        newcomers += joining.newcomers(run, run.cluster.workers)
        changes += joining.join(run, newcomers)
        if run.cluster.made and not all(run.cluster.is_worker(name) for name in (*surplus, *newcomers)):
            _restart_proxies(api)
        state = _wait_for_nodes(run, api, started=started, began=began)
        for secret in (secrets.name_of(run.token.partition(".")[0]), configmaps.KUBEADM_CERTS):
            remove_object(api, named("Secret"), secret, secrets.NAMESPACE)
    if state == status.READY:
        run.mark("nodesReady", "reached")
    return changes, state


def _start(run: MachinesRun) -> list[str]:
    for name in members.members(run.cluster):
        if not run.group.is_running(name):
            run.mark(name, "Starting")
    return run.group.start()


def _ready(run: MachinesRun, names: Collection[str], *, started: Collection[str]) -> list[Change]:
    """Wait for machines, and mount the directories and files of the cluster in them."""
    run.group.ready(names)
    for name in names:
        if name in started:
            run.mark(name, "Running")
    return members.ensure_mounts(run.paths, run.cluster, names, former=run.former)


def _init(run: MachinesRun, planes: Sequence[str]) -> list[Change]:
    """Run `init` on the first machine, and keep a copy of the administrator's kubeconfig, which is made to work on the host.

    `planes`, further control planes that are to join, need its certificates, which are sealed.
    """
    machine = run.group.machines[run.first.name]
    kept = run.paths.machine(run.first.name) / _DOCUMENT
    if run.cluster.made and kept.exists():  # a start that failed may have had another address
        made = kept.read_text(encoding="utf-8")
    else:
        made = documents.of_init(run.cluster, run.first, within=run.options.within, unverified=run.unverified)
        _write(run, kept, made)
    credentials = documents.Credentials(token=run.token, certificate_key=run.certificate_key)
    untainted = run.cluster.made and scheduling.is_open(run.cluster)
    document = documents.for_run(made, credentials=credentials, within=run.options.within, untainted=untainted)
    upload = ("--upload-certs", "--skip-certificate-key-print") if planes else ()
    changes = operations.operate(machine, ("init", *upload), document, reporter=run.reporter)
    admin = machine.run("cat", _ADMIN).out
    endpoints.write(run.paths, run.cluster, admin)
    return changes


def _restart_proxies(api: KubeAPI) -> None:
    """Restart kube-proxy so that it learns the addresses of other control planes.

    Its containers have the host names that the machine had when they started.
    """
    for pod in api.list(named("Pod"), secrets.NAMESPACE, label_selector="k8s-app=kube-proxy"):
        remove_object(api, named("Pod"), pod["metadata"]["name"], secrets.NAMESPACE)


def _wait_for_nodes(run: MachinesRun, api: KubeAPI, *, started: Collection[str], began: Moment) -> str:
    """Wait until all nodes are ready, or lack only a network plugin that the user installs; returns the worse of both states.

    The Node of a machine that was started must have been renewed since the run began: it stays Ready for a while.
    Raises HostError if a machine stops in the meantime.
    """
    wanted, seen = set(members.members(run.cluster.settled())), dict[str, str]()
    accepted = {status.READY, *([status.NO_NETWORK] if run.cluster.cni == record.NO_CNI else [])}

    def ready() -> str | None:
        run.require_running()
        since = dict.fromkeys(started, rfc3339_micro(began.time))
        try:
            states = status.node_states(api.list(named("Node")), leases=api.list(named("Lease"), NODE_LEASES), since=since)
            api.get(named("ServiceAccount"), "default", "default")
        except NotFound:
            return "kube-controller-manager has not created the default service account yet"
        except APIError as error:
            return str(error)
        for name in wanted & states.keys():
            if seen.get(name) != states[name]:
                seen[name] = states[name]
                run.mark(name, states[name])
        missing = sorted(name for name in wanted if states.get(name) not in accepted)
        return f"not ready yet: {', '.join(missing)}" if missing else None

    run.waiter.until(
        ready, within=run.options.within, saying="all nodes to be ready", every=0.05, at_most=0.2, remedy="give it more time with --wait"
    )
    return status.NO_NETWORK if status.NO_NETWORK in seen.values() else status.READY


def _wanted(paths: ClusterPaths, options: UpOptions, found: ClusterRecord | None, random: Random) -> ClusterRecord:
    """Return the requested cluster; a new one has no addresses yet. Raises ConfigurationChanged as `record.require_same` does."""
    if found is not None and found.made:
        record.require_same(
            found,
            kubernetes_version=options.kubernetes_version,
            config=options.config,
            cni=options.cni,
        )
        nodes = found.nodes if options.nodes is None else options.nodes
        base = members.with_binds(found.scaled(nodes), options)
        return base if options.control_planes is None else _resized(base, options.control_planes)
    base = found or ClusterRecord(
        name=paths.name,
        id=record.new_id(random),
        machines=(LocalMachineRecord(name=record.first_name(paths.name), address=""),),
        nodes=0,
        kind=record.MACHINES,
    )
    config = base.config if options.config is None else options.config
    nodes = base.nodes if options.nodes is None else options.nodes
    base = replace(
        base.settled(),
        nodes=nodes,
        config=config,
        kubernetes_version=version_of(config, options.kubernetes_version),
        cni=base.cni if options.cni is None else options.cni,
    )
    base = members.with_binds(base, options)
    planes = options.control_planes or 1 + len(base.further)
    return _resized(replace(base, machines=base.machines[:planes]), planes)


def _resized(cluster: ClusterRecord, control_planes: int) -> ClusterRecord:
    """Return the record with so many control planes: new ones have no addresses yet, and the last ones leave."""
    while 1 + len(cluster.further) < control_planes:
        cluster = replace(cluster, machines=(*cluster.machines, LocalMachineRecord(name=cluster.free_name(), address="")))
    return cluster.shrunk(control_planes)


def _addressed(cluster: ClusterRecord, network: Network) -> ClusterRecord:
    """Return the record with the addresses of its machines in a network: of the families that its pods have."""
    indices, ranges, machines = members.members(cluster), subnets.of(cluster.config), []
    for machine in cluster.machines:
        found = ranges.families_of(network.addresses(indices[machine.name]))
        machines.append(replace(machine, address=found[0], second_address="".join(found[1:])))
    return replace(cluster, machines=tuple(machines))


def _require_supported(options: UpOptions) -> None:
    """Refuse options that clusters of machines do not have. Raises UsageError."""
    if (options.nodes or 0) > MOST_WORKERS:
        raise UsageError(f"a cluster of machines has at most {MOST_WORKERS} workers", remedy="choose a lower number of nodes")
    given = {
        "controllers": options.controllers,
        "serving-certificates": options.serving_certificates,
        "client-certificates": options.client_certificates,
    }
    for flag, value in given.items():
        if value is not None:
            raise UsageError(f"--{flag} is not for clusters of machines", remedy="leave it out")


def _require_possible(paths: ClusterPaths, cluster: ClusterRecord, options: UpOptions) -> None:
    """Check what the cluster needs of this host, before anything is changed. Raises CheckFailed, PortInUse, UsageError, ValidationError."""
    preflight.require_families(cluster.config)
    mounts.require_sources(cluster.mounted)
    registries.require_directory(cluster)
    if not cluster.made:
        documents.require_patches(cluster.config, [one.target for one in cluster.mounted])
    ports.require_free(paths, cluster, options)


@contextmanager
def _undone_on_failure(paths: ClusterPaths) -> Iterator[None]:
    """Remove the machines of a cluster that could not be created. An existing one is left as it is, for inspection and repair."""
    try:
        yield
    except BaseException:
        found = record.load(paths.record)
        if found is None or not found.made:  # it may have been completed just before an interruption
            sweep(paths)
        raise


def _write(run: MachinesRun, path: Path, text: str) -> None:
    with owner.acting_as(owner.of_cluster(run.paths)):
        Files().write(File(path=PurePosixPath(path), content=text.encode(), mode=0o600, directory_mode=0o700))


def release_leases(api: KubeAPI, *, started: Collection[str], since: float) -> None:
    """Release the Leases whose holders ran on machines that were started since a time, in seconds since 1970.

    After a power cut or `down --keep-data`, kube-controller-manager and kube-scheduler wait until the Lease of a former
    leader has not changed for 15 seconds (client-go: tools/leaderelection/leaderelection.go); no pod is created or
    scheduled until then. A Lease that was renewed later, or that another machine holds, has a living holder.
    """
    for name in _ELECTING:
        with suppress(NotFound, Conflict):  # no leader has been elected yet, or another one has been by now
            found = api.get(LEASE, name, "kube-system")
            if lease_rules.is_orphaned(found, started, since=since):
                api.update(lease_rules.given_back(found))
