"""The daemon's work through the API of a control plane that runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import PurePosixPath
from typing import Final, Protocol

from kubewright.apis.machine import url
from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError, KubewrightError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import replace
from kubewright.base.unexpected import keep_running
from kubewright.host.filesystem.files import Files
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.client import AsyncKubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.daemons.controller import SharedInformer
from kubewright.kube.daemons.informers import Informer
from kubewright.kube.daemons.recorder import EventRecorder
from kubewright.kube.kubeconfigs import load_embedded_access
from kubewright.kube.resources import NODE, SERVICE, Resource, named
from kubewright.local.paths import ClusterPaths
from kubewright.local.whole import documents, members
from kubewright.local.whole.services import volumes
from kubewright.local.whole.services.load_balancers import LoadBalancers
from kubewright.local.whole.services.states import MachineStates
from kubewright.machines.places import MachinePlaces

COMPONENT: Final = "kubewright-machines"
"""The source component of events."""
_ADMIN: Final = "etc/kubernetes/admin.conf"
_WATCHED: Final[tuple[Resource, ...]] = (SERVICE, NODE, named("EndpointSlice"), volumes.CLAIM, volumes.VOLUME)
ASK_EVERY: Final = 10.0
"""Seconds between two checks whether a control plane is ready, if there are several."""
_ANSWERS_WITHIN: Final = 5.0
_LOOK_EVERY: Final = 0.5
"""Seconds between two searches for a control plane."""


class Controller(Protocol):
    """Works until it is cancelled."""

    name: str

    def look_again(self) -> None:
        """Compare again: a machine has started or stopped."""
        ...

    async def run(self) -> None:
        """Run the controller."""
        ...


class ClusterServices:
    """The controllers of a cluster of machines.

    waiting for a control plane ──> working ── one runs again after it stopped, or another one answers instead ──> waiting

    While no control plane runs, they work with what they know, so that addresses still move between workers.
    """

    def __init__(
        self,
        paths: ClusterPaths,
        states: MachineStates,
        *,
        connect: Callable[[Access], AsyncKubeAPI] = AsyncKubeClient,
        every: float = ASK_EVERY,
    ) -> None:
        self._paths = paths
        self._states = states
        self._connect = connect
        self._every = every
        self._changed = asyncio.Event()
        self._controllers: list[Controller] = []
        states.subscribe(self._look_again)

    async def run(self) -> None:
        """Work until cancelled."""
        name = ""
        while True:
            name, access = await self._control_plane(but=name)
            client = self._connect(access)
            run = partial(self._work, client)
            work = asyncio.create_task(keep_running("services of the cluster", run, expected=()), name=f"work through {name}")
            try:
                await self._lost(name, client)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
                await client.close()

    async def _lost(self, name: str, client: AsyncKubeAPI) -> None:
        """Wait until a control plane has stopped, or does not answer, for example because it is paused, while there is another one.

        Also wait for one that runs: until then, nothing could be learned from a new client.
        """
        while name in self._states.running:
            self._changed.clear()
            try:
                async with asyncio.timeout(self._every):
                    await self._changed.wait()
            except TimeoutError:
                if len(self._control_planes()) > 1 and not await _answers(client):
                    return
        while not self._control_planes():
            await asyncio.sleep(_LOOK_EVERY)

    def _look_again(self) -> None:
        self._changed.set()
        for controller in self._controllers:
            controller.look_again()

    async def _control_plane(self, *, but: str) -> tuple[str, Access]:
        """Wait for a control plane that runs, and return its name and the administrator's access, other than `but` if possible."""
        while not (found := self._control_planes()):
            await asyncio.sleep(_LOOK_EVERY)
        return min(found.items(), key=lambda item: item[0] == but)

    def _control_planes(self) -> dict[str, Access]:
        """Return the machines that run and have the administrator's kubeconfig."""
        found = {}
        for name, addresses in self._states.running.items():
            with suppress(KubewrightError):  # it is a worker, or `init` has not finished
                found[name] = self._access(name, addresses[0])
        return found

    def _access(self, name: str, address: str) -> Access:
        """Return the administrator's access. The file is on the machine's disk, so the machine controls its contents."""
        disk = MachinePlaces(members.directory(self._paths) / name).upper
        return replace(load_embedded_access(PurePosixPath(disk / _ADMIN), read=Files().read), server=url(address, documents.PORT))

    async def _work(self, client: AsyncKubeAPI) -> None:
        informers = {resource.kind: SharedInformer(Informer(client, resource)) for resource in _WATCHED}
        events = EventRecorder(client, component=COMPONENT, instance=self._paths.name, clock=SystemClock(), random=SystemRandom())
        self._controllers = list(self._made(client, informers, events))
        async with asyncio.TaskGroup() as group:
            for kind, informer in informers.items():
                group.create_task(keep_running("a watch", informer.run), name=f"watch of {kind}")
            group.create_task(keep_running("events", events.run), name="events")
            for controller in self._controllers:
                group.create_task(keep_running(controller.name, controller.run), name=controller.name)

    def _made(self, client: AsyncKubeAPI, informers: Mapping[str, SharedInformer], events: EventRecorder) -> Iterator[Controller]:
        network = members.network_of(self._paths)
        yield LoadBalancers(
            client,
            services=informers["Service"],
            nodes=informers["Node"],
            slices=informers["EndpointSlice"],
            machines=lambda: self._states.running,
            routes=network,
            pool=network.spare(),
            events=events,
        )
        yield volumes.Provisioner(
            client,
            claims=informers[volumes.CLAIM.kind],
            volumes=informers[volumes.VOLUME.kind],
            machine=self._states.machine,
            exists=self._states.exists,
            events=events,
        )


async def _answers(client: AsyncKubeAPI) -> bool:
    try:
        async with asyncio.timeout(_ANSWERS_WITHIN):
            return bool((await client.raw("GET", "/readyz")).status == 200)
    except (APIError, TimeoutError):
        return False
