"""What the phases of init work with beside what every workflow has: the clients of the cluster that comes up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.types import BootstrapToken, Configuration
from kubewright.apis.layout import Layout
from kubewright.base.records import dataclass, field
from kubewright.base.waiting import Condition
from kubewright.lifecycle.context import MachineContext
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI


def name_images(ctx: InitContext) -> Iterable[Step]:
    """Do the phase `preflight` as plans do."""
    from kubewright.lifecycle.init import checks

    return checks.named(ctx)


@dataclass(frozen=True, kw_only=True)
class InitContext(MachineContext):
    """One run of init. `connect` makes a client from the kubeconfig of a name (`admin`, `super-admin`)."""

    layout: Layout
    configuration: Configuration
    connect: Callable[[str], KubeAPI]
    health_checks: Mapping[str, Condition] = field(default_factory=dict)
    """How to see that a component other than the API server is healthy, by its name."""
    preflight: Callable[[InitContext], Iterable[Step]] = name_images
    """What the phase of that name does: plans and dry runs name the images, a run that changes the machine checks it first."""
    upload_certs: bool = False
    show_token: bool = True
    show_certificate_key: bool = True

    @functools.cached_property
    def probe(self) -> KubeAPI:
        """A client as system:masters, whom the API server obeys before its RBAC rules are there. One try for each request."""
        has_super_admin = self.kubeconfigs.read("super-admin.conf") is not None
        return self.connect("super-admin" if has_super_admin else "admin")

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client that init writes with: it tries again while the control plane settles, and gives up where that does not stay up."""
        from kubewright.lifecycle.settling import SettlingKube  # phases that only write files have no API

        within = self.configuration.init.timeouts.kubernetes_api_call.seconds
        hopeful = self.reasons(("etcd", "kube-apiserver")).beside(lambda: "it settles")
        return SettlingKube(self.probe, clock=self.clock, within=within, look=hopeful)

    @functools.cached_property
    def bootstrap_tokens(self) -> tuple[BootstrapToken, ...]:
        """The configured tokens; for one that is made up, one of an earlier run where it still lives long enough."""
        from kubewright.lifecycle.init import joining

        return joining.tokens(self)

    @functools.cached_property
    def certificate_key(self) -> str:
        """The key that seals uploaded certificates: the configured one, or a new one for this run."""
        from kubewright.pki import sealing

        return self.configuration.init.certificate_key or sealing.new_key(self.random)
