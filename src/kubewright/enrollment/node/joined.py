"""A machine that has joined through a hub, and its cluster as its kubelet has it: what follows a join begins here."""

from __future__ import annotations

import functools
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.kube.credentials import ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle.operation import Bound
from kubewright.pki import certificates

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

_USER: Final = "system:node:"


@dataclass(frozen=True, kw_only=True)
class JoinedMachine:
    """What the contexts of such operations have in common."""

    bound: Bound

    @property
    def kubeconfig(self) -> PurePosixPath:
        """The kubelet's kubeconfig, which the hub gave."""
        return self.bound.host.layout.oneinfra / "kubelet.conf"

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The cluster, as this machine's kubelet."""
        return self.bound.connections.kube(load_access(self.kubeconfig, read=self.bound.base.read))

    @functools.cached_property
    def node(self) -> str:
        """The name of the Node, as the certificate has it. Raises CertificateError for a kubeconfig that is no kubelet's."""
        identity = load_access(self.kubeconfig, read=self.bound.base.read).identity
        name = ""
        if isinstance(identity, ClientCertificate):
            name = certificates.first(identity.cert_pem, source=str(self.kubeconfig)).common_name
        if not name.startswith(_USER):
            raise CertificateError(
                f"{self.kubeconfig} is no kubelet's",
                remedy="join this machine again; to leave, `kubewright node leave --skip-phases depart`, and delete the Node by hand",
            )
        return name.removeprefix(_USER)
