"""The tools of this process for the sources of a NodeApprovalPolicy: files, clients of other clusters, a hub's join records."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from kubewright.apis.node_sources import JoinRecordsSource
from kubewright.base.errors import HostError, UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers import cluster_access, machine
from kubewright.controllers.serving.sources.interface import Look, Tools
from kubewright.host.filesystem.files import Files
from kubewright.http.proxies import Proxies
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.daemons.identities import Renewal
from kubewright.kube.kubeconfigs import load_access

if TYPE_CHECKING:
    from kubewright.enrollment.state.store import HubStore


def tools() -> Tools:
    """Return the tools that this process provides to sources."""
    proxies = Proxies.from_environment(os.environ)
    return Tools(read=Files().read, connect=lambda access: AsyncKubeClient(access, proxies=proxies), records=HubRecords)


class HubRecords:
    """The join records of one cluster in the state of a hub, which is only read. Implements `RecordBook`.

    Raises KubewrightError for a state that does not exist, or that the key does not open.
    """

    def __init__(self, source: JoinRecordsSource) -> None:
        from kubewright.enrollment.state.store_thread import StoreThread  # only policies with join records need it

        store, self._renew = _opened(source)
        if source.cluster not in {one.name for one in store.clusters()}:
            store.close()
            raise UsageError(f"the hub has no cluster {source.cluster}", remedy="choose one that `kubewright hub cluster list` shows")
        self._cluster = source.cluster
        self._store = StoreThread(store)

    async def version(self) -> int:
        return await self._store.ask(lambda store: self._current(store).version())

    async def look_up(self, node: str, names: frozenset[str]) -> Look:
        def work(store: HubStore) -> Look:
            version = self._current(store).version()  # first: it reads what the hub has written since
            return Look(version=version, record=store.record(self._cluster, node), owners=store.owners(self._cluster, sorted(names)))

        return await self._store.ask(work)

    async def close(self) -> None:
        self._store.close()

    def _current(self, store: HubStore) -> HubStore:
        """Return the state, which uses the present credentials."""
        self._renew()
        return store


def _opened(source: JoinRecordsSource) -> tuple[HubStore, Callable[[], None]]:
    """Open the state of a hub. Also return a function that renews the credentials for reading it."""
    from kubewright.cli.handlers.hub import state_key

    key = state_key.read(machine.host(), PurePosixPath(source.key_file), os.environ, fresh=False).content
    _, colon, rest = source.state.partition(":")
    if not colon:
        from kubewright.enrollment.state.sqlite_store import SQLiteStore

        if not Path(source.state).is_file():
            raise HostError(f"{source.state} does not exist", remedy="set `state` to that of the hub")
        return SQLiteStore(Path(source.state), key=key, random=SystemRandom()), lambda: None
    from kubewright.enrollment.state.secret_store import SecretStore

    path, read = PurePosixPath(source.state_kubeconfig), Files().read
    access = load_access(path, read=read)
    client = cluster_access.client(access)
    namespace, _, name = rest.partition("/")
    store = SecretStore(client, namespace=namespace, name=name, key=key, random=SystemRandom())
    return store, Renewal(client, access, path, read=read)
