"""The context of the phases of `upgrade apply` and `upgrade node`: the cluster's configuration, and clients."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.node_types import UpgradeApply, UpgradeConfiguration, UpgradeNode
from kubewright.apis.kubeadm.types import Configuration, InitConfiguration, Timeouts
from kubewright.apis.machine import Layout
from kubewright.base.records import asdict, dataclass, field, replace
from kubewright.base.wait import Failed, reporting
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.retrying import RetryingKube
from kubewright.lifecycle import stored_configuration
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.steps import operation_lease, stand_ins
from kubewright.lifecycle.upgrade import configuration
from kubewright.lifecycle.upgrade.request import UpgradeOptions

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI
    from kubewright.kube.credentials import Access
    from kubewright.lifecycle.operation import Result
    from kubewright.lifecycle.steps.health import HealthEndpoint

KUBELET_OPERATION = "kubelet"
"""The name of a replacement of the kubelet in its checkpoint."""
KUBELET_FILES = "upgrade-kubelet-files"
"""The name of a replacement of the kubelet's files in its checkpoint."""
NO_CONTROL_PLANE = "Not a control plane node."
"""The reason for which phases of control planes are skipped on workers."""


@dataclass(frozen=True, kw_only=True)
class UpgradeTask:
    """The request for this machine.

    `version` is '' if the version that the cluster stores is used. `init` is the machine's own part of the
    configuration; `control_plane`: it has an API server. `without_cluster`: there is no kubeconfig, and this is a dry
    run, which continues with stand-ins.
    """

    configuration: UpgradeConfiguration
    settings: UpgradeApply | UpgradeNode
    version: str
    init: InitConfiguration
    control_plane: bool
    without_cluster: bool = False


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Something that a run has verified: the expected state of a running component, and the one that was found.

    `where` is the Node.
    """

    what: str
    where: str
    expected: str
    found: str

    def as_map(self) -> dict[str, object]:
        """Return the form that `-o json` prints."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class UpgradeContext(MachineContext):
    """One run of an upgrade command on one machine."""

    task: UpgradeTask
    request: UpgradeOptions
    proofs: list[Proof] = field(default_factory=list)
    """What the run has verified, in order."""

    @property
    def timeouts(self) -> Timeouts:
        """The time limit of each kind of wait; available before the cluster has been read."""
        return self.task.configuration.timeouts

    @property
    def control_plane(self) -> bool:
        """Whether this machine has an API server."""
        return self.task.control_plane

    @property
    def kubeconfig(self) -> PurePosixPath:
        """The kubeconfig of this run."""
        return kubeconfig_path(self.request, self.host.layout, control_plane=self.control_plane)

    @property
    def without_cluster(self) -> bool:
        """Whether this is a dry run on stand-ins; a plan requires a cluster."""
        return self.task.without_cluster and self.bound.mode is Mode.NARRATE

    @property
    def node_name(self) -> str:
        """The name of this machine's Node; available before the cluster has been read."""
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
        """The cluster's configuration with the version to upgrade to, and this machine's part in `init`."""
        for text in stored_configuration.READING:
            self.say("upgrade", text)
        return configuration.of_cluster(self.client, self.task.init, version=self.task.version, clock=self.clock)

    @functools.cached_property
    def layout(self) -> Layout:
        """The machine's layout, with the certificate and etcd data directories of the cluster's configuration."""
        local = self.configuration.cluster.etcd.local
        return self.host.layout.at(pki=self.configuration.cluster.certificates_dir, etcd_data=local.data_dir if local else None)

    @functools.cached_property
    def client(self) -> KubeAPI:
        """The client of the chosen kubeconfig. It sends each request once."""
        return self.bound.connections.kube(self._access)

    @functools.cached_property
    def lease_api(self) -> KubeAPI:
        """The same client for the lease of operations."""
        return self.bound.connections.kube(self._access, timeout=operation_lease.REQUEST)

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client with which phases write: it repeats requests after temporary errors."""
        within = self.timeouts.kubernetes_api_call.seconds
        return RetryingKube(self.client, clock=self.clock, within=within, look=self.bound.machine.look)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """The administrator's client of this machine's API server. It sends each request once."""
        return self.bound.connections.kube(replace(self.administrator, server=self.addresses.api_server))

    @property
    def administrator(self) -> Access:
        """The contents of admin.conf. Raises CertificateError if it does not exist."""
        return self._load(self.host.layout.kubeconfig("admin"))

    def health_endpoint(self, server: str, path: str) -> HealthEndpoint:
        """Return the health endpoint of a component of this machine; it is closed at the end of the run."""
        from kubewright.lifecycle.steps.health import HealthEndpoint

        return self.bound.connections.keep(HealthEndpoint(server, path))

    @functools.cached_property
    def etcd(self) -> Etcd:
        """The client of the etcd member on this machine."""
        from kubewright.lifecycle import stacked_etcd

        urls = [stacked_etcd.client_url(self.addresses)]
        return self.bound.connections.etcd(lambda: stacked_etcd.client(urls, pki=self.host.layout.pki, files=self.host, clock=self.clock))

    @functools.cached_property
    def members(self) -> Etcd:
        """The client of the whole etcd cluster; the endpoints are read from the pods of its members."""
        from kubewright.lifecycle import stacked_etcd

        reach = functools.partial(stacked_etcd.connect, self.client, pki=self.host.layout.pki, files=self.host, clock=self.clock)
        api_within, within = self.timeouts.kubernetes_api_call.seconds, self.timeouts.etcd_api_call.seconds
        return self.bound.connections.etcd(lambda: reach(api_within=api_within, within=within, failed=self.waiting_for_etcd()))

    def waiting_for_etcd(self) -> Failed:
        """Return what reports why requests to etcd are repeated."""
        return reporting("the members of etcd to answer", clock=self.clock, reporter=self.reporter)

    def prove(self, what: str, *, expected: str, found: str) -> None:
        """Record something that was verified on this machine."""
        self.proofs.append(Proof(what=what, where=self.node_name, expected=expected, found=found))

    @property
    def _access(self) -> Access:
        """The contents of the kubeconfig of this run."""
        return self._load(self.kubeconfig)

    def _load(self, path: PurePosixPath) -> Access:
        return stand_ins.access() if self.without_cluster else load_access(path, read=self.host.read)


def kubeconfig_path(request: UpgradeOptions, layout: Layout, *, control_plane: bool) -> PurePosixPath:
    """Return the kubeconfig that was given; otherwise admin.conf, or on a worker kubelet.conf."""
    return PurePosixPath(request.kubeconfig) if request.kubeconfig else layout.kubeconfig("admin" if control_plane else "kubelet")


def only_control_planes(ctx: UpgradeContext) -> str | None:
    """Return why a phase of control planes is skipped; None on a control plane."""
    return None if ctx.control_plane else NO_CONTROL_PLANE


def report(result: Result[UpgradeContext]) -> dict[str, object]:
    """Return the result of a run for `-o json`: its changes, and what it has verified."""
    return {"changes": result.change_list, "proofs": [proof.as_map() for proof in result.context.proofs]}
