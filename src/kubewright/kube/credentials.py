"""The location of a cluster, and our identity there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kubewright.base.errors import UsageError
from kubewright.base.messages import shown_url
from kubewright.base.records import dataclass, field, replace
from kubewright.http.proxies import Proxy

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, kw_only=True)
class Anonymous:
    """No identity: `system:anonymous`."""


@dataclass(frozen=True)
class BearerToken:
    """A bootstrap or service account token."""

    token: str = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ClientCertificate:
    """A client certificate with its intermediates, and its key, both as PEM."""

    cert_pem: bytes = field(repr=False)
    key_pem: bytes = field(repr=False)


Identity = Anonymous | BearerToken | ClientCertificate


@dataclass(frozen=True, kw_only=True)
class Impersonation:
    """Impersonate another user, if our identity has the permission (Kubernetes docs, user impersonation)."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Everything that a client needs to know about a cluster.

    `ca_pem` is the CA that must have signed the server's certificate; None is possible only without `verify`, or for
    a server without TLS.
    """

    server: str
    ca_pem: bytes | None = None
    identity: Identity = field(default_factory=Anonymous)
    verify: bool = True
    tls_server_name: str = ""
    """The name that the server's certificate must have, if that is not the host of the URL."""
    proxy: Proxy | None = None
    """The proxy of the kubeconfig, which takes precedence over the environment's."""
    impersonation: Impersonation | None = None

    def as_identity(self, identity: Identity) -> Access:
        """Return the same access for another identity."""
        return replace(self, identity=identity)

    def context(self) -> ssl.SSLContext | None:
        """Make the TLS context; None for a plain http server.

        Raises CertificateError for unusable PEM, and UsageError for credentials that would be sent unencrypted.
        """
        from kubewright.http import tls  # importing ssl takes 8 ms, and many holders of an Access never connect

        identity = self.identity
        if self.server.startswith("http://"):
            if not isinstance(identity, Anonymous):
                raise UsageError(
                    f"{shown_url(self.server)} has no TLS, and credentials are not sent in the clear", remedy="use its https address"
                )
            return None
        if isinstance(identity, ClientCertificate):
            return tls.client_context(self.ca_pem, identity.cert_pem, identity.key_pem, verify=self.verify)
        return tls.anonymous_context(self.ca_pem, verify=self.verify)
