"""Observing the machine on which we run: repeated rounds that update one snapshot.

Blocking calls are made in two threads: one for the container runtime, which gets one request at a time, and one for
everything else. So a runtime that hangs is reported as down in time, and does not delay other observations.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final, Protocol, TypeVar

from kubewright.agent.observation.addresses import LookUp, node_addresses
from kubewright.agent.observation.runtime import NETWORK_UNKNOWN, UNCHECKED, UNKNOWN, RuntimeHealth, shown_version
from kubewright.agent.periodic import Periodic
from kubewright.agent.status import pressures
from kubewright.agent.status.pressures import Measurable, PressureState, Threshold
from kubewright.agent.status.snapshot import Snapshot
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, replace
from kubewright.host.readers import FileReader, Network
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import FileSystem, Image, RuntimeStatus
from kubewright.host.usage import Amount

_log = logging.getLogger(__name__)

RUNTIME_EVERY: Final = 5.0
USAGE_EVERY: Final = 10.0
IMAGES_EVERY: Final = 30.0
IMPATIENT: Final = 0.1
"""Seconds between two requests to a runtime that is not ready yet, for `PATIENT_AFTER` seconds."""
PATIENT_AFTER: Final = 120.0

T = TypeVar("T")


class NodeRuntime(Protocol):
    """The requests of an agent to a container runtime. Every method raises HostError."""

    def version(self) -> RuntimeVersion: ...
    def status(self) -> RuntimeStatus: ...
    def images(self) -> Sequence[Image]: ...
    def image_directories(self) -> Sequence[PurePosixPath]: ...
    def give_pod_range(self, cidrs: str, /) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ObservedMachine:
    """Read access to a machine. `root` is the directory whose file system is reported as the node's; without `runtime` there is none."""

    files: FileReader
    network: Network
    look_up: LookUp
    root: PurePosixPath
    runtime: NodeRuntime | None = None


@dataclass(frozen=True, kw_only=True)
class ObservationSettings:
    """The settings of a node that its observation depends on: its name, the given addresses, and when it is under pressure."""

    name: str
    node_ips: tuple[str, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    hold: float = 300.0
    """Seconds for which a pressure condition stays after its threshold was last met (`evictionPressureTransitionPeriod`)."""


class BlockingCalls(Protocol):
    """Makes blocking calls, one after the other."""

    async def make(self, call: Callable[[], T], /) -> T: ...
    def close(self) -> None: ...


class OneThread:
    """Makes blocking calls in a separate thread. Implements `BlockingCalls`."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="observer")

    async def make(self, call: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


class MachineObserver:
    """Keeps the snapshot of one machine. Implements `SnapshotSource`.

    made ── begin() ──> known ── watch() ──> watching ── stop() ──> stopped
    """

    def __init__(self, machine: ObservedMachine, settings: ObservationSettings, *, calls: Callable[[], BlockingCalls] = OneThread) -> None:
        """Store the arguments; nothing is observed yet."""
        self._machine = machine
        self._settings = settings
        self._for_machine, self._for_runtime = calls(), calls()
        self._health = RuntimeHealth()
        self._images: PurePosixPath | None = None
        self._pressures = PressureState()
        self._began = 0.0
        self._changed: Callable[[], None] = lambda: None
        self._pod_range = self._told_range = ""
        self._rounds = (
            Periodic("a look at the container runtime", self._look_at_runtime, wait=self._runtime_wait),
            Periodic("a look at the machine", self._look_at_machine, wait=lambda: USAGE_EVERY),
            Periodic("a look at the images", self._look_at_images, wait=lambda: IMAGES_EVERY),
        )
        self.snapshot = Snapshot()
        if machine.runtime is not None:
            self.snapshot = Snapshot(runtime_errors=(UNCHECKED,), network_errors=(NETWORK_UNKNOWN,))

    async def begin(self) -> None:
        """Observe everything once. A runtime that does not answer soon is left for later."""
        self._began = _now()
        with suppress(TimeoutError):
            async with asyncio.timeout(RUNTIME_EVERY):
                await self._look_at_runtime()
                await self._look_at_images()
        await self._look_at_machine()

    def watch(self, changed: Callable[[], None], /) -> None:
        """Keep observing: the runtime every 5 s, the machine every 10 s, images every 30 s."""
        self._changed = changed
        first = (self._runtime_wait(), USAGE_EVERY, IMAGES_EVERY)
        for rounds, after in zip(self._rounds, first, strict=True):
            rounds.start(after)

    def give_pod_range(self, cidrs: tuple[str, ...], /) -> None:
        """Pass the pod range to the container runtime in the next round (kubelet: updatePodCIDR)."""
        self._pod_range = ",".join(cidrs)

    async def stop(self) -> None:
        await asyncio.gather(*(rounds.stop() for rounds in self._rounds))
        self._for_machine.close()
        self._for_runtime.close()

    def _runtime_wait(self) -> float:
        young = _now() - self._began < PATIENT_AFTER
        return IMPATIENT if young and (self.snapshot.runtime_errors or self.snapshot.network_errors) else RUNTIME_EVERY

    async def _look_at_runtime(self) -> None:
        runtime = self._machine.runtime
        if runtime is None:
            return
        try:
            status = await self._ask_patiently(runtime.status)
            version = shown_version(await self._for_runtime.make(runtime.version))
        except HostError as error:
            _log.info("the container runtime does not answer: %s", error)
            version = _unknown(self.snapshot.runtime)
        else:
            self._health = self._health.updated(status, now=_now())
            await self._tell_pod_range(runtime)
        health = self._health
        self._see(
            replace(
                self.snapshot,
                runtime=version,
                handlers=health.handlers,
                supplemental_groups_policy=health.supplemental_groups_policy,
                runtime_errors=health.errors(_now()),
                network_errors=(health.network,) if health.network else (),
            )
        )

    async def _tell_pod_range(self, runtime: NodeRuntime) -> None:
        """Pass the pod range to the runtime if it has not got it yet. A failure is retried in the next round."""
        wanted = self._pod_range
        if wanted == self._told_range:
            return
        try:
            await self._for_runtime.make(lambda: runtime.give_pod_range(wanted))
        except HostError as error:
            _log.warning("the container runtime does not accept the range of pod addresses: %s", error)
        else:
            self._told_range = wanted

    async def _look_at_machine(self) -> None:
        """Observe addresses and resource usage."""
        addresses, trouble = await self._for_machine.make(self._addresses)
        amounts = await self._for_machine.make(self._amounts)
        self._pressures = self._pressures.measured(self._settings.thresholds, amounts, now=_now())
        found = self._pressures.conditions(now=_now(), hold=self._settings.hold)
        self._see(replace(self.snapshot, addresses=addresses, address_trouble=trouble, pressures=found))

    async def _look_at_images(self) -> None:
        runtime = self._machine.runtime
        if runtime is None:
            return
        try:
            images = tuple(await self._for_runtime.make(runtime.images))
            self._images = next(iter(await self._for_runtime.make(runtime.image_directories)), None)
        except HostError as error:  # the previous list stays (kubelet v1.36: pkg/kubelet/images/image_gc_manager.go, its imageCache)
            _log.info("the container runtime does not list its images: %s", error)
            images = self.snapshot.images or ()
        self._see(replace(self.snapshot, images=images))

    def _addresses(self) -> tuple[tuple[str, ...], str]:
        settings, machine = self._settings, self._machine
        try:
            return node_addresses(settings.node_ips, name=settings.name, network=machine.network, look_up=machine.look_up), ""
        except HostError as error:
            return (), str(error)

    def _amounts(self) -> Mapping[str, Amount]:
        """Measure every signal that can be measured."""
        files, nodefs = self._machine.files, self._space(self._machine.root)
        imagefs = nodefs if self._images is None else self._space(self._images)  # the node's, unless the runtime has another
        return pressures.measure(Measurable(files=files, nodefs=nodefs, imagefs=imagefs))

    def _space(self, path: PurePosixPath) -> FileSystem | None:
        try:
            return self._machine.files.space(path)
        except HostError as error:
            _log.info("%s", error)
            return None

    def _see(self, new: Snapshot) -> None:
        if new != self.snapshot:
            self.snapshot = new
            self._changed()

    async def _ask_patiently(self, question: Callable[[], T]) -> T:
        """Query the runtime; while it does not answer, record how much time passes."""
        asked = asyncio.ensure_future(self._for_runtime.make(question))
        try:
            while not (await asyncio.wait((asked,), timeout=RUNTIME_EVERY))[0]:
                self._see(replace(self.snapshot, runtime_errors=self._health.errors(_now())))
        finally:
            asked.cancel()
        return asked.result()


def _unknown(runtime: str) -> str:
    """Return the version of a runtime that does not answer (kubelet v1.36: nodestatus.VersionInfo); '' if it never did."""
    return f"{runtime.partition('://')[0]}://{UNKNOWN}" if runtime else ""


def _now() -> float:
    return asyncio.get_running_loop().time()
