"""kubeadm's rules for its configuration kinds, as tables: one row is one rule about one field.

Paths and types of errors are kubeadm v1.36's (`apis/kubeadm/validation`), its oddities included: `bootstrapTokens.0.token`, and
`nodeRegistration` for a missing name. All rules run; one that needs a value which could not be read at all is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from kubewright.apis.findings import Place, related
from kubewright.apis.kubeadm import node_rules, removed, rules
from kubewright.apis.kubeadm.node_types import Discovery, JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.types import ClusterConfiguration, ExternalEtcd, InitConfiguration, LocalEtcd
from kubewright.base.records import dataclass

Problem = tuple[str, object]
"""The reason, and the value that is shown."""


@dataclass(frozen=True)
class Rule:
    """A path below the document, how to get the value (None: the rule does not apply), and what is wrong with it."""

    path: str
    value: Callable[[Any], Any]
    check: Callable[[Any], Iterator[Problem]]
    required: bool = False


_Found = tuple[Rule, Place, Problem]

REGISTRATION_RULES: Final = (
    Rule("nodeRegistration", lambda kind: kind.node_registration.name, rules.given, required=True),
    Rule("nodeRegistration.name", lambda kind: kind.node_registration.name or None, rules.subdomain),
    Rule("nodeRegistration.criSocket", lambda kind: kind.node_registration.cri_socket, rules.unix_socket),
    Rule("nodeRegistration.kubeletExtraArgs", lambda kind: kind.node_registration.kubelet_extra_args, rules.named_arguments),
    Rule("nodeRegistration.imagePullPolicy", lambda kind: kind.node_registration.image_pull_policy, rules.pull_policy),
)
"""Rules of Init and Join alike."""
REGISTRATION_WARNINGS: Final = (
    Rule("nodeRegistration.taints", lambda kind: kind.node_registration.taints, removed.taints),
    Rule("nodeRegistration.criSocket", lambda kind: kind.node_registration.cri_socket, removed.socket),
    Rule("nodeRegistration.ignorePreflightErrors", lambda kind: kind.node_registration.ignore_preflight_errors, removed.checks),
)

INIT_RULES: Final = (
    *REGISTRATION_RULES,
    Rule("localAPIEndpoint.advertiseAddress", lambda init: init.local_api_endpoint.advertise_address, rules.address),
    Rule("localAPIEndpoint.bindPort", lambda init: init.local_api_endpoint.bind_port, rules.port),
    Rule("certificateKey", lambda init: init.certificate_key, rules.certificate_key),
)
TOKEN_RULES: Final = (
    Rule("token", lambda token: token.token, rules.token),
    Rule("usages", lambda token: token.usages, rules.token_usages),
    Rule("groups", lambda token: token, rules.token_groups),
    Rule("", lambda token: token, rules.one_end_of_life),
)


def _local(cluster: ClusterConfiguration) -> LocalEtcd | None:
    return cluster.etcd.local if cluster.etcd.external is None else None


def _external(cluster: ClusterConfiguration) -> ExternalEtcd | None:
    return cluster.etcd.external if cluster.etcd.local is None else None


def _of_local(attribute: str) -> Callable[[Any], Any]:
    return lambda cluster: getattr(_local(cluster), attribute, None)


def _of_external(attribute: str) -> Callable[[Any], Any]:
    return lambda cluster: getattr(_external(cluster), attribute, None)


CLUSTER_RULES: Final = (
    Rule("dns.imageRepository", lambda cluster: cluster.dns.image_repository or None, rules.image_repository),
    Rule("networking.dnsDomain", lambda cluster: cluster.networking.dns_domain, rules.subdomain),
    Rule("networking.serviceSubnet", lambda cluster: cluster.networking.service_subnet or None, rules.service_subnets),
    Rule("networking.serviceSubnet", lambda cluster: cluster.networking.service_subnet or None, rules.service_subnet_size),
    Rule("networking.podSubnet", lambda cluster: cluster.networking.pod_subnet or None, rules.pod_subnets),
    Rule("networking.podSubnet", lambda cluster: cluster if cluster.networking.pod_subnet else None, rules.pod_subnet_node_mask),
    Rule("apiServer.certSANs", lambda cluster: cluster.api_server.cert_sans, rules.names),
    Rule("apiServer.extraArgs", lambda cluster: cluster.api_server.extra_args, rules.named_arguments),
    Rule("controllerManager.extraArgs", lambda cluster: cluster.controller_manager.extra_args, rules.named_arguments),
    Rule("scheduler.extraArgs", lambda cluster: cluster.scheduler.extra_args, rules.named_arguments),
    Rule("certificatesDir", lambda cluster: cluster.certificates_dir, rules.absolute),
    Rule("featureGates", lambda cluster: cluster.feature_gates, rules.known_gates),
    Rule("controlPlaneEndpoint", lambda cluster: cluster.control_plane_endpoint or None, rules.endpoint),
    Rule("imageRepository", lambda cluster: cluster.image_repository, rules.image_repository),
    Rule("etcd", lambda cluster: cluster.etcd, rules.one_etcd),
    Rule("etcd.local.dataDir", _of_local("data_dir"), rules.absolute),
    Rule("etcd.local.serverCertSANs", _of_local("server_cert_sans"), rules.names),
    Rule("etcd.local.peerCertSANs", _of_local("peer_cert_sans"), rules.names),
    Rule("etcd.local.imageRepository", lambda cluster: _of_local("image_repository")(cluster) or None, rules.image_repository),
    Rule("etcd.local.extraArgs", _of_local("extra_args"), rules.named_arguments),
    Rule("etcd.external", _external, rules.client_pair),
    Rule("etcd.external", _external, rules.client_pair_authority),
    Rule("etcd.external.endpoints", _external, rules.etcd_endpoints),
    Rule("etcd.external.httpEndpoints", _of_external("http_endpoints"), rules.urls_with_scheme),
    Rule("etcd.external.caFile", lambda cluster: _of_external("ca_file")(cluster) or None, rules.absolute),
    Rule("etcd.external.certFile", lambda cluster: _of_external("cert_file")(cluster) or None, rules.absolute),
    Rule("etcd.external.keyFile", lambda cluster: _of_external("key_file")(cluster) or None, rules.absolute),
    Rule("certificateValidityPeriod", lambda cluster: cluster.certificate_validity_period, rules.not_negative),
    Rule("caCertificateValidityPeriod", lambda cluster: cluster.ca_certificate_validity_period, rules.not_negative),
    Rule("encryptionAlgorithm", lambda cluster: cluster.encryption_algorithm, rules.key_algorithm),
)
CLUSTER_WARNINGS: Final = (
    Rule("networking.serviceSubnet", lambda cluster: cluster.networking.service_subnet or None, rules.site_local),
    Rule("networking.podSubnet", lambda cluster: cluster.networking.pod_subnet or None, rules.site_local),
    Rule("certificateValidityPeriod", lambda cluster: cluster, rules.long_certificates),
    Rule("caCertificateValidityPeriod", lambda cluster: cluster.ca_certificate_validity_period, rules.long_authorities),
    Rule("certificateValidityPeriod", lambda cluster: cluster, rules.outlives_authority),
    Rule("featureGates", lambda cluster: cluster.feature_gates, removed.gates),
    Rule("apiServer.extraVolumes", lambda cluster: cluster.api_server.extra_volumes, removed.path_types),
    Rule("controllerManager.extraVolumes", lambda cluster: cluster.controller_manager.extra_volumes, removed.path_types),
    Rule("scheduler.extraVolumes", lambda cluster: cluster.scheduler.extra_volumes, removed.path_types),
    Rule("imageRepository", lambda cluster: cluster.image_repository, removed.repository),
    Rule("dns.imageRepository", lambda cluster: cluster.dns.image_repository, removed.repository),
    Rule("etcd.local.imageRepository", _of_local("image_repository"), removed.repository),
)
RUN_RULES: Final = (
    Rule("localAPIEndpoint.advertiseAddress", lambda init: init.local_api_endpoint.advertise_address, rules.bindable),
    Rule("nodeRegistration.ignorePreflightErrors", lambda init: init.node_registration.ignore_preflight_errors, rules.all_or_some),
)
"""What kubeadm asks for only when `init` runs, not in `config validate`."""


def validate_init(init: InitConfiguration, at: Place, *, runs: bool, is_complete: bool = True) -> None:
    """Note everything that is wrong with this machine's configuration.

    `runs`: also what matters only when `init` runs. Without `is_complete` what is left open is not judged.
    """
    init_rules = INIT_RULES if is_complete else [rule for rule in INIT_RULES if rule.value(init) not in ("", None)]
    tokens = (_found(TOKEN_RULES, token, at / "bootstrapTokens" / str(index)) for index, token in enumerate(init.bootstrap_tokens))
    _note(chain(_found(init_rules, init, at), chain.from_iterable(tokens)), at)
    warn(REGISTRATION_WARNINGS, init, at)
    if runs:
        check(RUN_RULES, init, at)


def validate_cluster(cluster: ClusterConfiguration, at: Place) -> None:
    """Note everything that is wrong with the cluster's configuration, and what is only questionable."""
    check(CLUSTER_RULES, cluster, at)
    warn(CLUSTER_WARNINGS, cluster, at)


def warn(table: Sequence[Rule], subject: object, at: Place) -> None:
    """Note what is only questionable."""
    for _, place, (reason, shown) in _found(table, subject, at):
        if at.findings.has_enough_warnings:
            return
        place.question(reason, shown)


def check(table: Sequence[Rule], subject: object, at: Place) -> None:
    """Note everything in a document that breaks the rules of a table."""
    _note(_found(table, subject, at), at)


def _note(found: Iterator[_Found], at: Place) -> None:
    """Put errors into the findings, but for those about values that could not be read. Nothing is looked for when there are enough."""
    unreadable = [error.path for error in at.findings.errors]
    for rule, place, (reason, shown) in found:
        if at.findings.has_enough_errors:
            at.findings.is_cut = True
            return
        if any(related(place.path, path) for path in unreadable):
            continue
        if rule.required:
            place.required(reason)
        else:
            place.invalid(reason, shown)


def _found(table: Sequence[Rule], subject: object, at: Place) -> Iterator[_Found]:
    for rule in table:
        value = rule.value(subject)
        if value is None:
            continue
        place = at
        for name in filter(None, rule.path.split(".")):
            place /= name
        for problem in rule.check(value):
            yield rule, place, problem


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
