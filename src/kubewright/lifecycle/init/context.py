"""What the phases of init work with: configuration, places, seams, and what earlier phases obtain."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kubewright.apis.addresses import Addresses
from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm.types import ClusterConfiguration, Configuration
from kubewright.apis.layout import Layout
from kubewright.base.clock import Clock
from kubewright.base.events import Line, Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.base.waiting import Condition, Waiter
from kubewright.host.certificates import HostCertificateStore
from kubewright.host.desired import File
from kubewright.host.seam import Host
from kubewright.pki import authorities
from kubewright.pki.keys import Algorithm, KeyPool
from kubewright.pki.store import CertificateStore
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.manifests.patches import Patches


def no_overrides(_: str, /) -> Mapping[str, str]:
    """A real machine changes none of kubeadm's flags."""
    return {}


def name_images(ctx: InitContext) -> Iterable[Step]:
    """Do the phase `preflight` as plans do."""
    from kubewright.lifecycle.init import checks

    return checks.named(ctx)


@dataclass(frozen=True, kw_only=True)
class InitContext:
    """One run of init. Frozen; what a phase obtains for later ones comes from the lazy properties.

    `connect` makes a client from the kubeconfig of a name (`admin`, `super-admin`); `overrides` gives the flags of a component that this
    machine changes. `started` is the moment that certificates count from.
    """

    configuration: Configuration
    layout: Layout
    addresses: Addresses
    detected: Detected
    host: Host
    keys: KeyPool
    clock: Clock
    random: Random
    waiter: Waiter
    reporter: Reporter
    connect: Callable[[str], KubeAPI]
    started: datetime
    overrides: Callable[[str], Mapping[str, str]] = no_overrides
    health_checks: Mapping[str, Condition] = field(default_factory=dict)
    """How to see that a component other than the API server is healthy, by its name."""
    preflight: Callable[[InitContext], Iterable[Step]] = name_images
    """What the phase of that name does: plans and dry runs name the images, a run that changes the machine checks it first."""
    upload_certs: bool = False
    show_token: bool = True
    show_certificate_key: bool = True
    phases: frozenset[str] | None = None
    """Full names of the phases that this run goes through; None: all of them."""
    kubelet_makes: tuple[File, ...] = ()
    """What a kubelet writes once it runs. Where none is started, in a plan, an overlay puts these files there."""

    @property
    def cluster(self) -> ClusterConfiguration:
        """The ClusterConfiguration."""
        return self.configuration.cluster

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
    def patches(self) -> Patches:
        """The user's patches, read at first use. Raises as `patching.read` does."""
        from kubewright.lifecycle.init import patching  # what it needs of other packages takes 10 ms, and few have patches

        return patching.read(self.host, self.configuration, say=lambda text: self.say(patching.TOPIC, text), user=os.geteuid())

    def patched(self, target: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a body with the user's patches for it. Raises DocumentError for one that does not fit."""
        if not self.configuration.init.patches_directory:
            return dict(body)
        from kubewright.lifecycle.init import patching

        return patching.apply(self.patches, target, body, say=lambda text: self.say(patching.TOPIC, text))

    @functools.cached_property
    def external_ca(self) -> bool:
        """Whether the CA's key is kept elsewhere: its certificate is on this machine and its key is not."""
        return authorities.is_external(self.certificates)

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """A client as system:masters, whom the API server obeys before its RBAC rules are there. One try for each request."""
        has_super_admin = self.kubeconfigs.read("super-admin.conf") is not None
        return self.connect("super-admin" if has_super_admin else "admin")

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that init writes with: it tries again while the control plane settles."""
        from kubewright.lifecycle.settling import SettlingKube  # phases that only write files have no API

        within = self.configuration.init.timeouts.kubernetes_api_call.seconds
        return SettlingKube(self.probe, clock=self.clock, within=within)

    @functools.cached_property
    def certificate_key(self) -> str:
        """The key that seals uploaded certificates: the configured one, or a new one for this run."""
        from kubewright.pki import sealing

        return self.configuration.init.certificate_key or sealing.new_key(self.random)

    def runs(self, phase: str) -> bool:
        """Whether this run goes through a phase."""
        return self.phases is None or phase in self.phases

    def reserve_keys(self, algorithms: Sequence[Algorithm]) -> None:
        """Begin to make keys that later phases will need."""
        for algorithm in algorithms:
            self.keys.reserve(algorithm)

    def say(self, topic: str, text: str) -> None:
        """Report one line of kubeadm's progress text."""
        self.reporter.emit(Line(topic=topic, text=text))

    def tell(self, text: str) -> None:
        """Report a text for people that stands without a topic."""
        self.reporter.emit(Line(topic="", text=text))
