"""The four signers of Kubernetes and their rules, as tables in the order of evaluation (Kubernetes v1.36: pkg/apis/certificates/helpers.go)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubewright.base.records import dataclass
from kubewright.controllers.requests import CLIENT, CLIENT_KUBELET, KUBELET_SERVING, LEGACY_UNKNOWN
from kubewright.pki.requests.csr import NODES
from kubewright.pki.requests.request_details import RequestDetails

NODE_PREFIX: Final = "system:node:"
_ENCIPHERMENT: Final = "key encipherment"
_CLIENT_USAGES: Final = frozenset({"client auth", "digital signature"})
_SERVING_USAGES: Final = frozenset({"digital signature", "server auth"})


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The subject of the rules: the request and its usages."""

    request: RequestDetails
    usages: tuple[str, ...]


@dataclass(frozen=True)
class Rule:
    """One rule. `broken` returns the text of the Failed condition, None if the rule is kept."""

    name: str
    broken: Callable[[Asked], str | None]


@dataclass(frozen=True, kw_only=True)
class Signer:
    """One signer: the name in `spec.signerName`, the words of the flags that configure it, its rules."""

    name: str
    controller: str
    flags: str
    rules: tuple[Rule, ...] = ()

    def verdict(self, asked: Asked) -> str | None:
        """Return the text of the first rule that is broken; None if all are kept."""
        return next((text for rule in self.rules if (text := rule.broken(asked)) is not None), None)


def _unless(holds: Callable[[Asked], bool], text: str) -> Callable[[Asked], str | None]:
    return lambda asked: None if holds(asked) else text


def _usages(least: frozenset[str]) -> Callable[[Asked], str | None]:
    """Require exactly these usages, or these and key encipherment.

    The text always lists all three, as upstream.
    """
    text = f"usages did not match [{' '.join(sorted(least | {_ENCIPHERMENT}))}]"
    return _unless(lambda asked: frozenset(asked.usages) - {_ENCIPHERMENT} == least, text)


def _client_usages(asked: Asked) -> str | None:
    other = next((usage for usage in asked.usages if usage not in _CLIENT_USAGES | {_ENCIPHERMENT}), None)
    if other is not None:
        return f"invalid usage for client certificate: {other}"
    return None if "client auth" in asked.usages else "missing required usage for client certificate: client auth"


ORGANIZATION: Final = Rule(
    "organization", _unless(lambda asked: asked.request.organizations == (NODES,), "subject organization is not system:nodes")
)
COMMON_NAME: Final = Rule(
    "common name",
    _unless(lambda asked: asked.request.common_name.startswith(NODE_PREFIX), "subject common name does not begin with system:node:"),
)
NO_DNS: Final = Rule("no DNS names", _unless(lambda asked: not asked.request.names.dns, "DNS subjectAltNames are not allowed"))
NO_EMAIL: Final = Rule("no e-mail names", _unless(lambda asked: not asked.request.names.emails, "Email subjectAltNames are not allowed"))
NO_IP: Final = Rule("no addresses", _unless(lambda asked: not asked.request.names.ips, "IP subjectAltNames are not allowed"))
NO_URI: Final = Rule("no URI names", _unless(lambda asked: not asked.request.names.uris, "URI subjectAltNames are not allowed"))
SOME_NAME: Final = Rule(
    "a name or address",
    _unless(lambda asked: bool(asked.request.names.dns or asked.request.names.ips), "DNS or IP subjectAltName is required"),
)

KUBELET_CLIENT_SIGNER: Final = Signer(
    name=CLIENT_KUBELET,
    controller="csrsigning-kubelet-client",
    flags="kubelet-client",
    rules=(ORGANIZATION, NO_DNS, NO_EMAIL, NO_IP, NO_URI, COMMON_NAME, Rule("usages", _usages(_CLIENT_USAGES))),
)
KUBELET_SERVING_SIGNER: Final = Signer(
    name=KUBELET_SERVING,
    controller="csrsigning-kubelet-serving",
    flags="kubelet-serving",
    rules=(ORGANIZATION, SOME_NAME, NO_EMAIL, NO_URI, Rule("usages", _usages(_SERVING_USAGES)), COMMON_NAME),
)
SIGNERS: Final = (
    KUBELET_SERVING_SIGNER,
    KUBELET_CLIENT_SIGNER,
    Signer(
        name=CLIENT,
        controller="csrsigning-kube-apiserver-client",
        flags="kube-apiserver-client",
        rules=(Rule("usages", _client_usages),),
    ),
    Signer(name=LEGACY_UNKNOWN, controller="csrsigning-legacy-unknown", flags="legacy-unknown"),
)


def named(name: str) -> Signer | None:
    """Return the signer of a `spec.signerName`; None for an unknown one."""
    return next((signer for signer in SIGNERS if signer.name == name), None)
