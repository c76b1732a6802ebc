"""What the phases of reset work with, and how they go on when a step fails."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.clock import Clock
from kubewright.base.errors import HostError, KubewrightError
from kubewright.base.events import Line, Reporter, Warned
from kubewright.base.records import dataclass, field
from kubewright.host.desired import Service
from kubewright.host.failures import expected
from kubewright.host.seam import Host
from kubewright.lifecycle.background import BackgroundTask
from kubewright.lifecycle.operation import Bound
from kubewright.lifecycle.reset.inventory import SERVICE, Inventory
from kubewright.lifecycle.reset.request import ResetRequest

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.node_types import ResetConfiguration
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI

TOPIC: Final = "reset"
PATIENCE: Final = 3.0
"""Seconds for one request to the cluster, which may be down."""


@dataclass(frozen=True, kw_only=True)
class ResetContext:
    """One run of reset."""

    bound: Bound
    configuration: ResetConfiguration
    inventory: Inventory
    request: ResetRequest
    failures: list[KubewrightError] = field(default_factory=list)

    @property
    def host(self) -> Host:
        """The machine."""
        return self.bound.host

    @property
    def clock(self) -> Clock:
        """The time."""
        return self.bound.clock

    @property
    def reporter(self) -> Reporter:
        """Who is told."""
        return self.bound.reporter

    def connect(self) -> KubeAPI:
        """Make a client of the cluster: with the kubeconfig that was named, else the administrator's, else the kubelet's."""
        from kubewright.kube.kubeconfigs import load_access

        layout, base = self.inventory.layout, self.bound.base
        named = [PurePosixPath(self.request.kubeconfig)] if self.request.kubeconfig else []
        for path in named or [layout.kubeconfig("admin"), layout.kubeconfig("kubelet")]:
            if base.read(path) is not None or named:
                return self.bound.connections.kube(load_access(path, read=base.read), timeout=PATIENCE, proxied=False)
        raise HostError("there is no kubeconfig to ask the cluster with", remedy="name one with --kubeconfig")

    def etcd(self, endpoints: tuple[str, ...]) -> Etcd:
        """Make a client of etcd, at these endpoints or where the cluster tells."""
        return self.bound.connections.etcd(lambda: self.etcd_client(endpoints))

    def etcd_client(self, endpoints: tuple[str, ...]) -> Etcd:
        """Make a client at endpoints that the machine tells, else at those that the cluster tells."""
        from kubewright.lifecycle import stacked_etcd

        urls = list(endpoints) or stacked_etcd.endpoints(self.connect())
        return stacked_etcd.client(urls, pki=self.inventory.layout.pki, files=self.host, clock=self.clock)

    @functools.cached_property
    def stopping(self) -> BackgroundTask[Change]:
        """Stopping the kubelet: begun while the container runtime is asked, where nobody is asked whether to go on."""
        return BackgroundTask(lambda: self.host.ensure(Service(name=SERVICE, running=False)))

    def attempt(self, work: Callable[[], Iterable[Change]]) -> Iterator[Change]:
        """Yield the changes of a step. What it raises, be it a bug of ours, is told and kept for the end, and the next step follows."""
        try:
            yield from work()
        except Exception as error:  # the keys that the next step removes are worth more than our surprise
            failure = expected(error)
            self.failures.append(failure)
            self.warn(str(failure))

    def tell(self, done: str, planned: str) -> None:
        """Report a step: `done` where it is done, `planned` in a dry run. An empty text is not said."""
        self.bound.tell(done, planned, topic=TOPIC)

    def tell_people(self, text: str) -> None:
        """Report a text that stands without a topic."""
        self.reporter.emit(Line(topic="", text=text))

    def say(self, text: str) -> None:
        """Report one line of progress, whatever the run is for."""
        self.reporter.emit(Line(topic=TOPIC, text=text))

    def warn(self, text: str) -> None:
        """Report what the user should know, and what is no failure of the run."""
        self.reporter.emit(Warned(text=text))
