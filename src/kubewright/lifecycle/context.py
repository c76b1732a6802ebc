"""The common context of every operation's phases on a machine: the seams, its paths and files, and the configuration of its cluster."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration, Timeouts
from kubewright.apis.machine import Addresses, Detected
from kubewright.base.events import Line
from kubewright.base.records import dataclass
from kubewright.host.certificates import HostCertificateStore
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.operation import RunContext
from kubewright.pki import store
from kubewright.pki.store import CertificateStore

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.base.wait import Condition
    from kubewright.lifecycle.steps import static_pods
    from kubewright.lifecycle.steps.health import ComponentWaiter
    from kubewright.lifecycle.steps.health_lines import HealthLines
    from kubewright.pki.ensure import IssuingSources


def no_overrides(_: str, /) -> Mapping[str, str]:
    """Return no flags: a real machine uses kubeadm's flags unchanged."""
    return {}


@dataclass(frozen=True, kw_only=True)
class MachineContext(RunContext):
    """One run of an operation on a machine. Frozen; values that one phase obtains for later ones are lazy properties.

    `overrides` returns the flags of a component that this machine changes.
    """

    addresses: Addresses
    overrides: Callable[[str], Mapping[str, str]] = no_overrides

    if TYPE_CHECKING:

        @property
        def layout(self) -> Layout:
            """The paths of this machine's files."""
            ...

        @property
        def configuration(self) -> Configuration:
            """The configuration of this machine's part of the cluster: given to `init`, read from the cluster by `join`."""
            ...

    @property
    def detected(self) -> Detected:
        """The facts of the machine."""
        return self.bound.base.facts.detected

    @property
    def issuing(self) -> IssuingSources:
        """The dependencies of issuing certificates: keys in generation, and validity periods that begin at the start of this run."""
        from kubewright.pki.ensure import IssuingSources  # workers issue none

        return IssuingSources(self.clock, self.random, self.bound.keys, self.bound.started)

    @property
    def cluster(self) -> ClusterConfiguration:
        """The ClusterConfiguration."""
        return self.configuration.cluster

    @property
    def timeouts(self) -> Timeouts:
        """The time limit of each kind of wait."""
        return self.configuration.init.timeouts

    @property
    def node_name(self) -> str:
        """The name of this machine's Node."""
        return self.configuration.init.node_registration.name

    @functools.cached_property
    def certificates(self) -> CertificateStore:
        """The files below the certificate directory."""
        return HostCertificateStore(self.host, directory=self.layout.pki)

    @functools.cached_property
    def kubeconfigs(self) -> CertificateStore:
        """The kubeconfigs of the Kubernetes directory."""
        return HostCertificateStore(self.host, directory=self.layout.kubernetes)

    @functools.cached_property
    def patched(self) -> static_pods.Patched:
        """A function that applies the user's patches to the body of a target; they are read at first use.

        Raises as `patch_directory` does.
        """
        if not self.configuration.init.patches_directory:
            return lambda _, body: dict(body)
        from kubewright.lifecycle import patch_directory  # few runs have any

        return patch_directory.applying(self.host, self.configuration, reporter=self.reporter)

    @functools.cached_property
    def external_ca(self) -> bool:
        """Whether the CA's key is kept elsewhere: its certificate exists on this machine and its key does not."""
        return store.is_external(self.certificates)

    def runs(self, phase: str) -> bool:
        """Return whether this run includes a phase."""
        return phase in self.bound.phases

    @property
    def inputs(self) -> static_pods.Inputs:
        """The inputs of this machine's static pods."""
        from kubewright.lifecycle.steps import static_pods  # for control planes

        return static_pods.Inputs(
            configuration=self.configuration,
            layout=self.layout,
            addresses=self.addresses,
            detected=self.detected,
            overrides=self.overrides,
            external_ca=self.external_ca,
        )

    @functools.cached_property
    def components(self) -> ComponentWaiter:
        """The waiter for this machine's static pods."""
        from kubewright.lifecycle.steps.health import ComponentWaiter  # only for phases that wait

        return ComponentWaiter(
            waiter=self.waiter,
            diagnosis=functools.partial(self.bound.machine.diagnosis, host=self.host),
            within=self.timeouts.control_plane_component_health_check.seconds,
        )

    @property
    def health_lines(self) -> HealthLines:
        """The reporter of waits for the kubelet and the components."""
        from kubewright.lifecycle.steps.health_lines import HealthLines

        waits = self.bound.mode is Mode.APPLY
        return HealthLines(reporter=self.reporter, clock=self.clock, socket=self.host.layout.cri_socket, waits=waits)

    @functools.cached_property
    def health_checks(self) -> Mapping[str, Condition]:
        """The health conditions of the components other than the API server, by name."""
        from kubewright.lifecycle.steps import health

        found = health.checks(self.configuration, layout=self.layout, addresses=self.addresses, detected=self.detected)
        return {name: self.bound.connections.keep(endpoint) for name, endpoint in found.items()}

    def say(self, topic: str, text: str) -> None:
        """Report one line of kubeadm's progress text."""
        self.reporter.emit(Line(topic=topic, text=text))

    def report_text(self, text: str) -> None:
        """Report a text for people, without a topic."""
        self.reporter.emit(Line(topic="", text=text))


def dns_disabled(ctx: MachineContext) -> str | None:
    """Return why CoreDNS is left out, None if it is not."""
    return "dns.disabled is set" if ctx.cluster.dns.disabled else None


def proxy_disabled(ctx: MachineContext) -> str | None:
    """Return why kube-proxy is left out, None if it is not."""
    return "proxy.disabled is set" if ctx.cluster.proxy.disabled else None
