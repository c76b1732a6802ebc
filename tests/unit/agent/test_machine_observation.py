"""What is observed of a machine: memory, process IDs and disks, the resulting pressures, its addresses, its container runtime."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest

from kubewright.agent.observation.addresses import node_addresses
from kubewright.agent.observation.observer import MachineObserver, ObservationSettings, ObservedMachine, OneThread
from kubewright.agent.observation.runtime import DOWN, UNCHECKED, RuntimeHealth, shown_version
from kubewright.agent.status.pressures import SIGNALS, PressureState, Threshold, thresholds
from kubewright.base.errors import HostError
from kubewright.host import usage
from kubewright.host.network.interfaces import InterfaceAddress
from kubewright.host.seam import RuntimeVersion
from kubewright.host.states import Condition, FileSystem, Image, RuntimeHandler, RuntimeStatus
from kubewright.host.usage import Amount

pytestmark = [pytest.mark.looptime]

GIB = 1 << 30
MEMINFO = "MemTotal: 8388608 kB\nMemFree: 4194304 kB\nInactive(file): 1048576 kB\n"
V2 = {
    "/proc/meminfo": MEMINFO,
    "/proc/sys/kernel/pid_max": "1000\n",
    "/proc/sys/kernel/threads-max": "900",
    "/proc/loadavg": "0 0 0 3/100 7",
}
V1 = {
    **V2,
    "/sys/fs/cgroup/memory/memory.usage_in_bytes": f"{3 * GIB}\n",
    "/sys/fs/cgroup/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
}


class FakeFiles:
    """Files of a machine, and the file systems of two directories."""

    def __init__(self, files: dict[str, str], **spaces: FileSystem) -> None:
        self.files = files
        self.spaces = spaces

    def read(self, path: PurePosixPath, /) -> bytes | None:
        found = self.files.get(str(path))
        return None if found is None else found.encode()

    def space(self, path: PurePosixPath, /) -> FileSystem:
        if path.name not in self.spaces:
            raise HostError(f"{path} is not there")
        return self.spaces[path.name]

    state = entries = weakness = None  # type: ignore[assignment]


class FakeNetwork:
    def __init__(self, *addresses: str, default: str | None = None) -> None:
        self._addresses = addresses
        self._default = default

    def interface_addresses(self) -> list[InterfaceAddress]:
        return [InterfaceAddress(interface="eth0", address=address, up=True) for address in self._addresses]

    def default_address(self, *, family: int) -> str | None:
        return self._default


class FakeRuntime:
    def __init__(self) -> None:
        self.ready = self.network = True
        self.broken = False
        self.found: list[Image] = []
        self.ranges: list[str] = []

    def status(self) -> RuntimeStatus:
        self._check()
        return status(ready=self.ready, network=self.network)

    def version(self) -> RuntimeVersion:
        return RuntimeVersion(name="containerd", version="v2.2.1")

    def images(self) -> list[Image]:
        self._check()
        return self.found

    def image_directories(self) -> list[PurePosixPath]:
        return [PurePosixPath("/images")]

    def give_pod_range(self, cidrs: str, /) -> None:
        self.ranges.append(cidrs)
        if len(self.ranges) == 1:
            raise HostError("not now")

    def _check(self) -> None:
        if self.broken:
            raise HostError("nobody answers")


def status(*, ready: bool = True, network: bool = True, **more: Any) -> RuntimeStatus:
    return RuntimeStatus(
        conditions=(
            Condition(type="RuntimeReady", status=ready, reason="r", message="m"),
            Condition(type="NetworkReady", status=network, reason="NetworkPluginNotReady", message="cni plugin not initialized"),
        ),
        **more,
    )


def disk(*, available: int = 50, free: int = 50, device: int = 1) -> FileSystem:
    return FileSystem(device=device, capacity=100, available=available, inodes=100, inodes_free=free)


def test_the_working_set_is_usage_without_inactive_cache():
    assert usage.memory(FakeFiles(V1)) == Amount(capacity=8 * GIB, available=6 * GIB)
    assert usage.memory(FakeFiles(V2)) == Amount(capacity=8 * GIB, available=5 * GIB)
    assert usage.memory(FakeFiles({})) is None


def test_usage_at_the_root_of_cgroup_v2_is_anonymous_and_cached_memory():
    """opencontainers/cgroups: fs2/memory.go. The root of a cgroup namespace is not the kernel's root and has its own figure."""
    root = {**V2, "/sys/fs/cgroup/memory.stat": f"anon {GIB}\nfile {3 * GIB}\nkernel {9 * GIB}\ninactive_file {2 * GIB}\n"}
    assert usage.memory(FakeFiles(root)) == Amount(capacity=8 * GIB, available=6 * GIB)
    assert usage.memory(FakeFiles({**root, "/sys/fs/cgroup/memory.current": f"{5 * GIB}\n"})) == Amount(capacity=8 * GIB, available=5 * GIB)


def test_available_process_ids_are_the_smaller_limit_minus_all_threads():
    assert usage.process_ids(FakeFiles(V2)) == Amount(capacity=900, available=800)
    assert usage.process_ids(FakeFiles({**V2, "/proc/loadavg": ""})) is None


@pytest.mark.parametrize("signal", sorted(SIGNALS))
def test_each_signal_sets_its_condition(signal):
    expected = {"memory": "MemoryPressure", "pid": "PIDPressure", "nodefs": "DiskPressure", "imagefs": "DiskPressure"}[
        signal.partition(".")[0]
    ]
    rows = thresholds({signal: "10"}, {}, {})
    found = PressureState().measured(rows, {signal: Amount(capacity=100, available=9)}, now=1.0)
    assert found.conditions(now=1.0, hold=300) == {expected}
    assert not PressureState().measured(rows, {signal: Amount(capacity=100, available=10)}, now=1.0).conditions(now=1.0, hold=300)


def test_a_condition_stays_for_some_time_after_it_was_last_observed():
    row = Threshold(signal="memory.available", least="50%")
    low, high = {"memory.available": Amount(capacity=100, available=49)}, {"memory.available": Amount(capacity=100, available=50)}
    state = PressureState().measured([row], low, now=0.0)
    state = state.measured([row], high, now=10.0)
    assert state.conditions(now=299.0, hold=300) == {"MemoryPressure"}
    assert state.conditions(now=300.0, hold=300) == set()
    assert PressureState().measured([row], low, now=0.0).conditions(now=999.0, hold=0) == {"MemoryPressure"}


def test_the_minimum_reclaim_is_added_while_a_threshold_is_met():
    row = Threshold(signal="nodefs.available", least="10", reclaim="5")
    between = {"nodefs.available": Amount(capacity=100, available=12)}
    assert not PressureState().measured([row], between, now=0.0).met
    state = PressureState().measured([row], {"nodefs.available": Amount(capacity=100, available=9)}, now=0.0)
    assert state.measured([row], between, now=1.0).met == {row}


def test_zero_and_a_hundred_percent_disable_a_threshold_and_pod_signals_are_ignored():
    amounts = {"memory.available": Amount(capacity=100, available=0)}
    for least in ("0%", "100%"):
        assert not PressureState().measured(thresholds({"memory.available": least}, {}, {}), amounts, now=0.0).met
    assert thresholds({"allocatableMemory.available": "1Gi"}, {}, {}) == ()


def test_a_runtime_is_down_after_thirty_seconds_without_a_good_answer():
    health = RuntimeHealth()
    assert health.errors(0.0) == (UNCHECKED,)
    assert health.network == "network state unknown"
    health = health.updated(status(handlers=(RuntimeHandler(name="runc"), RuntimeHandler(name=""))), now=10.0)
    assert (health.errors(39.0), health.network) == ((), "")
    assert [one.name for one in health.handlers] == ["", "runc"]
    assert health.errors(40.0) == (DOWN,)


def test_an_unready_runtime_is_quoted_and_its_network_state_is_still_used():
    health = RuntimeHealth().updated(status(), now=0.0).updated(status(ready=False, network=False), now=5.0)
    assert health.errors(6.0) == ("container runtime not ready: RuntimeReady=false reason:r message:m",)
    assert health.network == (
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni plugin not initialized"
    )
    assert health.errors(30.0)[0] == DOWN


def test_a_missing_condition_of_the_runtime_is_quoted_as_by_the_kubelet():
    health = RuntimeHealth().updated(RuntimeStatus(conditions=()), now=0.0)
    assert health.network == "container runtime network not ready: <nil>"
    assert health.errors(1.0) == (UNCHECKED, "container runtime not ready: <nil>")


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("v2.2.1", "2.2.1"),
        ("2.0.0-rc.1+build", "2.0.0-rc.1+build"),
        ("1.6.20~ds1", "1.6.20"),
        ("v1.7", "1.7"),
        ("1.34.1.2-x", "1.34.1.2"),
        ("1.02.3", "1.2.3"),
        ("2", "Unknown"),
        ("01.2.3", "Unknown"),
        ("unknown", "Unknown"),
        ("", "Unknown"),
    ],
)
def test_the_version_of_the_runtime_is_written_as_by_the_kubelet(reported, shown):
    assert shown_version(RuntimeVersion(name="containerd", version=reported)) == f"containerd://{shown}"


def addresses(
    given: Sequence[str] = (), *, own: Sequence[str] = ("10.0.0.1", "fd00::1"), name: str = "n", found: Sequence[str] = ()
) -> Any:
    return node_addresses(given, name=name, network=FakeNetwork(*own, default="10.0.0.9"), look_up=lambda _: found)


@pytest.mark.parametrize(
    ("given", "more", "expected"),
    [
        (("10.0.0.1",), {}, ("10.0.0.1",)),
        (("10.0.0.1", "fd00::1"), {}, ("10.0.0.1", "fd00::1")),
        ((), {"name": "192.0.2.1"}, ("192.0.2.1",)),
        ((), {"found": ("127.0.1.1", "fd00::1", "10.0.0.1")}, ("10.0.0.1",)),
        (("::",), {"found": ("10.0.0.1", "fd00::1")}, ("fd00::1",)),
        ((), {"found": ("fd00::1",)}, ("fd00::1",)),
        ((), {"found": ("127.0.1.1",)}, ("10.0.0.9",)),
    ],
)
def test_addresses_come_from_flags_or_the_name_or_the_default_route(given, more, expected):
    assert addresses(given, **more) == expected


@pytest.mark.parametrize(
    ("given", "reason"), [("127.0.0.1", "loopback"), ("224.0.0.1", "multicast"), ("fe80::1", "link-local"), ("10.0.0.2", "no interface")]
)
def test_an_impossible_node_address_is_refused(given, reason):
    with pytest.raises(HostError, match=reason):
        addresses((given,))


class Calls:
    """Runs calls at once, or never while `hangs` is set."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.hangs = hangs

    async def make(self, call: Any, /) -> Any:
        while self.hangs:
            await asyncio.sleep(1)
        return call()

    def close(self) -> None:
        return


async def observed(runtime: FakeRuntime | None, files: FakeFiles, calls: Any = OneThread, **settings: Any) -> MachineObserver:
    machine = ObservedMachine(
        files=files,  # type: ignore[arg-type]
        network=FakeNetwork(default="10.0.0.9"),  # type: ignore[arg-type]
        look_up=lambda _: (),
        root=PurePosixPath("/root"),
        runtime=runtime,  # type: ignore[arg-type]
    )
    observer = MachineObserver(
        machine,
        ObservationSettings(name="n", thresholds=thresholds({"imagefs.available": "20%", "pid.available": "10"}, {}, {}), **settings),
        calls=calls,
    )
    await observer.begin()
    return observer


async def test_one_observation_contains_everything_and_images_may_have_their_own_disk():
    runtime = FakeRuntime()
    runtime.found = [Image(id="a", size=1)]
    observer = await observed(runtime, FakeFiles(V2, root=disk(), images=disk(available=1, device=2)))
    found = observer.snapshot
    assert (found.addresses, found.runtime, found.images) == (("10.0.0.9",), "containerd://2.2.1", (Image(id="a", size=1),))
    assert found.pressures == {"DiskPressure"}
    assert (found.runtime_errors, found.network_errors) == ((), ())
    await observer.stop()


async def test_images_of_a_stopped_runtime_stay_and_its_version_is_unknown():
    runtime = FakeRuntime()
    runtime.found = [Image(id="a", size=1)]
    observer = await observed(runtime, FakeFiles(V2, root=disk(), images=disk()), Calls)
    observer.watch(lambda: None)
    seen = []
    for broken in (True, False):
        runtime.broken = broken
        await asyncio.sleep(70)
        seen.append((observer.snapshot.runtime, observer.snapshot.images))
    assert seen == [("containerd://Unknown", (Image(id="a", size=1),)), ("containerd://2.2.1", (Image(id="a", size=1),))]
    await observer.stop()


async def test_a_machine_without_a_runtime_reports_none():
    observer = await observed(None, FakeFiles(V2, root=disk(available=1)))
    found = observer.snapshot
    assert (found.runtime, found.images, found.runtime_errors, found.network_errors) == ("", None, (), ())
    assert found.pressures == {"DiskPressure"}  # images would be in the node's file system
    await observer.stop()


async def test_a_recovered_runtime_is_noticed_soon_and_an_unchanged_machine_changes_nothing():
    runtime, changes = FakeRuntime(), []
    runtime.broken = True
    observer = await observed(runtime, FakeFiles(V2, root=disk(), images=disk()))
    assert observer.snapshot.runtime_errors == (UNCHECKED,)
    assert (observer.snapshot.runtime, observer.snapshot.images) == ("", ())
    observer.watch(lambda: changes.append(observer.snapshot))
    await asyncio.sleep(1)
    assert changes == []
    runtime.broken = False
    await asyncio.sleep(0.5)
    assert [one.runtime_errors for one in changes] == [()]
    await observer.stop()
    same = observer.snapshot
    await asyncio.sleep(60)
    assert observer.snapshot is same


async def test_an_unready_runtime_is_polled_ten_times_a_second_for_two_minutes():
    runtime, asked = FakeRuntime(), []
    known = runtime.status

    def counted() -> RuntimeStatus:
        asked.append(1)
        return known()

    runtime.broken, runtime.status = True, counted  # type: ignore[method-assign]
    observer = await observed(runtime, FakeFiles(V2, root=disk(), images=disk()))
    observer.watch(lambda: None)
    await asyncio.sleep(119)
    hasty = len(asked)
    await asyncio.sleep(2)
    before = len(asked)
    await asyncio.sleep(60)
    await observer.stop()
    assert 600 <= hasty <= 1200
    assert 10 <= len(asked) - before <= 13


async def test_a_pod_range_is_sent_to_the_runtime_until_it_is_accepted():
    runtime = FakeRuntime()
    observer = await observed(runtime, FakeFiles(V2, root=disk(), images=disk()))
    observer.watch(lambda: None)
    observer.give_pod_range(("10.1.0.0/24", "fd00::/64"))
    await asyncio.sleep(30)
    observer.give_pod_range(("10.1.0.0/24", "fd00::/64"))
    await asyncio.sleep(30)
    await observer.stop()
    assert runtime.ranges == ["10.1.0.0/24,fd00::/64"] * 2


async def test_a_hanging_runtime_is_down_after_thirty_seconds_and_does_not_block_observations():
    of_machine, of_runtime = Calls(), Calls()
    made, files = iter((of_machine, of_runtime)), FakeFiles(V2, root=disk(), images=disk())
    observer = await observed(FakeRuntime(), files, calls=lambda: next(made))
    observer.watch(lambda: None)
    of_runtime.hangs = True
    await asyncio.sleep(29)
    assert observer.snapshot.runtime_errors == ()
    await asyncio.sleep(12)
    assert observer.snapshot.runtime_errors == (DOWN,)
    files.spaces["root"] = files.spaces["images"] = disk(available=1)
    await asyncio.sleep(11)
    assert observer.snapshot.pressures == {"DiskPressure"}
    of_runtime.hangs = False
    await asyncio.sleep(6)
    assert observer.snapshot.runtime_errors == ()
    await observer.stop()


async def test_a_runtime_that_hangs_from_the_start_does_not_prevent_registration(looptime):
    made = iter((Calls(), Calls(hangs=True)))
    observer = await observed(FakeRuntime(), FakeFiles(V2, root=disk(), images=disk()), calls=lambda: next(made))
    assert looptime < 15
    assert (observer.snapshot.addresses, observer.snapshot.runtime_errors) == (("10.0.0.9",), (UNCHECKED,))
    await observer.stop()
