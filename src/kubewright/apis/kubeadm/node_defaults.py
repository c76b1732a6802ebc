"""kubeadm's defaults for JoinConfiguration and ResetConfiguration; those of UpgradeConfiguration are in its types (spec/kubeadm.md 3.5, 3.6)."""

from __future__ import annotations

from kubewright.apis import urls
from kubewright.apis.kubeadm.defaults import Machine, cri_socket, endpoint_defaults, registration_defaults
from kubewright.apis.kubeadm.node_types import Discovery, FileDiscovery, JoinConfiguration, JoinControlPlane, ResetConfiguration
from kubewright.apis.walking import Place
from kubewright.base.records import replace


def join_defaults(join: JoinConfiguration, machine: Machine, at: Place) -> JoinConfiguration:
    """Fill in what `join` does on this machine."""
    plane = join.control_plane
    return replace(
        join,
        node_registration=registration_defaults(join.node_registration, machine, at / "nodeRegistration", control_plane=plane is not None),
        discovery=_discovery(join.discovery),
        control_plane=None if plane is None else _control_plane(plane, machine, at / "controlPlane"),
    )


def reset_defaults(reset: ResetConfiguration, machine: Machine, at: Place) -> ResetConfiguration:
    """Fill in what `reset` does on this machine."""
    return replace(reset, cri_socket=cri_socket(reset.cri_socket, machine, at / "criSocket"))


def _discovery(discovery: Discovery) -> Discovery:
    token = discovery.tls_bootstrap_token
    if not token and discovery.bootstrap_token is not None:
        token = discovery.bootstrap_token.token
    return replace(discovery, tls_bootstrap_token=token, file=_file(discovery.file))


def _file(found: FileDiscovery | None) -> FileDiscovery | None:
    """Turn a `file://` URL into its path."""
    if found is None:
        return None
    try:
        is_file = urls.scheme_of(found.kube_config_path) == "file"
    except ValueError:
        is_file = False
    return replace(found, kube_config_path=urls.path_of(found.kube_config_path)) if is_file else found


def _control_plane(plane: JoinControlPlane, machine: Machine, at: Place) -> JoinControlPlane:
    return replace(plane, local_api_endpoint=endpoint_defaults(plane.local_api_endpoint, machine, at / "localAPIEndpoint"))
