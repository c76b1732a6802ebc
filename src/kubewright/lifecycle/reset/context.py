"""The context of reset's phases."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.events import Line
from kubewright.base.records import dataclass
from kubewright.lifecycle.operation import RunContext
from kubewright.lifecycle.reset.request import ResetOptions
from kubewright.lifecycle.steps import cleanup
from kubewright.lifecycle.steps.cleanup import Cleanup
from kubewright.lifecycle.steps.inventory import Inventory

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.node_types import ResetConfiguration
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI

TOPIC: Final = "reset"
REMOVE_MEMBER: Final = "remove-etcd-member"
PATIENCE: Final = 3.0
"""Seconds for one request to the cluster, which may be down."""


@dataclass(frozen=True, kw_only=True)
class ResetContext(RunContext):
    """One run of reset."""

    configuration: ResetConfiguration
    inventory: Inventory
    request: ResetOptions

    def connect(self) -> KubeAPI:
        """Return a client of the cluster with the named kubeconfig, else the administrator's, else the kubelet's."""
        from kubewright.kube.kubeconfigs import load_access

        layout, base = self.inventory.layout, self.bound.base
        named = [PurePosixPath(self.request.kubeconfig)] if self.request.kubeconfig else []
        for path in named or [layout.kubeconfig("admin"), layout.kubeconfig("kubelet")]:
            if base.read(path) is not None or named:
                return self.bound.connections.kube(load_access(path, read=base.read), timeout=PATIENCE, proxied=False)
        raise HostError("no kubeconfig for the cluster exists", remedy="pass one with --kubeconfig")

    def etcd(self, endpoints: tuple[str, ...]) -> Etcd:
        """Return a client of etcd, at these endpoints or those from the cluster."""
        return self.bound.connections.etcd(lambda: self.etcd_client(endpoints))

    def etcd_client(self, endpoints: tuple[str, ...]) -> Etcd:
        """Return a client at the endpoints from the machine, else those from the cluster."""
        from kubewright.lifecycle import stacked_etcd

        urls = list(endpoints) or stacked_etcd.endpoints(self.connect())
        return stacked_etcd.client(urls, pki=self.inventory.layout.pki, files=self.host, clock=self.clock)

    @functools.cached_property
    def cleanup(self) -> Cleanup:
        """The context of `cleanup-node`'s steps, which keeps the failures of all phases."""
        return Cleanup(
            host=self.host,
            clock=self.clock,
            reporter=self.reporter,
            inventory=self.inventory,
            report_step=self.report_step,
            unmount_flags=self.configuration.unmount_flags,
            member_removed=REMOVE_MEMBER in self.bound.phases,
        )

    def clean(self) -> Iterable[Change]:
        """Run the phase `cleanup-node`."""
        return cleanup.run(self.cleanup)

    def report_step(self, done: str, planned: str) -> None:
        """Report a step: `done` if it is done, `planned` in a dry run. An empty text is skipped."""
        self.bound.report_step(done, planned, topic=TOPIC)

    def report_text(self, text: str) -> None:
        """Report a text without a topic."""
        self.reporter.emit(Line(topic="", text=text))

    def say(self, text: str) -> None:
        """Report one line of progress in every mode."""
        self.reporter.emit(Line(topic=TOPIC, text=text))
