"""Check a hub's answer before anything is written, and extract what may be written.

Pure; a check is a row. A check reads its part of the answer into a value. Everything that is written consists of
these values, never of the hub's texts.

The chain of the certificates cannot be checked, because nodes do not get the CAs that sign them. Whether the API
server accepts the client certificate becomes clear when the kubelet uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.kubeconfig import EmbeddedCertificate, Kubeconfig, kubeconfig_document, parse, require_usable
from kubewright.base import untyped, yaml
from kubewright.base.errors import DocumentError, KubewrightError, TrustError, ValidationError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass, field
from kubewright.base.versions import Version
from kubewright.enrollment.node import kubelet_fields, tunnel_checks
from kubewright.enrollment.node.tunnel_checks import CheckedEnds
from kubewright.enrollment.protocol.answers import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE, Answer
from kubewright.pki import certificates, names
from kubewright.pki.certificates import Certificate, Pair
from kubewright.pki.table import Usage

CLUSTER: Final = "kubernetes"
"""The cluster's name in the kubeconfig, as in kubeadm's."""
OLDEST: Final = Version(1, 27, 0)
"""From this version on kubelets read the container runtime's address from their configuration.

Older ones would look for Docker.
"""
SKEW: Final = 3
"""Minor releases that a kubelet may be older than its API server (kubernetes.io/releases/version-skew-policy)."""
_LONGEST_PLACE: Final = 200
_CLOCKS: Final = timedelta(minutes=5)
"""How far the hub's clock may be ahead: oneinfra's certificates become valid in the second of their issue."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The node's request, and what the node knows when it reads the answer.

    `offered`: it has sent a key for the VPN; `addresses` are its addresses outside the VPN. `api_server` is the
    version that the API server reports, None if it reports none. `accepted` are fields of the kubelet's configuration
    that the machine's owner lets the hub set.
    """

    node: str
    server: str
    ca_pem: bytes
    sans: Sequence[str]
    now: datetime
    offered: bool = False
    addresses: Sequence[str] = ()
    api_server: Version | None = None
    accepted: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """The parts of an answer that may be written.

    `kubelet` contains fields of the kubelet's configuration, without those of the machine itself.
    """

    version: Version
    tunnel: CheckedEnds | None
    kubeconfig: bytes = field(repr=False)
    serving: Pair
    client_ca: bytes
    kubelet: Mapping[str, Any]


def _version(answer: Answer, expected: Expected) -> Version:
    try:
        found = Version.parse(answer.kubernetes_version)
    except ValueError as error:
        raise TrustError("the version is not valid") from error
    if found < OLDEST:
        raise TrustError(
            f"{found} is older than {OLDEST}, the oldest kubelet that can be set up here",
            remedy="upgrade the cluster; or join the machine with oneinfra's own program",
        )
    server = expected.api_server
    if server is not None and not _goes_with(found, server):
        raise TrustError(
            f"a kubelet {found} is not compatible with the API server {server}",
            detail=f"it may be up to {SKEW} minor releases older, and not newer",
            remedy="set another version on the hub: kubewright hub cluster add --kubernetes-version",
        )
    return found


def _goes_with(kubelet: Version, server: Version) -> bool:
    return kubelet.major == server.major and 0 <= server.minor - kubelet.minor <= SKEW


def _tunnel(answer: Answer, expected: Expected) -> CheckedEnds | None:
    if answer.tunnel is None:
        return None
    return tunnel_checks.require(answer.tunnel, offered=expected.offered, machine=expected.addresses)


def _kubeconfig(answer: Answer, expected: Expected) -> bytes:
    """Return our own kubeconfig: the requested server, the CA from the answer, and the certificate if it is this node's."""
    given = parse(yaml.load_one(answer.kubeconfig.encode(), source="the kubeconfig"))
    _require_plain(given)
    found = require_usable(given)
    server = _server(found.cluster.server, answer, expected)
    known = [one.der for one in certificates.parse(expected.ca_pem, source="the CA that was given")]
    if not all(one.der in known for one in certificates.parse(found.cluster.certificate_authority_data, source="its CA")):
        raise TrustError("it trusts another CA than the one that was given")
    pair = certificates.pair_of(found.user.client_certificate_data, found.user.client_key_data, source="its client certificate")
    if pair.leaf.organizations != ("system:nodes",):
        raise TrustError(f"its organisations are {quoted(', '.join(pair.leaf.organizations))}", detail="expected: system:nodes")
    user = f"system:node:{expected.node}"
    _leaf(pair, user, Usage.CLIENT, expected.now)
    document = kubeconfig_document(
        server=server,
        cluster_name=CLUSTER,
        user=user,
        credentials=EmbeddedCertificate(certificate_pem=pair.certificate_pem(), key_pem=pair.key.pem()),
        ca_pem=expected.ca_pem,
    )
    return yaml.dump(document).encode()


_CLUSTER_FIELDS: Final = ("certificate_authority", "insecure_skip_tls_verify", "tls_server_name", "proxy_url")
_USER_FIELDS: Final = (
    *("exec", "auth_provider", "token", "token_file", "username", "password", "client_certificate", "client_key"),
    *("impersonate", "impersonate_uid", "impersonate_groups"),
)
"""Fields that a kubelet with a certificate never needs: other credentials, local files, programs, ways to bypass the CA."""


def _require_plain(given: Kubeconfig) -> None:
    """Require that no cluster or user has more than a server, a CA and a certificate, even those that are not selected."""
    entries = [(one, _CLUSTER_FIELDS) for one in given.clusters.values()] + [(one, _USER_FIELDS) for one in given.users.values()]
    found = [name.replace("_", "-") for entry, fields in entries for name in fields if getattr(entry, name) not in (None, "", False, ())]
    if found:
        raise TrustError(f"it contains fields that no kubelet needs: {', '.join(dict.fromkeys(found))}")


def _server(text: str, answer: Answer, expected: Expected) -> str:
    """Return the requested API server, or the one that our hub has put behind the tunnel.

    Raises TrustError for any other.
    """
    if text.rstrip("/") == expected.server:
        return expected.server
    found = _https_address(text)
    ends = tunnel_checks.read(answer.tunnel) if answer.tunnel is not None and not answer.tunnel.private_key else None
    if found is None or ends is None or not ends.has(found[0]):
        raise TrustError(f"it is for {quoted(text)}", detail=f"requested: {expected.server}")
    address, port = found
    shown = f"[{address}]" if address.version == 6 else str(address)
    return f"https://{shown}:{port}" if port is not None else f"https://{shown}"


def _https_address(text: str) -> tuple[formats.IPAddress, int | None] | None:
    """Return the address and port of a URL `https://ADDRESS:PORT`, None for any other text."""
    try:
        parts = urlsplit(text)
        address, port = formats.address(parts.hostname or ""), parts.port
    except ValueError:
        return None
    has_more = parts.path not in {"", "/"} or parts.query or parts.fragment or "@" in parts.netloc
    return None if address is None or parts.scheme != "https" or has_more else (address, port)


def _serving(answer: Answer, expected: Expected) -> Pair:
    pair = certificates.pair_of(answer.serving_certificate.encode(), answer.serving_key.encode(), source="the serving certificate")
    _leaf(pair, expected.node, Usage.SERVER, expected.now)
    wanted = names.of((expected.node,), (), expected.sans)
    missing = names.missing(wanted, dns=pair.leaf.names.dns, ips=pair.leaf.names.ips)
    if missing:
        raise TrustError(f"it is not for {', '.join(missing)}")
    return pair


def _leaf(pair: Pair, name: str, usage: Usage, now: datetime) -> None:
    leaf: Certificate = pair.leaf
    if leaf.common_name != name:
        raise TrustError(f"it is for {quoted(leaf.common_name)}", detail=f"expected: {name}")
    if usage not in leaf.usages or leaf.is_authority:
        raise TrustError(f"it is not for {usage}", detail=", ".join(leaf.usages))
    if not leaf.not_before - _CLOCKS <= now <= leaf.not_after:
        raise TrustError(f"it is not valid now: {certificates.expiry(leaf, now)}", remedy="check the clock of this machine")


def _client_ca(answer: Answer, _: Expected) -> bytes:
    found = certificates.parse(answer.client_ca.encode(), source="the CA of clients")
    if not all(one.is_authority for one in found):
        raise TrustError("it is not a CA")
    return b"".join(one.pem() for one in found)


def _configuration(answer: Answer, expected: Expected) -> dict[str, Any]:
    found = yaml.load_one(answer.kubelet_config.encode(), source="the kubelet's configuration").value
    if not isinstance(found, dict):
        raise DocumentError("the kubelet's configuration is not a map")
    kubelet_fields.require_kind(found)
    x509 = untyped.mapping(untyped.mapping(found.get("authentication")).get("x509"))
    places = (
        (found.get("tlsCertFile"), CERTIFICATE_FILE),
        (found.get("tlsPrivateKeyFile"), KEY_FILE),
        (x509.get("clientCAFile"), CLIENT_CA_FILE),
    )
    wrong = [quoted(str(place)[:_LONGEST_PLACE]) for place, usual in places if place != usual]
    if wrong:
        raise TrustError(f"it names files in unusual places: {', '.join(wrong)}")
    return kubelet_fields.read(found, accepted=expected.accepted)


CHECKS: Final[tuple[tuple[str, str, Callable[[Answer, Expected], Any]], ...]] = (
    ("version", "the version", _version),
    ("tunnel", "the VPN", _tunnel),
    ("kubeconfig", "the kubeconfig", _kubeconfig),
    ("serving", "the serving certificate", _serving),
    ("client_ca", "the CA of clients", _client_ca),
    ("kubelet", "the kubelet's configuration", _configuration),
)
"""A part of `CheckedAnswer`: its name, and the function that reads it."""


def checked(answer: Answer, expected: Expected) -> CheckedAnswer:
    """Read an answer and require that it matches the request. Raises TrustError for the first mismatch."""
    found = {}
    for name, what, check in CHECKS:
        try:
            found[name] = check(answer, expected)
        except ValidationError as error:
            raise _distrust(what, error.detail, "") from error
        except KubewrightError as error:
            raise _distrust(what, str(error), error.remedy) from error
    return CheckedAnswer(**found)


def _distrust(what: str, why: str, remedy: str) -> TrustError:
    again = "ask the operator of the hub; nothing was written"
    return TrustError(f"{what} that the hub sent cannot be used", detail=why, remedy=remedy or again)
