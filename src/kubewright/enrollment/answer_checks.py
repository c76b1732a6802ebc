"""What a node requires of a hub's answer before anything is written. Pure; a check is a row.

The chain of the certificates cannot be checked: the authorities that sign them are not sent to nodes. Whether the API server takes the client
certificate shows when the kubelet uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis import formats
from kubewright.apis.kubeconfig import parse, require_usable
from kubewright.base import yaml
from kubewright.base.errors import DocumentError, KubewrightError, TrustError, ValidationError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.base.versions import Version
from kubewright.enrollment import tunnel_checks
from kubewright.enrollment.answers import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE, Answer
from kubewright.pki import certificates, names
from kubewright.pki.certificates import Certificate, Pair
from kubewright.pki.table import Usage

_KIND: Final = ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration")
_OLDEST: Final = Version(1, 27, 0)
"""From here on kubelets read from their configuration where the container runtime is; older ones would look for Docker."""
_LONGEST_PLACE: Final = 200
_CLOCKS: Final = timedelta(minutes=5)
"""How far the clock of a hub may be ahead: oneinfra's begins its certificates at the second in which they are made."""


@dataclass(frozen=True, kw_only=True)
class _Expected:
    """What was asked for, and when the answer is looked at."""

    answer: Answer
    node: str
    server: str
    ca_pem: bytes
    sans: Sequence[str]
    now: datetime
    offered: bool
    addresses: Sequence[str]


def _version(expected: _Expected) -> None:
    try:
        found = Version.parse(expected.answer.kubernetes_version)
    except ValueError as error:
        raise TrustError("the version is none") from error
    if found < _OLDEST:
        raise TrustError(
            f"{found} is older than {_OLDEST}, the oldest kubelet that can be set up here",
            remedy="upgrade the cluster; or join the machine with oneinfra's own program",
        )


def _kubeconfig(expected: _Expected) -> None:
    found = require_usable(parse(yaml.load_one(expected.answer.kubeconfig.encode(), source="the kubeconfig")))
    server = found.cluster.server.rstrip("/")
    if server != expected.server and not _in_tunnel(server, expected.answer):
        raise TrustError(f"it is for {found.cluster.server}", detail=f"asked for was {expected.server}")
    if found.cluster.insecure_skip_tls_verify or found.cluster.proxy_url or found.user.exec is not None or found.user.impersonate:
        raise TrustError("it holds what no kubelet needs")
    known = [one.der for one in certificates.parse(expected.ca_pem, source="the authority that was given")]
    if not all(one.der in known for one in certificates.parse(found.cluster.certificate_authority_data, source="its authority")):
        raise TrustError("it trusts another authority than the one that was given")
    pair = certificates.pair_of(found.user.client_certificate_data, found.user.client_key_data, source="its client certificate")
    if pair.leaf.organizations != ("system:nodes",):
        raise TrustError(f"its organisations are {', '.join(pair.leaf.organizations)}", detail="expected: system:nodes")
    _leaf(pair, f"system:node:{expected.node}", Usage.CLIENT, expected.now)


def _in_tunnel(server: str, answer: Answer) -> bool:
    """Whether an API server is one that the hub has put behind the tunnel."""
    host = formats.address(urlsplit(server).hostname or "") if server.startswith("https://") else None
    if host is None or answer.tunnel is None or answer.tunnel.private_key:
        return False
    return any(host.version == network.version and host in network for network in tunnel_checks.networks(answer.tunnel))


def _tunnel(expected: _Expected) -> None:
    if expected.answer.tunnel is not None:
        tunnel_checks.require(expected.answer.tunnel, offered=expected.offered, machine=expected.addresses)


def _serving(expected: _Expected) -> None:
    answer = expected.answer
    pair = certificates.pair_of(answer.serving_certificate.encode(), answer.serving_key.encode(), source="the serving certificate")
    _leaf(pair, expected.node, Usage.SERVER, expected.now)
    wanted = names.of((expected.node,), (), expected.sans)
    missing = names.missing(wanted, dns=pair.leaf.names.dns, ips=pair.leaf.names.ips)
    if missing:
        raise TrustError(f"it is not for {', '.join(missing)}")


def _leaf(pair: Pair, name: str, usage: Usage, now: datetime) -> None:
    leaf: Certificate = pair.leaf
    if leaf.common_name != name:
        raise TrustError(f"it is for {leaf.common_name}", detail=f"expected: {name}")
    if usage not in leaf.usages or leaf.is_authority:
        raise TrustError(f"it is not for {usage}", detail=", ".join(leaf.usages))
    if not leaf.not_before - _CLOCKS <= now <= leaf.not_after:
        raise TrustError(f"it is not valid now: {certificates.expiry(leaf, now)}", remedy="check the clock of this machine")


def _client_authority(expected: _Expected) -> None:
    if not all(one.is_authority for one in certificates.parse(expected.answer.client_ca.encode(), source="the authority of clients")):
        raise TrustError("it is no authority")


def _configuration(expected: _Expected) -> None:
    found = kubelet_document(expected.answer)
    if (found.get("apiVersion"), found.get("kind")) != _KIND:
        raise TrustError(f"it is no {_KIND[1]}")
    authentication = _map(found.get("authentication"))
    x509 = _map(authentication.get("x509"))
    places = (
        (found.get("tlsCertFile"), CERTIFICATE_FILE),
        (found.get("tlsPrivateKeyFile"), KEY_FILE),
        (x509.get("clientCAFile"), CLIENT_CA_FILE),
    )
    wrong = [quoted(str(place)[:_LONGEST_PLACE]) for place, usual in places if place != usual]
    if wrong:
        raise TrustError(f"it names files in unusual places: {', '.join(wrong)}")
    if _map(authentication.get("anonymous")).get("enabled") and _map(found.get("authorization")).get("mode") == "AlwaysAllow":
        raise TrustError("it lets everybody use the kubelet")


def kubelet_document(answer: Answer) -> dict[str, Any]:
    """Return the kubelet's configuration of an answer. Raises DocumentError."""
    found = yaml.load_one(answer.kubelet_config.encode(), source="the kubelet's configuration").value
    if not isinstance(found, dict):
        raise DocumentError("the kubelet's configuration is no map")
    return found


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


CHECKS: Final[tuple[tuple[str, Callable[[_Expected], None]], ...]] = (
    ("the version", _version),
    ("the VPN", _tunnel),
    ("the kubeconfig", _kubeconfig),
    ("the serving certificate", _serving),
    ("the authority of clients", _client_authority),
    ("the kubelet's configuration", _configuration),
)


def require(
    answer: Answer,
    node: str,
    *,
    server: str,
    ca_pem: bytes,
    sans: Sequence[str],
    now: datetime,
    offered: bool = False,
    addresses: Sequence[str] = (),
) -> None:
    """Require that an answer is what a node asked for. Raises TrustError for the first thing that is not.

    `offered`: the node has sent a key for the VPN; `addresses` are those that it has outside of it.
    """
    expected = _Expected(answer=answer, node=node, server=server, ca_pem=ca_pem, sans=sans, now=now, offered=offered, addresses=addresses)
    for what, check in CHECKS:
        try:
            check(expected)
        except ValidationError as error:
            raise _distrust(what, error.detail, "") from error
        except KubewrightError as error:
            raise _distrust(what, str(error), error.remedy) from error


def _distrust(what: str, why: str, remedy: str) -> TrustError:
    again = "ask whoever runs the hub; nothing of it was written"
    return TrustError(f"{what} that the hub sent cannot be used", detail=why, remedy=remedy or again)
