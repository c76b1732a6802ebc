"""kubeadm's defaults for Init-, Cluster-, Join- and ResetConfiguration.

Those of UpgradeConfiguration are in its types (kubeadm v1.36: apis/kubeadm/v1beta4). Pure: the caller passes facts of
the machine as `DefaultingMachine`. Values that cannot be defaulted are recorded at their place and stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Final

from kubewright.apis import formats
from kubewright.apis.findings import Place
from kubewright.apis.kubeadm import versions
from kubewright.apis.kubeadm.node_types import Discovery, FileDiscovery, JoinConfiguration, JoinControlPlane, ResetConfiguration
from kubewright.apis.kubeadm.overrides import with_attribute
from kubewright.apis.kubeadm.types import (
    CONTROL_PLANE_TAINT,
    DEFAULT_GROUP,
    TOKEN_USAGES,
    BootstrapToken,
    ClusterConfiguration,
    Etcd,
    InitConfiguration,
    LocalAPIEndpoint,
    LocalEtcd,
    NodeRegistration,
)
from kubewright.apis.kubeadm.versions import CI_REPOSITORY, DEFAULT_REPOSITORY
from kubewright.apis.machine import API_SERVER_PORT, CRI_SOCKET, Detected, host_port
from kubewright.base.durations import HOUR, Duration
from kubewright.base.messages import quoted
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, replace

TOKEN_TTL: Final = Duration(24 * HOUR)
NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - kubeadm's mark for a machine without any route
URL_SCHEME: Final = "unix"
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_FAIR: Final = 256 - 256 % len(_ALPHABET)


@dataclass(frozen=True, kw_only=True)
class DefaultingMachine:
    """The facts of a machine that defaulting needs.

    `look` returns them; it is called at most once, and only if a value is missing. None: there is no machine, so its
    name and address stay unset. `allow_loopback`: a loopback advertise address is used as it is. `detect_cri`: an unset
    socket is chosen from those that exist; otherwise it is containerd's.
    """

    look: Callable[[], Detected] | None
    random: Random
    allow_loopback: bool = False
    detect_cri: bool = True

    @property
    def is_known(self) -> bool:
        """Whether there is a machine."""
        return self.look is not None

    @cached_property
    def detected(self) -> Detected:
        """The facts of the machine."""
        return Detected(host_name="") if self.look is None else self.look()


def init_defaults(init: InitConfiguration, machine: DefaultingMachine, at: Place) -> InitConfiguration:
    """Fill in this machine's configuration."""
    tokens = init.bootstrap_tokens or (BootstrapToken(),)
    return replace(
        init,
        bootstrap_tokens=tuple(_token(token, machine.random) for token in tokens),
        node_registration=registration_defaults(init.node_registration, machine, at / "nodeRegistration", control_plane=True),
        local_api_endpoint=endpoint_defaults(init.local_api_endpoint, machine, at / "localAPIEndpoint"),
    )


def registration_defaults(
    registration: NodeRegistration, machine: DefaultingMachine, at: Place, *, control_plane: bool
) -> NodeRegistration:
    """Fill in how this machine registers its Node. Missing taints are those of a control plane, or none."""
    return replace(
        registration,
        name=(registration.name or machine.detected.host_name).strip().lower(),
        cri_socket=cri_socket(registration.cri_socket, machine, at / "criSocket"),
        taints=(CONTROL_PLANE_TAINT,) if control_plane and registration.taints is None else registration.taints,
    )


def endpoint_defaults(endpoint: LocalAPIEndpoint, machine: DefaultingMachine, at: Place) -> LocalAPIEndpoint:
    """Fill in the endpoint of this machine's API server."""
    return replace(
        endpoint,
        advertise_address=_advertise_address(endpoint.advertise_address, machine, at / "advertiseAddress"),
        bind_port=endpoint.bind_port or API_SERVER_PORT,
    )


def _token(token: BootstrapToken, random: Random) -> BootstrapToken:
    """Fill in one token. One with `expires` gets no ttl (kubeadm sets one, and then refuses both)."""
    return replace(
        token,
        token=token.token or random_token(random),
        made_up=not token.token,
        ttl=TOKEN_TTL if token.ttl is None and not token.expires else token.ttl,
        usages=token.usages or TOKEN_USAGES,
        groups=token.groups or (DEFAULT_GROUP,),
    )


def random_token(random: Random) -> str:
    """Generate a bootstrap token, `[a-z0-9]{6}.[a-z0-9]{16}`, uniformly distributed."""
    text = ""
    while len(text) < 22:
        text += "".join(_ALPHABET[byte % len(_ALPHABET)] for byte in random.token_bytes(32) if byte < _FAIR)
    return f"{text[:6]}.{text[6:22]}"


def cri_socket(given: str, machine: DefaultingMachine, at: Place) -> str:
    """Return the runtime's socket as a URL.

    A path gets its scheme, with a warning; a URL of another scheme stays and is refused later.
    """
    if given.startswith(URL_SCHEME) or "://" in given:
        return given
    if given:
        at.warn_about(f"{quoted(given)} has no URL scheme; {URL_SCHEME}://{given} is used. Please use this form in the configuration")
        return f"{URL_SCHEME}://{given}"
    found = machine.detected.cri_sockets if machine.detect_cri else ()
    if len(found) > 1:
        at.invalid(f"several container runtimes are on this machine, choose one: {', '.join(found)}", "")
    return found[0] if found else CRI_SOCKET


def _advertise_address(given: str, machine: DefaultingMachine, at: Place) -> str:
    address = formats.address(given) if given else None
    if given and address is None:
        return given  # validation reports it
    if address is not None and address.is_loopback and not machine.allow_loopback and machine.is_known:
        return _from_loopback(given, machine.detected, at)
    if address is not None and not address.is_unspecified:
        return str(address)
    if not machine.is_known:
        return given
    return _from_default_route(machine.detected, prefer_six=address is not None and address.version == 6, at=at)


def _from_loopback(given: str, detected: Detected, at: Place) -> str:
    """Replace a loopback address by a global address on the loopback interface (routes over link-local addresses, RFC 5549)."""
    if detected.loopback_global is None:
        at.invalid("a loopback address requires a global address on the loopback interface, which has none", given)
    return detected.loopback_global or given


def _from_default_route(detected: Detected, *, prefer_six: bool, at: Place) -> str:
    candidates = (detected.default_ipv6, detected.default_ipv4) if prefer_six else (detected.default_ipv4, detected.default_ipv6)
    found = next((candidate for candidate in candidates if candidate), None)
    if found is None:
        at.warn_about(f"no interface with a usable address was found; {NO_ADDRESS} is used")
    return found or NO_ADDRESS


def cluster_defaults(cluster: ClusterConfiguration, init: InitConfiguration, at: Place) -> ClusterConfiguration:
    """Fill in the cluster's configuration; `init` is already filled in."""
    cluster = replace(
        cluster,
        etcd=_etcd(cluster.etcd),
        control_plane_endpoint=_endpoint(cluster.control_plane_endpoint, init.local_api_endpoint.bind_port),
    )
    cluster = with_attribute(cluster, "api_server.cert_sans", tuple(name.lower() for name in cluster.api_server.cert_sans))
    return _version(cluster, at / "kubernetesVersion")


def _etcd(etcd: Etcd) -> Etcd:
    external = etcd.external
    if external is not None:
        return replace(etcd, external=replace(external, http_endpoints=external.http_endpoints or external.endpoints))
    return etcd if etcd.local is not None else Etcd(local=LocalEtcd())


def _endpoint(given: str, bind_port: int) -> str:
    """Append the bind port if the endpoint has none. An invalid endpoint stays, and validation refuses it."""
    try:
        host, port = formats.host_port(given)
    except ValueError:
        return given
    return given if port else host_port(host, bind_port)


def _version(cluster: ClusterConfiguration, at: Place) -> ClusterConfiguration:
    try:
        found = versions.resolve(cluster.kubernetes_version)
    except ValueError as error:
        at.invalid(str(error), cluster.kubernetes_version)
        return cluster
    for warning in found.warnings:
        at.warn_about(warning)
    from_ci = found.ci and cluster.image_repository == DEFAULT_REPOSITORY
    return replace(
        cluster,
        kubernetes_version=found.version,
        ci_kubernetes_version=f"{versions.CI_PREFIX}{found.version}" if found.ci else "",
        ci_image_repository=CI_REPOSITORY if from_ci else "",
    )


def join_defaults(join: JoinConfiguration, machine: DefaultingMachine, at: Place) -> JoinConfiguration:
    """Fill in the configuration of `join` on this machine."""
    plane = join.control_plane
    return replace(
        join,
        node_registration=registration_defaults(join.node_registration, machine, at / "nodeRegistration", control_plane=plane is not None),
        discovery=_discovery(join.discovery),
        control_plane=None if plane is None else _control_plane(plane, machine, at / "controlPlane"),
    )


def reset_defaults(reset: ResetConfiguration, machine: DefaultingMachine, at: Place) -> ResetConfiguration:
    """Fill in the configuration of `reset` on this machine."""
    return replace(reset, cri_socket=cri_socket(reset.cri_socket, machine, at / "criSocket"))


def _discovery(discovery: Discovery) -> Discovery:
    token = discovery.tls_bootstrap_token
    if not token and discovery.bootstrap_token is not None:
        token = discovery.bootstrap_token.token
    return replace(discovery, tls_bootstrap_token=token, file=_file(discovery.file))


def _file(found: FileDiscovery | None) -> FileDiscovery | None:
    """Convert a `file://` URL to its path."""
    if found is None:
        return None
    try:
        is_file = formats.url_scheme(found.kube_config_path) == "file"
    except ValueError:
        is_file = False
    return replace(found, kube_config_path=formats.url_path(found.kube_config_path)) if is_file else found


def _control_plane(plane: JoinControlPlane, machine: DefaultingMachine, at: Place) -> JoinControlPlane:
    return replace(plane, local_api_endpoint=endpoint_defaults(plane.local_api_endpoint, machine, at / "localAPIEndpoint"))
