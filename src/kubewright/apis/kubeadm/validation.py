"""kubeadm's rules for its configuration kinds, as tables: one row is one rule about one field.

Paths and types of errors are kubeadm v1.36's (`apis/kubeadm/validation`), including its oddities:
`bootstrapTokens.0.token`, and `nodeRegistration` for a missing name. All rules run, except those whose value could not
be decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, Final

from kubewright.apis.findings import Place, related
from kubewright.apis.kubeadm import node_rules, removed, rules
from kubewright.apis.kubeadm.node_types import JoinConfiguration, ResetConfiguration, UpgradeConfiguration
from kubewright.apis.kubeadm.types import ClusterConfiguration, InitConfiguration
from kubewright.apis.schema import value_at
from kubewright.base.records import dataclass

Problem = tuple[str, object]
"""A reason, and the value to show."""

_LOCAL: Final = "etcd.local"
_EXTERNAL: Final = "etcd.external"
_CA_PINS: Final = "discovery.bootstrapToken.caCertHashes"
_ADDRESS: Final = "controlPlane.localAPIEndpoint.advertiseAddress"
_TLS_TOKEN: Final = "discovery.tlsBootstrapToken"  # noqa: S105 - the path of a field


@dataclass(frozen=True)
class Rule:
    """One rule about the field at a path below the document.

    `of` is the path of the checked value if it is not the field itself: the struct that contains it, '' for the whole
    document. `if_given`: an empty field is not checked. `unless` is the path of a field; if that is set, this one is
    not checked. A value of None is never checked.
    """

    path: str
    check: Callable[[Any], Iterator[Problem]]
    of: str | None = None
    if_given: bool = False
    unless: str = ""
    required: bool = False

    def value(self, document: object) -> Any:
        """Return the value to check; None if the rule does not apply."""
        if self.unless and value_at(document, self.unless) is not None:
            return None
        if self.if_given and not value_at(document, self.path):
            return None
        return value_at(document, self.path if self.of is None else self.of)


_Found = tuple[Rule, Place, Problem]

REGISTRATION_RULES: Final = (
    Rule("nodeRegistration", rules.given, of="nodeRegistration.name", required=True),
    Rule("nodeRegistration.name", rules.subdomain, if_given=True),
    Rule("nodeRegistration.criSocket", rules.unix_socket),
    Rule("nodeRegistration.kubeletExtraArgs", rules.named_arguments),
    Rule("nodeRegistration.imagePullPolicy", rules.pull_policy),
)
"""Rules of Init and Join alike."""
REGISTRATION_WARNINGS: Final = (
    Rule("nodeRegistration.taints", removed.taints),
    Rule("nodeRegistration.criSocket", removed.socket),
    Rule("nodeRegistration.ignorePreflightErrors", removed.checks),
)
INIT_RULES: Final = (
    *REGISTRATION_RULES,
    Rule("localAPIEndpoint.advertiseAddress", rules.address),
    Rule("localAPIEndpoint.bindPort", rules.port),
    Rule("certificateKey", rules.certificate_key),
)
TOKEN_RULES: Final = (
    Rule("token", rules.token),
    Rule("usages", rules.token_usages),
    Rule("groups", rules.token_groups, of=""),
    Rule("", rules.one_end_of_life),
)
INIT_RUN_RULES: Final = (
    Rule("localAPIEndpoint.advertiseAddress", rules.bindable),
    Rule("nodeRegistration.ignorePreflightErrors", rules.all_or_some),
)
"""Checks that kubeadm makes only when `init` runs, not in `config validate`."""


CLUSTER_RULES: Final = (
    Rule("dns.imageRepository", rules.image_repository, if_given=True),
    Rule("networking.dnsDomain", rules.subdomain),
    Rule("networking.serviceSubnet", rules.service_subnets, if_given=True),
    Rule("networking.serviceSubnet", rules.service_subnet_size, if_given=True),
    Rule("networking.podSubnet", rules.pod_subnets, if_given=True),
    Rule("networking.podSubnet", rules.pod_subnet_node_mask, of="", if_given=True),
    Rule("apiServer.certSANs", rules.names),
    Rule("apiServer.extraArgs", rules.named_arguments),
    Rule("controllerManager.extraArgs", rules.named_arguments),
    Rule("scheduler.extraArgs", rules.named_arguments),
    Rule("certificatesDir", rules.absolute),
    Rule("featureGates", rules.known_gates),
    Rule("controlPlaneEndpoint", rules.endpoint, if_given=True),
    Rule("imageRepository", rules.image_repository),
    Rule("etcd", rules.one_etcd),
    Rule("etcd.local.dataDir", rules.absolute, unless=_EXTERNAL),
    Rule("etcd.local.serverCertSANs", rules.names, unless=_EXTERNAL),
    Rule("etcd.local.peerCertSANs", rules.names, unless=_EXTERNAL),
    Rule("etcd.local.imageRepository", rules.image_repository, if_given=True, unless=_EXTERNAL),
    Rule("etcd.local.extraArgs", rules.named_arguments, unless=_EXTERNAL),
    Rule("etcd.external", rules.client_pair, unless=_LOCAL),
    Rule("etcd.external", rules.client_pair_authority, unless=_LOCAL),
    Rule("etcd.external.endpoints", rules.etcd_endpoints, of=_EXTERNAL, unless=_LOCAL),
    Rule("etcd.external.httpEndpoints", rules.urls_with_scheme, unless=_LOCAL),
    Rule("etcd.external.caFile", rules.absolute, if_given=True, unless=_LOCAL),
    Rule("etcd.external.certFile", rules.absolute, if_given=True, unless=_LOCAL),
    Rule("etcd.external.keyFile", rules.absolute, if_given=True, unless=_LOCAL),
    Rule("certificateValidityPeriod", rules.not_negative),
    Rule("caCertificateValidityPeriod", rules.not_negative),
    Rule("encryptionAlgorithm", rules.key_algorithm),
)
CLUSTER_WARNINGS: Final = (
    Rule("networking.serviceSubnet", rules.site_local, if_given=True),
    Rule("networking.podSubnet", rules.site_local, if_given=True),
    Rule("certificateValidityPeriod", rules.long_certificates, of=""),
    Rule("caCertificateValidityPeriod", rules.long_authorities),
    Rule("certificateValidityPeriod", rules.outlives_authority, of=""),
    Rule("featureGates", removed.gates),
    Rule("apiServer.extraVolumes", removed.path_types),
    Rule("controllerManager.extraVolumes", removed.path_types),
    Rule("scheduler.extraVolumes", removed.path_types),
    Rule("imageRepository", removed.repository),
    Rule("dns.imageRepository", removed.repository),
    Rule("etcd.local.imageRepository", removed.repository, unless=_EXTERNAL),
)


JOIN_RULES: Final = (
    Rule("discovery", node_rules.one_discovery),
    Rule("discovery.bootstrapToken", node_rules.endpoint_given, of="discovery.bootstrapToken.apiServerEndpoint", required=True),
    Rule(_CA_PINS, node_rules.pins_or_unsafe, of="discovery.bootstrapToken"),
    Rule("discovery.bootstrapToken.token", rules.token),
    Rule("discovery.bootstrapToken.apiServerEndpoint", node_rules.host_and_port),
    Rule(_TLS_TOKEN, node_rules.tls_bootstrap_token, of="discovery"),
    *REGISTRATION_RULES,
    Rule(_ADDRESS, rules.address),
    Rule("controlPlane.localAPIEndpoint.bindPort", rules.port),
    Rule("controlPlane.certificateKey", rules.certificate_key),
    Rule("caCertPath", node_rules.authority_path),
)
JOIN_RUN_RULES: Final = (
    Rule(_ADDRESS, rules.bindable),
    Rule(_CA_PINS, node_rules.pins),
    Rule("nodeRegistration.ignorePreflightErrors", rules.all_or_some),
)
"""Checks that kubeadm makes only when `join` runs."""

RESET_RULES: Final = (
    Rule("criSocket", rules.unix_socket),
    Rule("certificatesDir", rules.absolute),
    Rule("unmountFlags", node_rules.unmount_flags),
)
RESET_RUN_RULES: Final = (Rule("ignorePreflightErrors", rules.all_or_some),)

UPGRADE_RULES: Final = (
    Rule("apply.patches.directory", rules.absolute),
    Rule("node.patches.directory", rules.absolute),
    Rule("apply.imagePullPolicy", rules.pull_policy),
    Rule("node.imagePullPolicy", rules.pull_policy),
)


def validate_init(init: InitConfiguration, at: Place, *, runs: bool, is_complete: bool = True) -> None:
    """Record all errors in this machine's configuration.

    `runs` includes rules that matter only when `init` runs. Without `is_complete`, unset fields are not checked.
    """
    init_rules = INIT_RULES if is_complete else [rule for rule in INIT_RULES if rule.value(init) not in ("", None)]
    tokens = (_found(TOKEN_RULES, token, at / "bootstrapTokens" / str(index)) for index, token in enumerate(init.bootstrap_tokens))
    _note(chain(_found(init_rules, init, at), chain.from_iterable(tokens)), at)
    warn(REGISTRATION_WARNINGS, init, at)
    if runs:
        check(INIT_RUN_RULES, init, at)


def validate_cluster(cluster: ClusterConfiguration, at: Place) -> None:
    """Record all errors and warnings about the cluster's configuration."""
    check(CLUSTER_RULES, cluster, at)
    warn(CLUSTER_WARNINGS, cluster, at)


def warn(table: Sequence[Rule], subject: object, at: Place) -> None:
    """Record warnings."""
    for _, place, (reason, shown) in _found(table, subject, at):
        if at.findings.has_enough_warnings:
            return
        place.warn_about(reason, shown)


def check(table: Sequence[Rule], subject: object, at: Place) -> None:
    """Record all violations of the rules of a table in a document."""
    _note(_found(table, subject, at), at)


def _note(found: Iterator[_Found], at: Place) -> None:
    """Add errors to the findings, except those about values that could not be decoded. Stops when there are enough."""
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


def validate_join(join: JoinConfiguration, at: Place, *, runs: bool, exists: Callable[[str], bool]) -> None:
    """Record all errors; `exists` returns whether a path of this machine exists. `runs` as for `validate_init`."""
    path = Rule("discovery.file.kubeConfigPath", node_rules.discovery_file(exists))
    check((*JOIN_RULES, path), join, at)
    warn(REGISTRATION_WARNINGS, join, at)
    if runs:
        check(JOIN_RUN_RULES, join, at)


def validate_reset(reset: ResetConfiguration, at: Place, *, runs: bool) -> None:
    """Record all errors."""
    check((*RESET_RULES, *RESET_RUN_RULES) if runs else RESET_RULES, reset, at)


def validate_upgrade(upgrade: UpgradeConfiguration, at: Place) -> None:
    """Record all errors."""
    check(UPGRADE_RULES, upgrade, at)
