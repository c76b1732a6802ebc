"""Makes sure that one hub at a time works with a state.

If the state is a file, a second hub is refused; if it is in Secrets, it waits until it is the leader, like
kube-controller-manager.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath
from typing import Final, Protocol

from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, Forbidden, HostError, Locked, NotFound
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers.daemons import leader_election
from kubewright.host.filesystem.files import Files
from kubewright.host.locks import Lock
from kubewright.http.proxies import Proxies
from kubewright.kube.client import AsyncKubeClient, KubeClient
from kubewright.kube.credentials import Access, Identity
from kubewright.kube.daemons import identities, in_cluster
from kubewright.kube.daemons.electing import Election, LeaderElector
from kubewright.kube.resources import LEASE

_log = logging.getLogger(__name__)

_LOCK: Final = "run.lock"
"""The end of the name of the lock of a state in a file. If a state was removed, its lock does not apply to another one."""


class Leading(Protocol):
    """Makes sure that this process is the only hub that works with its state."""

    @property
    def waits(self) -> bool:
        """Whether this hub waits because another one works."""
        ...

    def require(self) -> None:
        """Raise LeadershipLost if another hub may have taken over."""
        ...

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Work once no other hub does. Raises LeadershipLost."""
        ...

    async def maintain(self) -> None:
        """Do what must be done in the meantime, until cancelled."""
        ...

    async def close(self) -> None:
        """Let another hub take over. Idempotent."""
        ...


class FileLock:
    """For a state in a file: a lock that ends with its process. Raises Locked if another hub has it."""

    waits = False

    def __init__(self, path: Path) -> None:
        self._lock = Lock(PurePosixPath(f"{path}.{_LOCK}"), doing="kubewright hub run")
        try:
            self._lock.acquire()
        except Locked as error:
            raise Locked(
                f"another hub already works with the state {path}",
                detail=error.detail,
                remedy="stop it first, or use a different state for this hub; replicas of a hub need a state in Secrets",
            ) from error

    def require(self) -> None:
        """Do nothing: no other process has the lock while this one lives."""

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        await work()

    async def maintain(self) -> None:
        """Do nothing: there is no such work."""

    async def close(self) -> None:
        self._lock.release()


class SecretsElection:
    """For a state in Secrets: a Lease next to them, with the same name.

    `store` is the client of the state, and `access` that of `kubeconfig`, or without one that of the pod in which this
    process runs. Both clients get its new credentials.
    """

    def __init__(
        self, election: Election | None, *, name: str, namespace: str, access: Access, kubeconfig: PurePosixPath | None, store: KubeClient
    ) -> None:
        self._name = name
        self._namespace = namespace
        self._access = access
        self._kubeconfig = kubeconfig
        self._store = store
        random = SystemRandom()
        self._api = AsyncKubeClient(access, proxies=Proxies.from_environment(os.environ))
        identity = leader_election.identity(random)
        self._elector = LeaderElector(self._api, election, identity=identity, clock=SystemClock(), random=random) if election else None

    @property
    def waits(self) -> bool:
        return self._elector is not None and not self._elector.leads

    def require(self) -> None:
        if self._elector is not None:
            self._elector.require()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        if self._elector is None:
            await work()
            return
        await self._require_right()
        _log.info("waiting for the lease %s/%s, which another hub holds", self._namespace, self._name)
        await self._elector.run(work)

    async def _require_right(self) -> None:
        """Raise an error if this hub may not read the lease, which the election would only retry."""
        try:
            await self._api.get(LEASE, self._name, self._namespace)
        except NotFound:
            return
        except Forbidden as error:
            raise HostError(
                f"this hub may not read the lease {self._namespace}/{self._name}",
                detail=str(error),
                remedy='let it get, create and update "leases" of "coordination.k8s.io" there; or, if no other hub works with this state, use --leader-elect=false',
            ) from error
        except APIError:  # the election retries
            return

    async def maintain(self) -> None:
        clients = (self._api, _Synchronous(self._store))
        if self._kubeconfig is None:
            await in_cluster.keep_token(clients, self._access, read=Files().read)
        else:
            await identities.keep_kubeconfig(clients, self._access, self._kubeconfig, read=Files().read)

    async def close(self) -> None:
        await self._api.close()


class _Synchronous:
    """Adapts a synchronous client for code that expects an asynchronous one."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def set_identity(self, identity: Identity) -> None:
        self._client.set_identity(identity)
