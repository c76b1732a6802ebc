"""The checks in the validation tables. Each takes one value and yields errors: reasons, and the values to show.

Bugs of kubeadm v1.36 with which a machine could not work are fixed: a negative period, a socket with another scheme
behind `unix://`. docs/compat/config.md has a row for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from kubewright.apis import formats
from kubewright.apis.findings import HIDDEN, Problems, did_you_mean
from kubewright.apis.kubeadm import removed
from kubewright.apis.kubeadm.features import GATES
from kubewright.apis.kubeadm.types import (
    DEFAULT_CA_VALIDITY,
    DEFAULT_CERTIFICATE_VALIDITY,
    TOKEN_USAGES,
    Arg,
    BootstrapToken,
    ClusterConfiguration,
    Etcd,
    ExternalEtcd,
)
from kubewright.apis.scalars import is_token
from kubewright.base.durations import Duration
from kubewright.base.messages import quoted, shown_url
from kubewright.base.patterns import Pattern

KEY_ALGORITHMS: Final = ("ECDSA-P256", "ECDSA-P384", "RSA-2048", "RSA-3072", "RSA-4096")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
CERTIFICATE_KEY_BYTES: Final = 32
MIN_SERVICE_ADDRESSES: Final = 10
MAX_SERVICE_BITS: Final = 20
MIN_POD_ADDRESSES: Final = 14
MAX_MASK_DIFFERENCE: Final = 16
NODE_MASKS: Final = {4: ("node-cidr-mask-size-ipv4", 24), 6: ("node-cidr-mask-size-ipv6", 64)}
_BROADCAST: Final = "255.255.255.255"
_SITE_LOCAL: Final = formats.subnets("fec0::/10")[0]
_GROUP: Final = Pattern(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]", re.ASCII)
_INTEGER: Final = Pattern(r"[+-]?[0-9]{1,18}", re.ASCII)


def given(name: str) -> Problems:
    """Require a node name."""
    if not name:
        yield "the name could not be determined; set nodeRegistration.name or --node-name", None


def subdomain(name: str) -> Problems:
    """Require a DNS-1123 subdomain."""
    yield from ((problem, name) for problem in formats.subdomain_problems(name))


def unix_socket(socket: str) -> Problems:
    """Require a URL with the scheme unix that contains no other URL."""
    try:
        scheme = formats.url_scheme(socket)
    except ValueError as error:
        yield f"not a URL: {error}", socket
        return
    if scheme != "unix":
        yield f"must be a URL with the scheme unix, not {quoted(scheme)}", socket
    elif "://" in socket.partition("://")[2]:
        yield "must be the path of a socket behind unix://, not another URL", socket


def named_arguments(arguments: Sequence[Arg]) -> Problems:
    """Require a name of each argument."""
    yield from (("the argument has no name", f"index {index}") for index, argument in enumerate(arguments) if not argument.name)


def pull_policy(policy: str) -> Problems:
    """Require a known policy, or none."""
    if policy and policy not in PULL_POLICIES:
        yield f"must be one of {', '.join(PULL_POLICIES)}{did_you_mean(policy, PULL_POLICIES)}", policy


def address(text: str) -> Problems:
    """Require an IP address."""
    if formats.address(text) is None:
        yield "must be an IP address", text


def bindable(text: str) -> Problems:
    """Require an address at which an API server can be reached: loopback or global unicast."""
    found = formats.address(text)
    if found is None or found.is_loopback:
        return
    if found.is_unspecified or found.is_multicast or found.is_link_local or str(found) == _BROADCAST:
        yield "the API server cannot be reached at this address", text


def port(number: int) -> Problems:
    """Require a port number."""
    if not 1 <= number <= 65535:
        yield "must be between 1 and 65535", number


def certificate_key(key: str) -> Problems:
    """Require 32 bytes in hexadecimal digits, or nothing."""
    try:
        size = len(bytes.fromhex(key)) if " " not in key and key.isascii() else -1
    except ValueError:
        size = -1
    if size < 0:
        yield "must be hexadecimal digits", HIDDEN
    elif key and size != CERTIFICATE_KEY_BYTES:
        yield f"must be {CERTIFICATE_KEY_BYTES} bytes long, not {size}", HIDDEN


def all_or_some(names: Sequence[str]) -> Problems:
    """Refuse `all` together with names of single checks."""
    lowered = {name.lower() for name in names}
    if "all" in lowered and len(lowered) > 1:
        yield "'all' cannot be combined with names of checks", ",".join(sorted(lowered))


def token(text: str) -> Problems:
    """Require the form of a bootstrap token."""
    if not is_token(text):
        yield "a bootstrap token has the form [a-z0-9]{6}.[a-z0-9]{16}", HIDDEN if text else ""


def token_usages(usages: Sequence[str]) -> Problems:
    """Require known usages."""
    wrong = [usage for usage in usages if usage not in TOKEN_USAGES]
    if wrong:
        yield f"{', '.join(wrong)}: must be of {', '.join(TOKEN_USAGES)}{did_you_mean(wrong[0], TOKEN_USAGES)}", ",".join(usages)


def token_groups(subject: BootstrapToken) -> Problems:
    """Allow groups only for authentication, and only those of bootstrap tokens."""
    shown = ",".join(subject.groups)
    if subject.groups and "authentication" not in subject.usages:
        yield "groups need the usage authentication", shown
    wrong = [group for group in subject.groups if _GROUP.fullmatch(group) is None]
    yield from ((f"{quoted(group)} must match system:bootstrappers:[a-z0-9:-]{{0,255}}[a-z0-9]", shown) for group in wrong)


def one_end_of_life(subject: BootstrapToken) -> Problems:
    """Refuse ttl together with expires."""
    if subject.expires and subject.ttl is not None:
        yield "ttl and expires are mutually exclusive", ""


def image_repository(repository: str) -> Problems:
    """Require a valid prefix of an image name."""
    if not formats.is_image_repository(repository):
        yield "is not a valid image repository", repository


def absolute(path: str) -> Problems:
    """Require an absolute path."""
    if not path.startswith("/"):
        yield "must be an absolute path", path


def names(entries: Sequence[str]) -> Problems:
    """Require IP addresses, or DNS names optionally prefixed with `*.`."""
    wrong = (entry for entry in entries if not formats.is_host_pattern(entry) and formats.address(entry) is None)
    yield from (("must be an IP address or a DNS name in lower case, optionally with a leading '*.'", entry) for entry in wrong)


def known_gates(gates: Mapping[str, bool]) -> Problems:
    """Require known feature gates."""
    yield from ((_unknown_gate(gate), gate) for gate in gates if gate not in GATES)


def _unknown_gate(gate: str) -> str:
    if gate in removed.GATES:
        since, instead = removed.GATES[gate]
        return f"feature gate {gate} was removed in {since}: leave it out; {instead}"
    return f"{gate} is not a feature gate; known are {', '.join(sorted(GATES))}{did_you_mean(gate, GATES)}"


def endpoint(text: str) -> Problems:
    """Require `host` or `host:port`."""
    try:
        formats.host_port(text)
    except ValueError as error:
        yield str(error), text


def key_algorithm(name: str) -> Problems:
    """Require a known algorithm."""
    if name not in KEY_ALGORITHMS:
        yield f"must be one of {', '.join(KEY_ALGORITHMS)}{did_you_mean(name, KEY_ALGORITHMS)}", name


def one_etcd(etcd: Etcd) -> Problems:
    """Require exactly one of local and external."""
    if etcd.local is not None and etcd.external is not None:
        yield "local and external are mutually exclusive", ""
    elif etcd.local is None and etcd.external is None:
        yield "either local or external is required", ""


def client_pair(external: ExternalEtcd) -> Problems:
    """Require certificate and key, or neither."""
    if bool(external.cert_file) != bool(external.key_file):
        yield "certFile and keyFile must be set together", ""


def client_pair_authority(external: ExternalEtcd) -> Problems:
    """Require the CA together with certificate and key."""
    if external.cert_file and external.key_file and not external.ca_file:
        yield "certFile and keyFile require caFile", ""


def etcd_endpoints(external: ExternalEtcd) -> Problems:
    """Require at least one URL, all of them https if any file is set."""
    if not external.endpoints:
        yield "at least one endpoint is required", ""
    secure = bool(external.ca_file or external.cert_file or external.key_file)
    yield from _urls(external.endpoints, secure=secure)


def urls_with_scheme(endpoints: Sequence[str]) -> Problems:
    """Require URLs with any scheme."""
    yield from _urls(endpoints, secure=False)


def _urls(endpoints: Sequence[str], *, secure: bool) -> Problems:
    for text in endpoints:
        try:
            scheme = formats.url_scheme(text)
        except ValueError as error:
            yield f"not a URL: {error}", shown_url(text)
            continue
        if secure and scheme != "https":
            yield "must be an https URL, because certificate files are set", shown_url(text)
        if not scheme:
            yield "must be a URL with a scheme", text


def service_subnets(text: str) -> Problems:
    """Require one or two usable service CIDRs."""
    yield from _subnets(text, minimum=MIN_SERVICE_ADDRESSES)


def pod_subnets(text: str) -> Problems:
    """Require one or two usable pod CIDRs."""
    yield from _subnets(text, minimum=MIN_POD_ADDRESSES)


def _subnets(text: str, *, minimum: int) -> Problems:
    try:
        found = formats.subnets(text)
    except ValueError as error:
        yield str(error), text
        return
    if len(found) > 2 or (len(found) == 2 and formats.subnet_family(found[0]) == formats.subnet_family(found[1])):
        yield "must be one CIDR, or two of different families joined by a comma", text
    small = (network for network in found if _size(network) < minimum)
    yield from ((f"contains too few addresses; at least {minimum} are required", str(network)) for network in small)


def _size(network: formats.Network) -> int:
    """Count addresses as k8s.io/utils `RangeSize` does: a range with at most one fixed bit counts as empty."""
    bits = network.max_prefixlen - network.prefixlen
    return 0 if bits >= network.max_prefixlen - 1 else int(network.num_addresses)


def service_subnet_size(text: str) -> Problems:
    """Refuse service CIDRs that are too large for the API server."""
    for network in _readable(text):
        least = network.max_prefixlen - MAX_SERVICE_BITS
        if network.prefixlen < least:
            yield f"is too large; the mask must be at least {least}", str(network)


def pod_subnet_node_mask(cluster: ClusterConfiguration) -> Problems:
    """Require that nodes' CIDRs fit into the pod CIDRs, unless kube-controller-manager does not allocate them."""
    if _last(cluster, "allocate-node-cidrs") == "false":
        return
    for network in _readable(cluster.networking.pod_subnet):
        flag, mask = NODE_MASKS[formats.subnet_family(network)]
        value = _last(cluster, flag)
        if value and _INTEGER.fullmatch(value) is None:
            yield f"kube-controller-manager's argument {flag} is not a number", str(network)
            continue
        mask = int(value) if value else mask
        if network.prefixlen > mask:
            yield f"is smaller than the subnet of one node, which has the mask {mask}", str(network)
        elif mask - network.prefixlen > MAX_MASK_DIFFERENCE:
            yield f"mask and node mask {mask} may differ by {MAX_MASK_DIFFERENCE} at most", str(network)


def _last(cluster: ClusterConfiguration, name: str) -> str:
    return next((argument.value for argument in reversed(cluster.controller_manager.extra_args) if argument.name == name), "")


def _readable(text: str) -> list[formats.Network]:
    try:
        return formats.subnets(text)
    except ValueError:
        return []


def not_negative(period: Duration) -> Problems:
    """Refuse certificates that expire before they are valid."""
    if period < 0:
        yield "must not be negative", str(period)


def site_local(text: str) -> Problems:
    """Warn about IPv6 site-local addresses (RFC 3879)."""
    overlapping = (network for network in _readable(text) if network.version == 6 and network.overlaps(_SITE_LOCAL))
    yield from (
        (f"{network} contains IPv6 site-local addresses of fec0::/10, which RFC 3879 has withdrawn", network) for network in overlapping
    )


def long_certificates(cluster: ClusterConfiguration) -> Problems:
    """Warn about certificates that are valid longer than kubeadm's."""
    period = cluster.certificate_validity_period
    if period > DEFAULT_CERTIFICATE_VALIDITY:
        yield f"{period} is longer than the recommended {DEFAULT_CERTIFICATE_VALIDITY}", period


def long_authorities(period: Duration) -> Problems:
    """Warn about CAs that are valid longer than kubeadm's."""
    if period > DEFAULT_CA_VALIDITY:
        yield f"{period} is longer than the recommended {DEFAULT_CA_VALIDITY}", period


def outlives_authority(cluster: ClusterConfiguration) -> Problems:
    """Warn about certificates that outlive their CA."""
    leaf, authority = cluster.certificate_validity_period, cluster.ca_certificate_validity_period
    if leaf > authority:
        yield f"{leaf} is longer than caCertificateValidityPeriod, {authority}", leaf
