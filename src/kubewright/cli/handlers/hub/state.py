"""The state of a hub, as its commands and its daemon open it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from kubewright.apis import formats
from kubewright.apis.kubeconfig import parse
from kubewright.base import yaml
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.events import SilentReporter
from kubewright.base.messages import quoted
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.cli.handlers import cluster_access, machine
from kubewright.cli.handlers.hub import state_key as hub_key
from kubewright.cli.handlers.hub.state_key import HubKey
from kubewright.cli.parsing.flag_documents import FlagDocument
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_result
from kubewright.cli.rows.hub import RUN_FLAGS
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.seal import OldState
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import TAKEN_OVER, Event, HubStore, Retention
from kubewright.host.desired import Directory
from kubewright.host.files import Files
from kubewright.host.locks import Lock
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.in_cluster import in_cluster_access, is_in_cluster
from kubewright.kube.kubeconfigs import access_from_kubeconfig, load_access

CONFIG: Final = FlagDocument(api_version="hub.kubewright/v1alpha1", kind="HubConfiguration", command="hub run", flags=RUN_FLAGS)
_SECRETS: Final = "secrets:"
_PRIVATE: Final = 0o700
_PATIENCE: Final = 30.0
"""Seconds that another process may take to make a state."""
Store = TypeVar("Store", bound=HubStore)


@contextmanager
def store(parsed: Parsed) -> Iterator[HubStore]:
    """Open the state for a command."""
    with closing(open_store(CONFIG.with_file(parsed))) as found:
        yield found


def exists(parsed: Parsed) -> bool:
    """Whether opening the state makes nothing: Secrets are made by the first write."""
    state = CONFIG.with_file(parsed).text("state")
    return state.startswith(_SECRETS) or Path(absolute(state)).exists()


def open_store(parsed: Parsed, *, forced: bool = False) -> HubStore:
    """Open the state for a command; make it where there is none. Raises HostError where that is not possible."""
    place = secrets_place(parsed)
    if place is None:
        return open_file(parsed, forced=forced)
    return open_secrets(parsed, cluster_access.client(place.access), place, forced=forced)


def open_file(parsed: Parsed, *, retention: Retention | None = None, forced: bool = False) -> SQLiteStore:
    """Open the state in a file; make it, and a key for it, where there is none. Raises HostError, and UsageError for one that is in Secrets."""
    if parsed.text("state").startswith(_SECRETS):
        raise UsageError(
            "the state is in Secrets, and not in a file", remedy="copies of the management cluster's etcd have it: copy and restore that"
        )
    path = Path(absolute(parsed.text("state")))
    with _first(path):
        key = state_key(parsed)

        def made(taking_over: Event | None) -> SQLiteStore:
            return SQLiteStore(path, key=key.content, random=SystemRandom(), retention=retention, taking_over=taking_over)

        return _opened(made, key, forced=forced)


def _opened(made: Callable[[Event | None], Store], key: HubKey, *, forced: bool) -> Store:
    """Open a state; take one of an earlier format over where the key allows it, or where it is `forced`: a person has asked for it. Raises OldState."""
    host, event_of_it = machine.host(), event("", TAKEN_OVER)
    try:
        store = made(event_of_it if forced else None)
    except OldState as error:
        hub_key.allow_old(host, key, error)
        store = made(event_of_it)
    hub_key.end_old(host, key)
    return store


@dataclass(frozen=True, kw_only=True)
class SecretsPlace:
    """Where a state in Secrets is. `in_pod`: the cluster is that of the pod which this process runs in."""

    namespace: str
    name: str
    access: Access
    in_pod: bool


def secrets_place(parsed: Parsed) -> SecretsPlace | None:
    """Return where the state is, `secrets:NAMESPACE/NAME` in the cluster whose kubeconfig was named, else in the one whose pod this is; None for a file."""
    if not parsed.text("state").startswith(_SECRETS):
        return None
    namespace, _, name = parsed.text("state").removeprefix(_SECRETS).partition("/")
    if formats.subdomain_problems(namespace) or formats.subdomain_problems(name):
        raise UsageError(f"{quoted(parsed.text('state'))} names no Secrets", remedy="write it as secrets:NAMESPACE/NAME")
    kubeconfig, read = parsed.text("state-kubeconfig"), Files().read
    if not kubeconfig and not is_in_cluster(os.environ):
        raise UsageError(
            "it is not said which cluster has the state of the hub",
            remedy="name its kubeconfig with --state-kubeconfig; only in a pod it can be left out",
        )
    access = load_access(PurePosixPath(absolute(kubeconfig)), read=read) if kubeconfig else in_cluster_access(os.environ, read=read)
    return SecretsPlace(namespace=namespace, name=name, access=access, in_pod=not kubeconfig)


def open_secrets(
    parsed: Parsed, api: KubeClient, place: SecretsPlace, *, retention: Retention | None = None, forced: bool = False
) -> HubStore:
    """Open the state in Secrets. Only the daemon has a `retention`: commands remove nothing that is old."""
    from kubewright.enrollment.state.secret_store import SecretStore

    key = hub_key.read(machine.host(), PurePosixPath(absolute(parsed.text("key-file"))), os.environ, fresh=False)

    def made(taking_over: Event | None) -> HubStore:
        given = {"namespace": place.namespace, "name": place.name}
        return SecretStore(api, **given, key=key.content, random=SystemRandom(), retention=retention, taking_over=taking_over)

    return _opened(made, key, forced=forced)


@contextmanager
def _first(path: Path) -> Iterator[None]:
    """Let one process at a time make a state and its key: of two keys one would be lost, with what is sealed by it."""
    machine.host().ensure(Directory(path=PurePosixPath(path.parent), mode=_PRIVATE))
    if path.exists():
        yield
        return
    lock = Lock(PurePosixPath(f"{path}.lock"), doing="making the state of a hub")
    waiter = PollingWaiter(clock=SystemClock(), reporter=SilentReporter())
    waiter.until(lock.try_acquire, within=_PATIENCE, saying="another kubewright to make the state of the hub")
    try:
        yield
    finally:
        lock.release(remove=True)


def retention(parsed: Parsed) -> Retention:
    """Return how much of the journal is kept. Raises UsageError for nothing at all."""
    age, lines = Duration.parse(parsed.text("keep-journal")).seconds, parsed.number("keep-journal-lines") or 0
    if age <= 0 or lines <= 0:
        raise UsageError("a hub keeps a journal", remedy="give --keep-journal and --keep-journal-lines more than 0")
    return Retention(age=timedelta(seconds=age), lines=lines)


def state_key(parsed: Parsed) -> HubKey:
    """Return the key of the state; make one where there is no state yet. Raises HostError where it is missing, or can be read by others."""
    host = machine.host()
    path = PurePosixPath(absolute(parsed.text("state")))
    host.ensure(Directory(path=path.parent, mode=_PRIVATE))
    return hub_key.read(host, PurePosixPath(absolute(parsed.text("key-file"))), os.environ, fresh=host.state(path) is None)


def cluster(found: HubStore, name: str) -> TenantCluster:
    """Return a cluster of the hub. Raises UsageError where there is none of that name."""
    for one in found.clusters():
        if one.name == name:
            return one
    raise UsageError(f"the hub serves no cluster {quoted(name)}", remedy="`kubewright hub cluster list` shows them")


def event(name: str, what: str, *, node: str = "", **details: Any) -> Event:
    """Return a line of the journal about something that a person does now."""
    return Event(at=rfc3339(SystemClock().now()), cluster=name, event=what, node=node, details={**details, "user": os.getuid()})


def tell(parsed: Parsed, done: Event) -> int:
    """Print what a command has done, as a line or as the line of the journal; return its exit code."""
    form = parsed.text("output")
    if form != "text":
        write_result({name: value for name, value in done.document().items() if name != "number"}, form=form)
    else:
        about = " ".join(word for word in (done.cluster, done.node) if word)
        sys.stdout.write(f"{about}: {done.event}\n" if about else f"{done.event}\n")
    return 0


def access(cluster: TenantCluster) -> Access:
    """Return how the hub reaches a cluster. Raises ValidationError for a kubeconfig that cannot be used."""
    return access_from_kubeconfig(parse(yaml.load_one(cluster.kubeconfig, source=f"the kubeconfig of {cluster.name}")))


def client(cluster: TenantCluster) -> KubeClient:
    """Return a client of a cluster, as the hub's own user there."""
    return cluster_access.client(access(cluster))
