"""What a kubeconfig says, as values. Names are kept in the order of the file; whatever is secret stays out of `repr`."""

from __future__ import annotations

from collections.abc import Mapping

from kubewright.base.records import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """How a cluster is reached and trusted. `certificate_authority` is a path, relative to the file; the data counts more than the path."""

    server: str = ""
    certificate_authority: str = ""
    certificate_authority_data: bytes = field(default=b"", repr=False)
    insecure_skip_tls_verify: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    disable_compression: bool = False


@dataclass(frozen=True, kw_only=True)
class User:
    """Who asks. `exec` and `auth_provider` are the raw maps; paths are relative to the file."""

    client_certificate: str = ""
    client_certificate_data: bytes = field(default=b"", repr=False)
    client_key: str = ""
    client_key_data: bytes = field(default=b"", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    exec: Mapping[str, object] | None = field(default=None, repr=False)
    auth_provider: Mapping[str, object] | None = field(default=None, repr=False)
    impersonate: str = ""
    impersonate_uid: str = ""
    impersonate_groups: tuple[str, ...] = ()

    @property
    def has_certificate(self) -> bool:
        """Whether there is a client certificate, as data or path."""
        return bool(self.client_certificate or self.client_certificate_data)

    @property
    def has_credentials(self) -> bool:
        """Whether there is anything to authenticate with (kubeadm's discovery: token, tokenFile, basic, certificate, exec, provider)."""
        return bool(self.has_certificate or self.token or self.token_file or self.username or self.exec or self.auth_provider)


@dataclass(frozen=True, kw_only=True)
class Context:
    """A cluster and a user that go together, by name."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A context with what it names."""

    cluster: Cluster
    user: User
    namespace: str = ""


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """A kubeconfig that was read: well-formed, not necessarily usable. `source` is its file name, for messages."""

    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    users: Mapping[str, User] = field(default_factory=dict)
    contexts: Mapping[str, Context] = field(default_factory=dict)
    current_context: str = ""
    source: str = ""

    @property
    def cluster(self) -> Cluster | None:
        """The cluster of the current context, or None."""
        context = self.contexts.get(self.current_context)
        return self.clusters.get(context.cluster) if context else None

    @property
    def user(self) -> User | None:
        """The user of the current context, or None."""
        context = self.contexts.get(self.current_context)
        return self.users.get(context.user) if context else None
