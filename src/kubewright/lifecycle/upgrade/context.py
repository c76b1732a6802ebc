"""What the phases of `upgrade apply` and `upgrade node` work with: the cluster of this machine, and clients of it."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.node_types import UpgradeApply, UpgradeConfiguration, UpgradeNode
from kubewright.apis.kubeadm.types import Configuration, InitConfiguration, Timeouts
from kubewright.apis.machine import Layout
from kubewright.base.records import dataclass, replace
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.retrying import RetryingKube
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.upgrade import configuration
from kubewright.lifecycle.upgrade.request import UpgradeOptions

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.steps.health import HealthEndpoint

NO_CONTROL_PLANE = "Not a control plane node."
"""Why a phase of control planes is left out."""


@dataclass(frozen=True, kw_only=True)
class UpgradeTask:
    """What is to be done to this machine.

    `version` is '' where the cluster's own counts. `init` is what the machine says of itself; `control_plane`: it has an API server.
    """

    configuration: UpgradeConfiguration
    settings: UpgradeApply | UpgradeNode
    version: str
    init: InitConfiguration
    control_plane: bool


@dataclass(frozen=True, kw_only=True)
class UpgradeContext(MachineContext):
    """One run of an upgrade command on a machine."""

    task: UpgradeTask
    request: UpgradeOptions

    @property
    def timeouts(self) -> Timeouts:
        """How long each kind of wait may take; known before the cluster is."""
        return self.task.configuration.timeouts

    @property
    def control_plane(self) -> bool:
        """Whether this machine has an API server."""
        return self.task.control_plane

    @property
    def node_name(self) -> str:
        """The name of this machine's Node; known before the cluster is."""
        return self.task.init.node_registration.name

    @property
    def renews(self) -> bool:
        """Whether the certificates of components that are upgraded are renewed."""
        return self.task.settings.certificate_renewal is not False

    @property
    def upgrades_etcd(self) -> bool:
        """Whether a local etcd is upgraded as well."""
        return self.task.settings.etcd_upgrade is not False

    @functools.cached_property
    def configuration(self) -> Configuration:
        """The cluster's configuration at the version to upgrade to, and in `init` this machine's part."""
        self.say("upgrade", 'Reading configuration from the "kubeadm-config" ConfigMap in namespace "kube-system"...')
        self.say("upgrade", "Use 'kubewright init phase upload-config kubeadm --config your-config-file' to re-upload it.")
        return configuration.of_cluster(self.client, self.task.init, version=self.task.version, clock=self.clock)

    @functools.cached_property
    def layout(self) -> Layout:
        """Where everything lies: the cluster's configuration tells where certificates and etcd's data are."""
        local = self.configuration.cluster.etcd.local
        return self.host.layout.at(pki=self.configuration.cluster.certificates_dir, etcd_data=local.data_dir if local else None)

    @functools.cached_property
    def client(self) -> KubeAPI:
        """The client of the kubeconfig that counts. One try for each request."""
        return self.bound.connections.kube(self._access)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that phases write with: it tries again what time may mend."""
        within = self.timeouts.kubernetes_api_call.seconds
        return RetryingKube(self.client, clock=self.clock, within=within, look=self.bound.machine.look)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """The administrator's client of the API server of this machine. One try for each request."""
        return self.bound.connections.kube(replace(self.administrator, server=self.addresses.api_server))

    @property
    def administrator(self) -> Access:
        """How the administrator of this machine reaches the cluster. Raises CertificateError where there is no such kubeconfig."""
        return load_access(self.host.layout.kubeconfig("admin"), read=self.host.read)

    def health_endpoint(self, server: str, path: str) -> HealthEndpoint:
        """Return what asks a component of this machine how it is."""
        from kubewright.lifecycle.steps.health import HealthEndpoint

        return self.bound.connections.keep(HealthEndpoint(server, path))

    @functools.cached_property
    def etcd(self) -> Etcd:
        """The member of etcd on this machine."""
        from kubewright.lifecycle import stacked_etcd

        urls = [stacked_etcd.client_url(self.addresses)]
        return self.bound.connections.etcd(lambda: stacked_etcd.client(urls, pki=self.host.layout.pki, files=self.host, clock=self.clock))

    @functools.cached_property
    def members(self) -> Etcd:
        """The whole cluster of etcd, as the pods of its members tell it."""
        from kubewright.lifecycle import stacked_etcd

        within = self.timeouts.etcd_api_call.seconds
        reach = functools.partial(stacked_etcd.connect, self.client, pki=self.host.layout.pki, files=self.host, clock=self.clock)
        return self.bound.connections.etcd(lambda: reach(api_within=self.timeouts.kubernetes_api_call.seconds, within=within))

    @property
    def _access(self) -> Access:
        """Return the access that was named, else the administrator's, on a worker the kubelet's."""
        if self.request.kubeconfig:
            return load_access(PurePosixPath(self.request.kubeconfig), read=self.host.read)
        return self.administrator if self.control_plane else load_access(self.host.layout.kubeconfig("kubelet"), read=self.host.read)


def only_control_planes(ctx: UpgradeContext) -> str | None:
    """Leave a phase out where this machine is a worker."""
    return None if ctx.control_plane else NO_CONTROL_PLANE
