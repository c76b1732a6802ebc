"""The context of the phases of `node join`: the cluster as a token holder sees it, the key of this join, the hub's answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.node_join_requests import CONFIG_MAP, NAMESPACE, VPN_NETWORKS
from kubewright.base.change import Change, Lifetime
from kubewright.base.errors import APIError, NotFound, TrustError, Unreachable
from kubewright.base.events import Line, Warned
from kubewright.base.masking import remember
from kubewright.base.records import dataclass
from kubewright.enrollment.node import answer_checks
from kubewright.enrollment.node.answer_checks import CheckedAnswer, Expected
from kubewright.enrollment.node.request import NodeJoin
from kubewright.enrollment.protocol import answers, fields
from kubewright.enrollment.protocol.fields import MalformedField, SymmetricKey
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.host.desired import File, Show
from kubewright.kube.credentials import Access, Anonymous, BearerToken
from kubewright.kube.resources import CONFIG_MAP as CONFIG_MAPS
from kubewright.kube.resources import NODE_JOIN_REQUEST
from kubewright.kube.server_info import server_version
from kubewright.lifecycle.operation import RunContext
from kubewright.manifests.tunnels import NODE_INTERFACE
from kubewright.pki import wireguard

if TYPE_CHECKING:
    from kubewright.apis.machine import Layout
    from kubewright.base.versions import Version
    from kubewright.kube.api import KubeAPI

TOPIC: Final = "node-join"
_PRIVATE: Final = 0o700
FetchKubelet = Callable[[str], bytes]
"""Returns the program of a version: `1.36.3`."""


@dataclass(frozen=True, kw_only=True)
class NodeJoinContext(RunContext):
    """One run. Frozen; values that a phase obtains for later ones are lazy properties."""

    join: NodeJoin
    fetch: FetchKubelet

    @property
    def layout(self) -> Layout:
        """The paths of this machine's files."""
        return self.bound.host.layout

    @property
    def kubeconfig(self) -> PurePosixPath:
        """The kubeconfig of the kubelet. It is written last: if it exists, so do the other files."""
        return self.layout.oneinfra / "kubelet.conf"

    @property
    def key_path(self) -> PurePosixPath:
        """The file of this join's key, until the join is complete."""
        return self.layout.join_key

    @functools.cached_property
    def key(self) -> SymmetricKey:
        """The key of this join: that of an interrupted run, otherwise a new one.

        `keep_key` stores it before it is used.
        """
        found = self.host.read(self.key_path)
        return fields.new_key(self.bound.machine.random) if found is None else fields.usable_key(found, name=str(self.key_path))

    def keep_key(self) -> Change:
        """Store the key until the join is complete."""
        content = self.key.content
        return self.host.ensure(
            File(path=self.key_path, content=content, show=Show.MADE, directory_mode=_PRIVATE, lifetime=Lifetime.EPHEMERAL)
        )

    @property
    def tunnel_key_path(self) -> PurePosixPath:
        """The private key of this machine's end of the VPN, in the file that stock nodes use."""
        return self.layout.oneinfra / "wg.key"

    @property
    def new_tunnel_key_path(self) -> PurePosixPath:
        """Its file until the hub has answered, so that a refused join leaves nothing else behind."""
        return self.layout.tunnel_key

    @functools.cached_property
    def tunnel_private_key(self) -> str:
        """The private key that this machine has generated for the VPN; '' if the hub accepts none. `keep_tunnel_key` stores it before it is used."""
        found = self.host.read(self.new_tunnel_key_path)
        if found is not None:
            return remember(found.decode(errors="replace").strip())
        return wireguard.new_private_key(self.bound.machine.random) if VPN_NETWORKS in self.hub_data else ""

    @property
    def tunnel_public_key(self) -> str:
        """The public key, '' if there is none. Raises CertificateError for a file that contains no key."""
        return wireguard.public_key(self.tunnel_private_key) if self.tunnel_private_key else ""

    def keep_tunnel_key(self) -> Iterator[Change]:
        """Store the key for the VPN until the hub has answered, if there is one."""
        if self.tunnel_private_key:
            content = f"{self.tunnel_private_key}\n".encode()
            yield self.host.ensure(
                File(path=self.new_tunnel_key_path, content=content, show=Show.MADE, directory_mode=_PRIVATE, lifetime=Lifetime.EPHEMERAL)
            )

    @functools.cached_property
    def hub_data(self) -> Mapping[str, str]:
        """The hub's description in the cluster. Raises APIError if there is no hub."""
        try:
            found = self.api.get(CONFIG_MAPS, CONFIG_MAP, NAMESPACE)
        except NotFound as error:
            raise APIError(
                f"{self.join.server} has no configmap {NAMESPACE}/{CONFIG_MAP}",
                remedy="check on the hub that it serves this cluster: kubewright hub cluster list",
            ) from error
        return found.get("data") or {}

    @functools.cached_property
    def access(self) -> Access:
        """The cluster, as the holder of the token."""
        return Access(server=self.join.server, ca_pem=self.join.ca_pem, identity=BearerToken(self.join.token.text))

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The client of the cluster."""
        return self.bound.connections.kube(self.access)

    @functools.cached_property
    def anonymous(self) -> KubeAPI:
        """A client without credentials: it can check readiness even if the token is unknown."""
        return self.bound.connections.kube(self.access.as_identity(Anonymous()))

    @functools.cached_property
    def answering(self) -> KubeAPI:
        """The cluster with a hub that answers; in a plan, our stand-in answers instead of the hub."""
        return self.bound.connections.kube(self.access, stand_ins=self._stand_ins())

    def _stand_ins(self) -> Iterator[Mapping[str, Any]]:
        from kubewright.enrollment.node import stand_ins

        networks = tuple(filter(None, self.hub_data.get(VPN_NETWORKS, "").split(",")))
        wanted = JoinRequest(endpoint=self.join.server, sans=self.join.sans, tunnel_key=self.tunnel_public_key, key=self.key)
        yield stand_ins.answered(self.join, wanted, networks, clock=self.bound.clock, random=self.bound.machine.random)

    @functools.cached_property
    def checked(self) -> CheckedAnswer:
        """The checked answer of the hub; phases have no other access to it. Raises TrustError."""
        found = self.answering.get(NODE_JOIN_REQUEST, self.join.node)
        try:
            answer = answers.read(found.get("status") or {}, self.key)
        except MalformedField as error:
            problem = f"the answer to {self.join.node} is not for this machine: {error}"
            raise TrustError(problem, remedy="find out which machine uses this name") from error
        expected = Expected(
            node=self.join.node,
            server=self.join.server,
            ca_pem=self.join.ca_pem,
            sans=self.join.sans,
            now=self.bound.clock.now(),
            offered=self.host.state(self.new_tunnel_key_path) is not None,
            addresses=[one.address for one in self.host.network.interface_addresses() if one.interface != NODE_INTERFACE],
            api_server=self._api_server(),
            accepted=self.join.accepted,
        )
        return answer_checks.checked(answer, expected)

    def _api_server(self) -> Version | None:
        """Return the API server's version; None, with a warning, if a token holder may not read it."""
        try:
            return server_version(self.api)
        except Unreachable:
            raise
        except APIError as error:
            self.warn(f"{error}; so it is not known whether the kubelet version that the hub sent is compatible with it")
            return None

    def say(self, text: str) -> None:
        """Report one line of progress."""
        self.bound.reporter.emit(Line(topic=TOPIC, text=text))

    def warn(self, text: str) -> None:
        """Report a warning."""
        self.bound.reporter.emit(Warned(text=text))


def until_joined(ctx: NodeJoinContext) -> str | None:
    """Skip a phase if this machine already has the hub's files."""
    return f"{ctx.kubeconfig} exists: the hub has answered" if ctx.bound.base.state(ctx.kubeconfig) is not None else None
