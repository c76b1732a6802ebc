"""The configuration of an agent's kubelet API: where it listens, what it serves, and who may use it.

Source: kubelet v1.36. Pure. The defaults are those of a configuration file even if there is none: a kubelet without
`--config` allows everybody everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.agent.access import AccessRules
from kubewright.apis import formats
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.records import dataclass

_VERSIONS: Final = {"": "1.2", "VersionTLS10": "1.2", "VersionTLS11": "1.2", "VersionTLS12": "1.2", "VersionTLS13": "1.3"}
"""Minimum TLS version by its name in Go; we serve nothing older than 1.2."""
_LATEST_SUITES: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
"""The suites of TLS 1.3, which are always enabled: neither Go nor OpenSSL's list for 1.2 can select them."""
_EXCHANGES: Final = {"ECDHE_ECDSA": "ECDHE-ECDSA-", "ECDHE_RSA": "ECDHE-RSA-", "RSA": ""}
_CIPHERS: Final = {
    "AES_128_CBC_SHA": "AES128-SHA",
    "AES_128_CBC_SHA256": "AES128-SHA256",
    "AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "AES_256_CBC_SHA": "AES256-SHA",
    "AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "CHACHA20_POLY1305": "CHACHA20-POLY1305",
    "CHACHA20_POLY1305_SHA256": "CHACHA20-POLY1305",
}
_CA: Final = "authentication.x509.clientCAFile"
_MODES: Final = ("", "Webhook", "AlwaysAllow")


@dataclass(frozen=True, kw_only=True)
class KubeletAPIOptions:
    """Options of the kubelet API.

    `files` are a certificate and its key; with `requested` the cluster signs one. `client_ca` is None if client
    certificates are not accepted.
    """

    address: str
    port: int
    requested: bool
    files: tuple[PurePosixPath, PurePosixPath] | None
    client_ca: PurePosixPath | None
    rules: AccessRules
    debugging: bool
    oldest_tls: str
    ciphers: str


def kubelet_api_options(kubelet: Mapping[str, Any]) -> KubeletAPIOptions | None:
    """Return the options of the API from a decoded configuration, None if it is switched off.

    Raises ValidationError.
    """
    if kubelet["enableServer"] is False:
        return None
    if errors := _errors(kubelet):
        raise ValidationError("the kubelet API cannot be served with these settings", errors, remedy="correct the fields named above")
    authentication, authorization = kubelet["authentication"] or {}, kubelet["authorization"] or {}
    tokens, webhook = authentication.get("webhook") or {}, authorization.get("webhook") or {}
    ca = (authentication.get("x509") or {}).get("clientCAFile") or ""
    files = (PurePosixPath(kubelet["tlsCertFile"]), PurePosixPath(kubelet["tlsPrivateKeyFile"])) if kubelet["tlsCertFile"] else None
    return KubeletAPIOptions(
        address=kubelet["address"] or "0.0.0.0",  # noqa: S104 (the kubelet's default)
        port=kubelet["port"] or 10250,
        requested=kubelet["serverTLSBootstrap"],
        files=files,
        client_ca=PurePosixPath(ca) if ca else None,
        rules=AccessRules(
            anonymous=(authentication.get("anonymous") or {}).get("enabled") is True,
            tokens=tokens.get("enabled") is not False,
            token_seconds=_seconds(tokens.get("cacheTTL"), 120.0),
            reviews=authorization.get("mode") != "AlwaysAllow",
            allowed_seconds=_seconds(webhook.get("cacheAuthorizedTTL"), 300.0),
            denied_seconds=_seconds(webhook.get("cacheUnauthorizedTTL"), 30.0),
        ),
        debugging=kubelet["enableDebuggingHandlers"] is not False,
        oldest_tls=_VERSIONS[kubelet["tlsMinVersion"] or ""],
        ciphers=":".join(name for suite in kubelet["tlsCipherSuites"] or () if (name := openssl_cipher(suite))),
    )


def openssl_cipher(suite: str) -> str | None:
    """Return OpenSSL's name of a TLS 1.2 cipher suite, '' for one of TLS 1.3, None for an unknown one."""
    if suite in _LATEST_SUITES:
        return ""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if exchange not in _EXCHANGES or cipher not in _CIPHERS:
        return None
    return _EXCHANGES[exchange] + _CIPHERS[cipher]


def _errors(kubelet: Mapping[str, Any]) -> list[FieldError]:
    problems = _problems(kubelet)
    return [FieldError(path=FieldPath(path), type=FieldErrorType.INVALID, value=value, reason=reason) for path, value, reason in problems]


def _problems(kubelet: Mapping[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Yield the path of each invalid field, its value, and what is wrong with it."""
    address, certificate, key = kubelet["address"], kubelet["tlsCertFile"], kubelet["tlsPrivateKeyFile"]
    if address and formats.address(address) is None:
        yield "address", address, "must be an IP address"
    mode = (kubelet["authorization"] or {}).get("mode") or ""
    if mode not in _MODES:
        yield "authorization.mode", mode, "must be Webhook or AlwaysAllow"
    if (kubelet["tlsMinVersion"] or "") not in _VERSIONS:
        yield "tlsMinVersion", kubelet["tlsMinVersion"], f"must be one of {', '.join(filter(None, _VERSIONS))}"
    if bool(certificate) is not bool(key):
        yield "tlsCertFile", certificate, "must be set together with tlsPrivateKeyFile"
    ca = ((kubelet["authentication"] or {}).get("x509") or {}).get("clientCAFile")
    for name, path in (("tlsCertFile", certificate), ("tlsPrivateKeyFile", key), (_CA, ca)):
        if path and not path.startswith("/"):
            yield name, path, "must be an absolute path"
    for suite in kubelet["tlsCipherSuites"] or ():
        if openssl_cipher(suite) is None:
            yield "tlsCipherSuites", suite, "is not a cipher suite that is available here"


def _seconds(span: Any, default: float) -> float:
    return float(span.seconds) if span is not None and span.seconds else default
