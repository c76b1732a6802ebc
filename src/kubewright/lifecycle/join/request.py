"""The options of `join`, and the resulting configuration (kubeadm v1.36.3: cmd/join.go)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.loading import LoadedKind, load_join
from kubewright.apis.kubeadm.node_types import BootstrapTokenDiscovery, Discovery, FileDiscovery, JoinConfiguration, JoinControlPlane
from kubewright.apis.kubeadm.overrides import with_attribute
from kubewright.apis.kubeadm.types import LocalAPIEndpoint
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.errors import HostError, ValidationError
from kubewright.base.fields import FieldError, FieldPath
from kubewright.base.records import dataclass, replace
from kubewright.base.yaml import Document


@dataclass(frozen=True, kw_only=True)
class JoinFlags:
    """The values of the command line. None, and an empty text or list, mean that a flag was not given."""

    endpoint: str = ""
    """`host:port`, the positional argument, which selects discovery by token."""
    discovery_file: str = ""
    discovery_token: str = ""
    tls_bootstrap_token: str = ""
    token: str = ""
    """Replaces the other two if they are not given."""
    ca_cert_hashes: Sequence[str] = ()
    unsafe_skip_ca_verification: bool = False
    control_plane: bool = False
    advertise_address: str = ""
    bind_port: int = 6443
    certificate_key: str = ""
    node_name: str = ""
    cri_socket: str = ""
    patches: str = ""
    dry_run: bool | None = None
    skip_phases: Sequence[str] = ()
    ignore_preflight_errors: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class JoinOptions:
    """The options of `join` or of one of its phases.

    - `documents` are those of the configuration file; `from_file` returns whether there is one. Discovery and control
      plane are then set by the file alone.
    - `looks_for_runtime`: a command without `--cri-socket` does not detect one.
    - `adopt`: a machine of a cluster that another tool created is taken over.
    - `discovers`: a phase command without discovery flags uses the admin kubeconfig, which must exist on control
      planes.
    """

    documents: Sequence[Document] = ()
    from_file: bool = False
    flags: JoinFlags = JoinFlags()
    only: tuple[str, ...] = ()
    looks_for_runtime: bool = True
    discovers: bool = True
    adopt: bool = False


def configure(
    request: JoinOptions, *, detected: Detected, exists: Callable[[str], bool], admin_kubeconfig: str
) -> LoadedKind[JoinConfiguration]:
    """Load the configuration from file, flags and the machine's facts.

    `exists` returns whether a file of this machine exists. Unknown fields are warnings, as in kubeadm. Raises what
    `load_join` raises, and HostError without a required admin kubeconfig: a worker has none, and its file must specify
    the discovery.
    """
    missing = HostError(
        f"{admin_kubeconfig} does not exist",
        remedy="this phase needs it; the phases below `join phase control-plane-prepare` create it",
    )
    needs_it = not request.discovers and not exists(admin_kubeconfig)
    if needs_it and not request.from_file:
        raise missing
    flags = request.flags if request.discovers else replace(request.flags, endpoint="", discovery_file=admin_kubeconfig)
    try:
        loaded = load_join(
            request.documents,
            detected=detected if request.looks_for_runtime else replace(detected, cri_sockets=()),
            change=lambda given: _changed(given, flags, from_file=request.from_file),
            exists=exists,
            from_file=request.from_file,
        )
    except ValidationError as error:
        raise error if request.from_file else _about_flags(error, flags) from error
    if needs_it and loaded.configuration.control_plane is not None:
        raise missing
    return LoadedKind(configuration=loaded.configuration, warnings=[*loaded.warnings, *_warnings(request)])


_FLAGS: Final = {
    "discovery": "HOST:PORT or --discovery-file",
    "discovery.bootstrapToken.token": "--discovery-token",
    "discovery.bootstrapToken.apiServerEndpoint": "the address of the API server",
    "discovery.bootstrapToken.caCertHashes": "--discovery-token-ca-cert-hash",
    "discovery.file.kubeConfigPath": "--discovery-file",
    "discovery.tlsBootstrapToken": "--tls-bootstrap-token",
    "controlPlane.localAPIEndpoint.advertiseAddress": "--apiserver-advertise-address",
    "controlPlane.localAPIEndpoint.bindPort": "--apiserver-bind-port",
    "controlPlane.certificateKey": "--certificate-key",
    "nodeRegistration.name": "--node-name",
    "nodeRegistration.criSocket": "--cri-socket",
    "nodeRegistration.ignorePreflightErrors": "--ignore-preflight-errors",
    "patches.directory": "--patches",
    "skipPhases": "--skip-phases",
}
"""The flags of a JoinConfiguration's fields."""
_MISSING: Final = {
    "HOST:PORT or --discovery-file": "join needs the address of the cluster: pass one of them",
    "--discovery-token-ca-cert-hash": "token holders can impersonate the cluster: use it, or --discovery-token-unsafe-skip-ca-verification",
}
"""The messages for flags that were not given."""


def _about_flags(error: ValidationError, flags: JoinFlags) -> ValidationError:
    """Return the error with flags instead of fields, for users without a file. `--token` stands for two fields."""
    by_flag: dict[str, FieldError] = {}
    for one in error.errors:
        name = _FLAGS.get(one.path.text.partition("[")[0], one.path.text)
        if name in {"--discovery-token", "--tls-bootstrap-token"} and not (flags.discovery_token or flags.tls_bootstrap_token):
            name = "--token"
        reason = one.reason if one.value != "" else _MISSING.get(name, one.reason)
        by_flag.setdefault(name, replace(one, path=FieldPath(name), reason=reason))
    return ValidationError(
        "the command line is not valid", list(by_flag.values()), remedy="correct the flags named above", is_cut=error.is_cut
    )


_ANY_ADDRESS: Final = "127.0.0.1"
"""A placeholder for the address of a worker, which serves no API."""


def addresses(configuration: JoinConfiguration) -> Addresses:
    """Return the addresses of a joining machine; on a worker only the kubelet listens."""
    plane = configuration.control_plane
    endpoint = plane.local_api_endpoint if plane is not None else None
    if endpoint is None or not endpoint.advertise_address:
        return Addresses.of_machine(_ANY_ADDRESS)
    return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)


def authority_path(configuration: JoinConfiguration, layout: Layout) -> PurePosixPath:
    """Return the path for the cluster's CA: kubeadm's default means the machine's own path."""
    named = configuration.ca_cert_path
    return layout.certificate("ca") if named == JoinConfiguration.ca_cert_path else PurePosixPath(named)


def _changed(given: JoinConfiguration, flags: JoinFlags, *, from_file: bool) -> JoinConfiguration:
    """Apply the flags to the file's settings; without a file, they are the only settings."""
    if not from_file:
        given = replace(given, discovery=_discovery(flags), control_plane=_control_plane(flags))
    for attribute, value in (
        ("node_registration.name", flags.node_name),
        ("node_registration.cri_socket", flags.cri_socket),
        ("patches_directory", flags.patches),
        ("skip_phases", tuple(flags.skip_phases)),
        ("dry_run", flags.dry_run),
    ):
        if value not in {None, "", ()}:
            given = with_attribute(given, attribute, value)
    ignored = (*given.node_registration.ignore_preflight_errors, *flags.ignore_preflight_errors)
    return with_attribute(given, "node_registration.ignore_preflight_errors", tuple(dict.fromkeys(ignored)))


def _discovery(flags: JoinFlags) -> Discovery:
    by_token = BootstrapTokenDiscovery(
        token=flags.discovery_token or flags.token,
        api_server_endpoint=flags.endpoint,
        ca_cert_hashes=tuple(flags.ca_cert_hashes),
        unsafe_skip_ca_verification=flags.unsafe_skip_ca_verification,
    )
    return Discovery(
        bootstrap_token=by_token if flags.endpoint else None,
        file=FileDiscovery(kube_config_path=flags.discovery_file) if flags.discovery_file else None,
        tls_bootstrap_token=flags.tls_bootstrap_token or flags.token,
    )


def _control_plane(flags: JoinFlags) -> JoinControlPlane | None:
    if not flags.control_plane:
        return None
    endpoint = LocalAPIEndpoint(advertise_address=flags.advertise_address, bind_port=flags.bind_port)
    return JoinControlPlane(local_api_endpoint=endpoint, certificate_key=flags.certificate_key)


def _warnings(request: JoinOptions) -> list[str]:
    """Return warnings about flags without effect."""
    flags = request.flags
    found = []
    if request.from_file and flags.endpoint:
        found.append(f"{flags.endpoint} is ignored: with --config, discovery is configured in the file")
    ineffective = {
        "certificate-key": flags.certificate_key,
        "apiserver-advertise-address": flags.advertise_address,
        "apiserver-bind-port": flags.bind_port != JoinFlags.bind_port,
    }
    if not flags.control_plane and any(ineffective.values()):
        names = ", ".join(f"--{name}" for name, given in ineffective.items() if given)
        found.append(f"{names}: ignored without --control-plane")
    return found
