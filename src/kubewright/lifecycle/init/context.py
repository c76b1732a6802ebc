"""The context of init's phases, in addition to the common one: clients of the new cluster, and the options."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.types import BootstrapToken, Configuration
from kubewright.apis.machine import Layout
from kubewright.base.records import dataclass, replace
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.init.request import InitOptions
from kubewright.lifecycle.machine import LONG

if TYPE_CHECKING:
    from kubewright.base.change import Change
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access


@dataclass(frozen=True, kw_only=True)
class InitContext(MachineContext):
    """One run of init."""

    layout: Layout
    configuration: Configuration
    request: InitOptions

    def connect(self, name: str, *, timeout: float = LONG) -> KubeAPI:
        """Return a client for a kubeconfig (`admin`, `super-admin`), or for the one that was given.

        Once the API server has answered, the cluster is permanent.
        """
        from kubewright.lifecycle.init import existing_cluster
        from kubewright.lifecycle.steps import stand_ins
        from kubewright.lifecycle.steps.announcing import Noticing

        client = self.bound.connections.own(
            lambda: self._access(name),
            observe=lambda: existing_cluster.cluster(self.bound, self.addresses, kubeconfig=self.request.kubeconfig),
            stand_ins=stand_ins.objects(self.configuration),
            timeout=timeout,
        )
        return Noticing(client, lambda: self.bound.settle(True))

    def _access(self, name: str) -> Access:
        """Read a kubeconfig.

        This machine's own API server is used: a load balancer may not be available yet (kubeadm v1.36: cmd/init.go).
        """
        from kubewright.kube.kubeconfigs import load_access

        if self.request.kubeconfig:
            return load_access(PurePosixPath(self.request.kubeconfig), read=self.host.read)
        return replace(load_access(self.layout.kubeconfig(name), read=self.host.read), server=self.addresses.api_server)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """A client as system:masters, which the API server authorizes before its RBAC rules exist.

        Requests are not retried.
        """
        has_super_admin = self.kubeconfigs.read("super-admin.conf") is not None
        return self.connect("super-admin" if has_super_admin else "admin")

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client for writing: it retries while the control plane settles, and gives up if that does not stay up."""
        from kubewright.kube.retrying import RetryingKube  # phases that only write files need no API

        within = self.configuration.init.timeouts.kubernetes_api_call.seconds
        settles = self.components.diagnosis(("etcd", "kube-apiserver")).explained(lambda: "it settles")

        def look() -> None:
            self.bound.machine.look()
            settles()

        return RetryingKube(self.probe, clock=self.clock, within=within, look=look)

    @functools.cached_property
    def admission(self) -> Iterator[Change]:
        """The change that gives the group in admin.conf its permissions: the first phase that writes to the cluster makes it.

        There is none for another kubeconfig (kubeadm v1.36: cmd/init.go, Client).
        """
        from kubewright.lifecycle.steps import cluster_objects
        from kubewright.manifests import objects

        return iter(()) if self.request.kubeconfig else cluster_objects.apply(self.api, objects.cluster_admins())

    @functools.cached_property
    def bootstrap_tokens(self) -> tuple[BootstrapToken, ...]:
        """The configured tokens; a generated one is replaced by one of an earlier run that is valid long enough."""
        from kubewright.lifecycle import bootstrap_tokens

        return bootstrap_tokens.reused(self.configuration.init.bootstrap_tokens, self.api, now=self.clock.now())

    @functools.cached_property
    def certificate_key(self) -> str:
        """The key that seals uploaded certificates: the configured one, or a new one for this run."""
        from kubewright.pki.encryption import sealing

        return self.configuration.init.certificate_key or sealing.new_key(self.random)
