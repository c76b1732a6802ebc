"""How soon `up` tells of a component that cannot run, by a virtual clock. That real components are told of so: tests/controlplane."""

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
from kubewright.local.cluster.up import UpOptions
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.supervisor import termination

MACHINE = LocalMachineRecord(name="one-control-plane", address="127.0.0.11")
LOOKS = 1.0
"""Seconds between two looks: half a second, and the longest pause of whoever waits."""


@dataclass
class Dying:
    """What the daemon says of a component that ends whenever it has run for so many seconds, or whose manifest is refused."""

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
        """Wait for what never comes, as `up` waits for a component."""
        patient = PollingWaiter(clock=self.clock, reporter=SilentReporter())
        waiter = WatchfulWaiter(patient, look=self.look, monotonic=self.clock.monotonic)
        waiter.until(lambda: "it does not serve", within=UpOptions().within, saying="etcd")


def fails(_: Call) -> None:
    raise ServerError("etcdserver: request timed out", code=500)


@pytest.mark.parametrize("runs", [0.0, 0.3, 2.0])
def test_whoever_waits_for_a_component_hears_of_its_second_death_in_a_second(runs: float) -> None:
    dying = Dying(FakeClock(), runs)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        dying.wait()
    assert dying.second_death <= dying.clock.monotonic() <= dying.second_death + LOOKS < UpOptions().within / 10


@pytest.mark.parametrize("runs", [0.0, 0.3, 2.0])
def test_whoever_asks_an_api_server_hears_of_a_second_death_in_a_second(runs: float) -> None:
    dying = Dying(FakeClock(), runs)
    server = cast("KubeAPI", SimpleNamespace(send=fails))
    api = RetryingKube(server, clock=dying.clock, within=UpOptions().within, look=dying.look)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        api.send(Call(verb="list", resource=CONFIG_MAP))
    assert dying.second_death <= dying.clock.monotonic() <= dying.second_death + LOOKS


def test_a_manifest_that_is_refused_is_told_of_at_the_first_look() -> None:
    dying = Dying(FakeClock(), 60.0, refused=True)
    with pytest.raises(ComponentFailed, match="etcd does not stay up"):
        dying.wait()
    assert dying.clock.monotonic() <= LOOKS
