"""What our decoders read in a text, in the format of the program of tests/compat/decoders; None for a text that they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from kubewright.apis.kubeconfig import parse, resolve_discovery
from kubewright.base import yaml
from kubewright.base.encoding import decode_base64
from kubewright.base.errors import KubewrightError
from kubewright.enrollment.protocol import requests
from kubewright.pki import certificates, keys, pins
from kubewright.pki.encoding import pem
from kubewright.pki.pins import Pin
from kubewright.pki.requests import request_details, request_signing
from kubewright.tokens import cluster_info
from kubewright.tokens.strings import BootstrapTokenString

TOKEN: Final = BootstrapTokenString("abcdef", "0123456789abcdef")
_DECODER: Final = msgspec.json.Decoder(dict[str, Any])
"""As answers of the API are read."""
NOW: Final = datetime(2026, 6, 1, tzinfo=UTC)


def _part(name: str, *values: str | bytes) -> str:
    return f"{name}=" + ",".join(
        (value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")).hex() for value in values
    )


def _flag(name: str, value: bool) -> str:
    return f"{name}={str(value).lower()}"


def _base64(text: bytes) -> str | None:
    try:
        return _part("bytes", decode_base64(text))
    except ValueError:
        return None


def _blocks(text: bytes) -> str:
    found = pem.blocks(text, source="it")
    return " ".join(part for one in found for part in (_part("block", one.label, one.der), _flag("headers", one.headers)))


def _request(text: bytes) -> str:
    found = request_details.read(text)
    parts = [
        *_names(found.common_name, found.organizations),
        *_alternative(found.names.dns, found.names.emails, found.names.addresses, found.names.uris),
        *(_part("extension", one.oid, str(one.critical).lower(), one.value) for one in found.extensions),
        _part("key", found.public_key),
        _part("signed", found.signed),
        _flag("valid", request_signing.signature_valid(found)),
    ]
    return " ".join(parts)


def _certificates(text: bytes) -> str:
    return " ".join(part for one in certificates.parse(text) for part in _certificate(one))


def _certificate(found: certificates.Certificate) -> Iterable[str]:
    yield from _names(found.common_name, found.organizations)
    yield from _alternative(found.names.dns, found.names.emails, found.names.ips, found.names.uris)
    yield _flag("authority", found.is_authority)
    length = found.path_length
    yield _part("number", str(found.serial), str(-1 if length is None else length))
    yield _part("times", *(str(int(moment.timestamp())) for moment in (found.not_before, found.not_after)))
    yield _part("usages", *(usage for usage in found.usages if usage in {"serverAuth", "clientAuth"}))
    yield _part("pin", pins.of_public_key(found.public_key).digest)


def _names(common_name: str, organizations: Iterable[str]) -> tuple[str, str]:
    return _part("cn", common_name), _part("o", *organizations)


def _alternative(dns: Iterable[str], emails: Iterable[str], ips: Iterable[str], uris: Iterable[str]) -> tuple[str, ...]:
    return _part("dns", *dns), _part("email", *emails), _part("ip", *ips), _part("uri", *uris)


def _kubeconfig(text: bytes) -> str:
    found = resolve_discovery(parse(yaml.load_one(text, source="it")), untrusted=False)
    cluster, user = found.cluster, found.user
    parts = [
        *_cluster(cluster.server, cluster.certificate_authority_data),
        _part("token", user.token),
        _part("name", cluster.tls_server_name),
        _part("client", user.client_certificate_data, user.client_key_data),
        _flag("insecure", cluster.insecure_skip_tls_verify),
    ]
    return " ".join(parts)


def _cluster(server: str, authority: bytes) -> Iterable[str]:
    return _part("server", server), *(_part("ca", one.der) for one in certificates.parse(authority))


def _cluster_info(text: bytes) -> str:
    pinned, _, content = text.partition(b"\n")
    found = cluster_info.verify(
        _DECODER.decode(content), token=TOKEN, pinned=[Pin(bytes.fromhex(pinned.decode()))], server="https://it", now=NOW
    )
    return " ".join(_cluster(found.server, found.ca_pem))


class JoinRequests:
    """Reads join requests, with the key of a hub."""

    def __init__(self, key: bytes) -> None:
        self._key = keys.load(key, source="the join key")

    def read(self, text: bytes) -> str:
        """Read one request. Raises as `requests.read` does."""
        found = requests.read(_DECODER.decode(text), join_key=self._key)
        return " ".join(
            [_part("apiServerEndpoint", found.endpoint), _part("vpnPublicKey", found.tunnel_key), _part("extraSANs", *found.sans)]
        )


READERS: Final[Mapping[str, Callable[[bytes], str | None]]] = {
    "B": _base64,
    "P": _blocks,
    "R": _request,
    "C": _certificates,
    "F": _kubeconfig,
    "I": _cluster_info,
}


def reading(read: Callable[[bytes], str | None], text: bytes) -> str | None:
    """Return what we read in a text. Errors outside our tree are passed on: no text may raise one."""
    try:
        return read(text)
    except KubewrightError:
        return None
