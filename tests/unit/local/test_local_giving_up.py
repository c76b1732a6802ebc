"""How soon `up` reports a component that cannot run, with a virtual clock. tests/controlplane does the same with real components."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import cast

import pytest

from kubewright.base.clock import FakeClock
from kubewright.base.errors import ComponentFailed, ServerError
from kubewright.base.events import SilentReporter
from kubewright.base.wait import PollingWaiter
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call
from kubewright.kube.resources import CONFIG_MAP
from kubewright.kube.retrying import RetryingKube
from kubewright.local.cluster.context import UpRun, WatchfulWaiter, require_alive
from kubewright.local.cluster.daemon_client import ControlClient, Reply
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.supervisor import termination
from kubewright.local.up_options import UpOptions

MACHINE = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
LOOKS = 1.0
"""Seconds between two checks: half a second, and the longest pause of any wait."""


@dataclass
class Dying:
    """The daemon's report of a component that exits after this many seconds each time, or whose manifest is refused."""

    clock: FakeClock
    runs: float
    refused: bool = False

    @property
    def second_death(self) -> float:
        return self.runs + termination.restart_delay(1) + self.runs

    def status(self) -> Reply:
        looping = self.clock.monotonic() >= self.second_death
        component = {"machine": MACHINE.name, "name": "etcd", "state": "CrashLoop" if looping else "Running", "reason": "exit code 2"}
        return {"components": [{**component, "refused": self.refused}]}

    def look(self) -> None:
        daemon = SimpleNamespace(require_alive=lambda: None, retried=lambda: True)
        cluster = ClusterRecord(name="one", id="1" * 32, machines=(MACHINE,))
        require_alive(cast("UpRun", SimpleNamespace(daemon=daemon, cluster=cluster)), cast("ControlClient", self))

    def wait(self) -> None:
        """Wait for something that never happens, as `up` waits for a component."""
        patient = PollingWaiter(clock=self.clock, reporter=SilentReporter())
        waiter = WatchfulWaiter(patient, look=self.look, monotonic=self.clock.monotonic)
        waiter.until(lambda: "it does not serve", within=UpOptions().within, saying="etcd")


def fails(_: Call) -> None:
    raise ServerError("etcdserver: request timed out", code=500)


@pytest.mark.parametrize("runs", [0.0, 0.3, 2.0])
def test_a_second_exit_is_reported_within_a_second_while_waiting_for_a_component(runs: float) -> None:
    dying = Dying(FakeClock(), runs)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        dying.wait()
    assert dying.second_death <= dying.clock.monotonic() <= dying.second_death + LOOKS < UpOptions().within / 10


@pytest.mark.parametrize("runs", [0.0, 0.3, 2.0])
def test_a_second_exit_is_reported_within_a_second_while_calling_the_api_server(runs: float) -> None:
    dying = Dying(FakeClock(), runs)
    server = cast("KubeAPI", SimpleNamespace(send=fails))
    api = RetryingKube(server, clock=dying.clock, within=UpOptions().within, look=dying.look)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        api.send(Call(verb="list", resource=CONFIG_MAP))
    assert dying.second_death <= dying.clock.monotonic() <= dying.second_death + LOOKS


def test_a_refused_manifest_is_reported_at_the_first_check() -> None:
    dying = Dying(FakeClock(), 60.0, refused=True)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        dying.wait()
    assert dying.clock.monotonic() <= LOOKS
