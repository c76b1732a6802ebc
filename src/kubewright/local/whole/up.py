"""`up --machines`: create, repair, resume or scale a cluster of whole machines according to its record.

Each step looks first: machines that run stay, `init` runs again on the first machine and repairs it, and workers join
that have not joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Final

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.deadlines import Deadline, holding
from kubewright.base.errors import APIError, NotFound, UsageError
from kubewright.base.events import Reporter, State
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace
from kubewright.base.wait import PollingWaiter, Waiter
from kubewright.binaries import BinarySources
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.kube.client import KubeClient
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import named
from kubewright.local import mounts, record
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.up_options import UpOptions, UpResult
from kubewright.local.user_documents import version_of
from kubewright.local.whole import addons, documents, members, mounting, operations, owner, ports, preflight, status
from kubewright.local.whole.down import sweep
from kubewright.local.whole.services import client
from kubewright.machines.group import Group, claim_network
from kubewright.machines.parts import ensure_parts
from kubewright.pki import pins
from kubewright.tokens import secrets, strings

_ADMIN: Final = "/etc/kubernetes/admin.conf"
_JOINED: Final = "/etc/kubernetes/kubelet.conf"
_DOCUMENT: Final = "kubeadm.yaml"
"""The documents with which the first machine was made; they do not change when the cluster is scaled."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """One `up`: the desired cluster, its machines, and what it depends on."""

    paths: ClusterPaths
    cluster: ClusterRecord
    former: ClusterRecord
    group: Group
    token: str
    options: UpOptions
    reporter: Reporter
    clock: Clock
    start: float

    @property
    def first(self) -> LocalMachineRecord:
        """The first control plane."""
        return self.cluster.control_plane

    @property
    def waiter(self) -> Waiter:
        """Waits, and shows for what."""
        return PollingWaiter(clock=self.clock, reporter=self.reporter)

    def mark(self, subject: str, state: str) -> None:
        """Report a new state of a machine, or a milestone."""
        self.reporter.emit(State(subject=subject, state=state, elapsed=self.clock.monotonic() - self.start))


def up(paths: ClusterPaths, options: UpOptions, *, sources: BinarySources, reporter: Reporter, clock: Clock, random: Random) -> UpResult:
    """Bring the cluster up and wait until all its nodes are ready.

    Raises CheckFailed on an unsuitable host, before anything is changed, and ConfigurationChanged for another
    configuration than the cluster's. The machines of a new cluster that could not be created are removed again.
    """
    preflight.require()
    documents.require_valid(options.config or "")
    _require_supported(options)
    start = clock.monotonic()
    user = owner.of_cluster(paths)
    with owner.changing_as(user, paths, doing=f"up of cluster {paths.name}"):
        found = record.load(paths.record)
        cluster = _wanted(paths, options, found, random)
        mounts.require_sources(cluster.mounted)
        ports.require_free(paths, cluster, options)
        parts = ensure_parts(version=cluster.kubernetes_version, sources=sources, reporter=reporter)
        if found is not None and not found.made:
            sweep(paths)  # of a start that did not succeed
        network = claim_network(members.group_name(paths), members.directory(paths))
        cluster = replace(cluster, machines=(replace(cluster.control_plane, address=network.address(1)),))
        former = found if found is not None and found.made else cluster
        with owner.acting_as(user):
            record.save(replace(cluster, mounts=former.mounts), paths.record)
        group = members.group_of(paths, cluster, network=network, parts=parts)
        token = strings.generate(random).text
        run = _Run(
            paths=paths,
            cluster=cluster,
            former=former,
            group=group,
            token=token,
            options=options,
            reporter=reporter,
            clock=clock,
            start=start,
        )
        with _undone_on_failure(run), holding(Deadline(options.within, clock=clock)):
            changes, api_ready = _bring_up(run)
        with owner.acting_as(user):
            publish = tuple(map(str, ports.wanted(cluster, options)))
            record.save(replace(cluster, publish=publish, made=True), paths.record)
        total = clock.monotonic() - start
        run.mark("cluster", "Ready")
        return UpResult(changes=tuple(changes), created=found is None, api_ready=api_ready, total=total)


def _bring_up(run: _Run) -> tuple[list[Change], float]:
    """Start machines, make the first one a control plane, let the others join, and wait for all nodes."""
    daemon = client.start(run.paths, owner=owner.uid_of(run.paths))  # it loads while machines start
    changes = [
        *_start(run),
        *mounting.ensure(run.paths, run.cluster, former=run.former),
        *ports.ensure(run.paths, run.cluster, run.options, daemon=daemon, waiter=run.waiter),
        *_init(run),
    ]
    api_ready = run.clock.monotonic() - run.start
    run.mark("apiReady", "reached")
    with _client(run) as api:
        changes += _remove_surplus(run, api)
        changes += addons.ensure(api, gateway=run.group.network.gateway)  # before CoreDNS starts, which rereads its file only after 30 s
        changes += _join(run)
        _wait_for_nodes(run, api)
        remove_object(api, named("Secret"), secrets.name_of(run.token.partition(".")[0]), secrets.NAMESPACE)
    run.mark("nodesReady", "reached")
    return changes, api_ready


def _start(run: _Run) -> list[Change]:
    for name in members.members(run.cluster):
        if not run.group.is_running(name):
            run.mark(name, "Starting")
    started = run.group.up()
    for name in started:
        run.mark(name, "Running")
    return [Change(target=f"machine {name}", action=Action.CREATE, reason="started") for name in started]


def _init(run: _Run) -> list[Change]:
    """Run `init` on the first machine, and keep a copy of the administrator's kubeconfig that works on the host."""
    machine = run.group.machines[run.first.name]
    kept = run.paths.machine(run.first.name) / _DOCUMENT
    if run.cluster.made and kept.exists():  # a start that failed may have had another address
        made = kept.read_text(encoding="utf-8")
    else:
        made = documents.of_init(run.cluster, run.first, cgroup_v1=has_cgroup_v1())
        _write(run, kept, made)
    document = documents.for_run(made, token=run.token, within=run.options.within)
    changes = operations.operate(machine, "init", document, reporter=run.reporter)
    admin = machine.run("cat", _ADMIN).out
    inside, outside = f"https://{run.first.name}:{documents.PORT}", f"https://{run.first.address}:{documents.PORT}"
    _write(run, run.paths.admin_kubeconfig(run.first.name), admin.replace(inside, outside))
    return changes


def _join(run: _Run) -> list[Change]:
    """Let the machines join that have not joined, all at the same time."""
    fresh = [name for name in run.cluster.workers if run.group.machines[name].run("test", "-e", _JOINED, check=False).code]
    if not fresh:
        return []
    pinned = [str(pin) for pin in pins.of_bundle(status.access(run.paths, run.cluster).ca_pem or b"")]

    def join(name: str) -> list[Change]:
        document = documents.of_join(run.cluster, name, token=run.token, pins=pinned, within=run.options.within, cgroup_v1=has_cgroup_v1())
        run.mark(name, "Joining")
        return operations.operate(run.group.machines[name], "join", document, reporter=run.reporter)

    with ThreadPoolExecutor(len(fresh)) as pool:
        return [change for changes in pool.map(join, fresh) for change in changes]


def _remove_surplus(run: _Run, api: KubeClient) -> list[Change]:
    """Remove the Nodes and machines of workers that are no longer wanted."""
    surplus = [name for name in members.existing(run.paths) if run.cluster.is_worker(name) and name not in run.cluster.workers]
    changes = []
    for name in surplus:
        changes.append(remove_object(api, named("Node"), name))
        members.machine_of_group(run.paths, name).remove()
        changes.append(Change(target=f"machine {name}", action=Action.DELETE))
    return changes


def _wait_for_nodes(run: _Run, api: KubeClient) -> None:
    wanted, seen = set(members.members(run.cluster)), dict[str, str]()

    def ready() -> str | None:
        try:
            states = status.node_states(api.list(named("Node")))
            api.get(named("ServiceAccount"), "default", "default")
        except NotFound:
            return "kube-controller-manager has not created the default service account yet"
        except APIError as error:
            return str(error)
        for name in wanted & states.keys():
            if seen.get(name) != states[name]:
                seen[name] = states[name]
                run.mark(name, states[name])
        missing = sorted(name for name in wanted if states.get(name) != status.READY)
        return f"not ready yet: {', '.join(missing)}" if missing else None

    run.waiter.until(
        ready, within=run.options.within, saying="all nodes to be ready", every=0.05, at_most=0.2, remedy="give it more time with --wait"
    )


def _wanted(paths: ClusterPaths, options: UpOptions, found: ClusterRecord | None, random: Random) -> ClusterRecord:
    """Return the requested cluster; a new one has no addresses yet. Raises ConfigurationChanged as `record.require_same` does."""
    if found is not None and found.made:
        record.require_same(found, kubernetes_version=options.kubernetes_version, config=options.config)
        return replace(found.scaled(found.nodes if options.nodes is None else options.nodes), mounts=mounting.wanted(found, options))
    base = found or ClusterRecord(
        name=paths.name,
        id=record.new_id(random),
        machines=(LocalMachineRecord(name=record.first_name(paths.name), address=""),),
        nodes=0,
        kind=record.MACHINES,
    )
    config = base.config if options.config is None else options.config
    nodes = base.nodes if options.nodes is None else options.nodes
    version = version_of(config, options.kubernetes_version)
    return replace(base, nodes=nodes, config=config, kubernetes_version=version, mounts=mounting.wanted(base, options))


def _require_supported(options: UpOptions) -> None:
    """Refuse options that clusters of machines do not have. Raises UsageError."""
    if options.control_planes not in {None, 1}:
        raise UsageError("a cluster of machines has one control plane", remedy="leave --control-planes out")
    given = {
        "controllers": options.controllers,
        "serving-certificates": options.serving_certificates,
        "client-certificates": options.client_certificates,
    }
    for flag, value in given.items():
        if value is not None:
            raise UsageError(f"--{flag} is not for clusters of machines", remedy="leave it out")


def has_cgroup_v1() -> bool:
    """Whether machines of this host have cgroup v1, which the check SystemVerification refuses."""
    return not Path("/sys/fs/cgroup/cgroup.controllers").exists()


@contextmanager
def _client(run: _Run) -> Iterator[KubeClient]:
    client = KubeClient(status.access(run.paths, run.cluster))
    try:
        yield client
    finally:
        client.close()


@contextmanager
def _undone_on_failure(run: _Run) -> Iterator[None]:
    """Remove the machines of a cluster that could not be created. An existing one is left as it is, for inspection and repair."""
    try:
        yield
    except BaseException:
        if not run.cluster.made:
            sweep(run.paths)
        raise


def _write(run: _Run, path: Path, text: str) -> None:
    with owner.acting_as(owner.of_cluster(run.paths)):
        Files().write(File(path=PurePosixPath(path), content=text.encode(), mode=0o600, directory_mode=0o700))
