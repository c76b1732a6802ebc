"""kubeadm's rules for JoinConfiguration, ResetConfiguration and UpgradeConfiguration, as tables like those of `validation`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kubewright.apis.kubeadm import node_rules, rules
from kubewright.apis.kubeadm.node_types import Discovery, JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.validation import REGISTRATION_RULES, REGISTRATION_WARNINGS, Rule, check, warn
from kubewright.apis.walking import Place


def _by_token(attribute: str = "") -> Callable[[Any], Any]:
    """Get token discovery, or an attribute of it; None where the cluster is found in another way."""

    def get(join: JoinConfiguration) -> Any:
        found = join.discovery.bootstrap_token
        return getattr(found, attribute) if found is not None and attribute else found

    return get


def _of_control_plane(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda join: None if join.control_plane is None else get(join.control_plane)


def _tls_token(join: JoinConfiguration) -> str | None:
    discovery: Discovery = join.discovery
    needed = discovery.bootstrap_token is not None or (discovery.file is not None and discovery.tls_bootstrap_token)
    return discovery.tls_bootstrap_token if needed else None


def _patches(part: str) -> Callable[[Any], Any]:
    return lambda upgrade: getattr(getattr(upgrade, part).patches, "directory", None)


_ADVERTISED: Final = _of_control_plane(lambda plane: plane.local_api_endpoint.advertise_address)
_CA_PINS: Final = "discovery.bootstrapToken.caCertHashes"
_ADDRESS: Final = "controlPlane.localAPIEndpoint.advertiseAddress"

JOIN_RULES: Final = (
    Rule("discovery", lambda join: join.discovery, node_rules.one_discovery),
    Rule("discovery.bootstrapToken", _by_token("api_server_endpoint"), node_rules.endpoint_given, required=True),
    Rule(_CA_PINS, _by_token(), node_rules.pins_or_unsafe),
    Rule("discovery.bootstrapToken.token", _by_token("token"), rules.token),
    Rule("discovery.bootstrapToken.apiServerEndpoint", _by_token("api_server_endpoint"), node_rules.host_and_port),
    Rule("discovery.tlsBootstrapToken", _tls_token, rules.token),
    *REGISTRATION_RULES,
    Rule(_ADDRESS, _ADVERTISED, rules.address),
    Rule("controlPlane.localAPIEndpoint.bindPort", _of_control_plane(lambda plane: plane.local_api_endpoint.bind_port), rules.port),
    Rule("controlPlane.certificateKey", _of_control_plane(lambda plane: plane.certificate_key), rules.certificate_key),
    Rule("caCertPath", lambda join: join.ca_cert_path, node_rules.authority_path),
)
JOIN_RUN_RULES: Final = (
    Rule(_ADDRESS, _ADVERTISED, rules.bindable),
    Rule(_CA_PINS, _by_token("ca_cert_hashes"), node_rules.pins),
    Rule("nodeRegistration.ignorePreflightErrors", lambda join: join.node_registration.ignore_preflight_errors, rules.all_or_some),
)
"""What kubeadm asks for only when `join` runs."""

RESET_RULES: Final = (
    Rule("criSocket", lambda reset: reset.cri_socket, rules.unix_socket),
    Rule("certificatesDir", lambda reset: reset.certificates_dir, rules.absolute),
    Rule("unmountFlags", lambda reset: reset.unmount_flags, node_rules.unmount_flags),
)
RESET_RUN_RULES: Final = (Rule("ignorePreflightErrors", lambda reset: reset.ignore_preflight_errors, rules.all_or_some),)

UPGRADE_RULES: Final = (
    Rule("apply.patches.directory", _patches("apply"), rules.absolute),
    Rule("node.patches.directory", _patches("node"), rules.absolute),
    Rule("apply.imagePullPolicy", lambda upgrade: upgrade.apply.image_pull_policy, rules.pull_policy),
    Rule("node.imagePullPolicy", lambda upgrade: upgrade.node.image_pull_policy, rules.pull_policy),
)


def validate_join(join: JoinConfiguration, at: Place, *, runs: bool, exists: Callable[[str], bool]) -> None:
    """Note everything that is wrong; `exists` tells whether a path of this machine is there. `runs` as for `validate_init`."""
    found = join.discovery.file
    path = Rule("discovery.file.kubeConfigPath", lambda _: found and found.kube_config_path, node_rules.discovery_file(exists))
    check((*JOIN_RULES, path), join, at)
    warn(REGISTRATION_WARNINGS, join, at)
    if runs:
        check(JOIN_RUN_RULES, join, at)


def validate_reset(reset: ResetConfiguration, at: Place, *, runs: bool) -> None:
    """Note everything that is wrong."""
    check((*RESET_RULES, *RESET_RUN_RULES) if runs else RESET_RULES, reset, at)


def validate_upgrade(upgrade: UpgradeConfiguration, at: Place) -> None:
    """Note everything that is wrong."""
    check(UPGRADE_RULES, upgrade, at)
