"""The stores of a hub's state: a row for each scheme of `--state`, with the functions that open the state and limit it to one hub."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from kubewright.apis import formats
from kubewright.base.clock import SystemClock
from kubewright.base.errors import UsageError
from kubewright.base.events import SilentReporter
from kubewright.base.messages import quoted
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass
from kubewright.base.wait import PollingWaiter
from kubewright.cli.handlers import cluster_access, machine
from kubewright.cli.handlers.hub import state_key
from kubewright.cli.handlers.hub.state_key import HubKey
from kubewright.cli.parsing.inputs import absolute
from kubewright.enrollment.state.seal import OldState
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import Event, HubStore, Retention
from kubewright.host.desired import Directory
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.in_cluster import in_cluster_access, is_in_cluster
from kubewright.kube.kubeconfigs import load_access

if TYPE_CHECKING:
    from kubewright.cli.handlers.hub.leading import Leading
    from kubewright.kube.daemons.electing import Election

_PRIVATE: Final = 0o700
_PATIENCE: Final = 30.0
"""Seconds that another process may take to create a state."""
Store = TypeVar("Store", bound=HubStore)


@dataclass(frozen=True, kw_only=True)
class StateOptions:
    """The location of the state, from the flags of every `hub` command."""

    state: str
    state_kubeconfig: str
    key_file: str


class State(Protocol):
    """The state of a hub, not opened yet."""

    def exists(self) -> bool:
        """Whether opening the state creates nothing."""
        ...

    def open(self, taken_over: Event, *, retention: Retention | None = None, forced: bool = False) -> HubStore:
        """Open the state, or create it. Only the daemon passes a `retention`: commands remove no old entries.

        A state of an earlier format is migrated if its key permits that, or with `forced`, at an administrator's
        request. `taken_over` is the journal's line about that. Raises HostError, and OldState.
        """
        ...

    def lead(self, elect: Callable[[str, str], Election | None]) -> Leading:
        """Return how a hub makes sure that it is the only one; `elect` makes an election from a name and a namespace. Raises Locked."""
        ...


class StateInFile:
    """A state in a file: a second process is refused."""

    def __init__(self, options: StateOptions) -> None:
        self._path = Path(absolute(options.state))
        self._key_file = PurePosixPath(options.key_file)

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, taken_over: Event, *, retention: Retention | None = None, forced: bool = False) -> SQLiteStore:
        with _first(self._path):
            key = self.key()

            def made(taking_over: Event | None) -> SQLiteStore:
                return SQLiteStore(self._path, key=key.content, random=SystemRandom(), retention=retention, taking_over=taking_over)

            return _opened(made, key, taken_over, forced=forced)

    def lead(self, elect: Callable[[str, str], Election | None]) -> Leading:
        from kubewright.cli.handlers.hub.leading import FileLock  # commands do not need it

        return FileLock(self._path)

    def key(self) -> HubKey:
        """Return the key; create one if there is no state yet. Raises HostError if it is missing, or if other users can read it."""
        host = machine.host()
        host.ensure(Directory(path=PurePosixPath(self._path.parent), mode=_PRIVATE))
        return state_key.read(host, self._key_file, os.environ, fresh=host.state(PurePosixPath(self._path)) is None)


class StateInSecrets:
    """A state in Secrets, `secrets:NAMESPACE/NAME`: a hub waits until it is the leader, like kube-controller-manager."""

    def __init__(self, options: StateOptions) -> None:
        self._namespace, _, self._name = options.state.partition(":")[2].partition("/")
        if formats.subdomain_problems(self._namespace) or formats.subdomain_problems(self._name):
            raise UsageError(f"{quoted(options.state)} names no Secrets", remedy="write it as secrets:NAMESPACE/NAME")
        if not options.state_kubeconfig and not is_in_cluster(os.environ):
            raise UsageError(
                "the cluster that has the state of the hub is not known",
                remedy="pass its kubeconfig with --state-kubeconfig, which is optional only in a pod",
            )
        self._options = options

    @functools.cached_property
    def _access(self) -> Access:
        """The cluster: that of the given kubeconfig, otherwise that of the pod in which this process runs."""
        kubeconfig, read = self._options.state_kubeconfig, Files().read
        return load_access(PurePosixPath(kubeconfig), read=read) if kubeconfig else in_cluster_access(os.environ, read=read)

    @functools.cached_property
    def _client(self) -> KubeClient:
        return cluster_access.client(self._access)

    def exists(self) -> bool:
        return True  # Secrets are created by the first write

    def open(self, taken_over: Event, *, retention: Retention | None = None, forced: bool = False) -> HubStore:
        from kubewright.enrollment.state.secret_store import SecretStore

        key = state_key.read(machine.host(), PurePosixPath(self._options.key_file), os.environ, fresh=False)

        def made(taking_over: Event | None) -> HubStore:
            given = {"namespace": self._namespace, "name": self._name}
            return SecretStore(self._client, **given, key=key.content, random=SystemRandom(), retention=retention, taking_over=taking_over)

        return _opened(made, key, taken_over, forced=forced)

    def lead(self, elect: Callable[[str, str], Election | None]) -> Leading:
        from kubewright.cli.handlers.hub.leading import SecretsElection  # commands do not need it

        kubeconfig = self._options.state_kubeconfig
        return SecretsElection(
            elect(self._name, self._namespace),
            name=self._name,
            namespace=self._namespace,
            access=self._access,
            kubeconfig=PurePosixPath(kubeconfig) if kubeconfig else None,
            store=self._client,
        )


STATES: Final[Mapping[str, Callable[[StateOptions], State]]] = {"": StateInFile, "secrets": StateInSecrets}
"""The store of each scheme of `--state`; a path has no scheme."""


def state_of(options: StateOptions) -> State:
    """Return the state that the flags name. Raises UsageError."""
    scheme, colon, _ = options.state.partition(":")
    return STATES.get(scheme if colon else "", StateInFile)(options)


def _opened(made: Callable[[Event | None], Store], key: HubKey, taken_over: Event, *, forced: bool) -> Store:
    host = machine.host()
    try:
        store = made(taken_over if forced else None)
    except OldState as error:
        state_key.allow_old(host, key, error)
        store = made(taken_over)
    state_key.end_old(host, key)
    return store


@contextmanager
def _first(path: Path) -> Iterator[None]:
    """Let one process at a time create a state and its key: otherwise one of two keys would be lost, with everything that it sealed."""
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
