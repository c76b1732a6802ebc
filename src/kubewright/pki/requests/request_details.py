"""Parses certificate requests (PKCS#10) as leniently as Go's crypto/x509 does, including all of their contents.

kube-apiserver accepts what Go's ParseCertificateRequest accepts, and kube-controller-manager signs it; the X.509
library refuses part of that. Therefore the structure is parsed here element by element; the library handles keys and
signatures. In one respect this is stricter than Go: a text must contain exactly one PEM block, because parsers may
choose different ones from several, some of them broken.
"""

from __future__ import annotations

import functools
import ipaddress
import itertools
from collections.abc import Iterator
from typing import Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field
from kubewright.pki.encoding import der, distinguished_names, pem, uris
from kubewright.pki.encoding.der import DERError, Element
from kubewright.pki.encoding.distinguished_names import Attribute

COMMON_NAME: Final = "2.5.4.3"
ORGANIZATION: Final = "2.5.4.10"
SUBJECT_ALTERNATIVE_NAME: Final = "2.5.29.17"

_EXTENSION_REQUEST: Final = "1.2.840.113549.1.9.14"
_ATTRIBUTES: Final = 0xA0
_NOTHING: Final = Element(0, b"", b"")
"""Stands for a missing part: no part may be of this kind."""
_KINDS: Final = {
    0xA0: "other name",
    0x81: "email",
    0x82: "DNS",
    0xA3: "X.400 address",
    0xA4: "directory name",
    0xA5: "EDI party name",
    0x86: "URI",
    0x87: "IP",
    0x88: "registered identifier",
}


@dataclass(frozen=True, kw_only=True)
class RequestedExtension:
    """A requested extension; `value` is its DER."""

    oid: str
    critical: bool
    value: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class RequestNames:
    """The alternative names that Go knows, each kind in the order of the request, and `others`: the kinds that Go skips.

    Addresses are 4 bytes for IPv4, including IPv4-mapped IPv6; URIs are as Go formats them.
    """

    dns: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    ips: tuple[bytes, ...] = ()
    uris: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @functools.cached_property
    def addresses(self) -> tuple[str, ...]:
        """The IP addresses as text."""
        return tuple(str(ipaddress.ip_address(ip)) for ip in self.ips)


@dataclass(frozen=True, kw_only=True)
class RequestDetails:
    """All contents of a request. `subject` keeps the sets of the distinguished name; the signature is not verified."""

    der: bytes = field(repr=False)
    signed: bytes = field(repr=False)
    """The signed bytes."""
    public_key: bytes = field(repr=False)
    """DER SubjectPublicKeyInfo."""
    signature_algorithm: str
    signature: bytes = field(repr=False)
    subject: tuple[tuple[Attribute, ...], ...]
    extensions: tuple[RequestedExtension, ...]
    names: RequestNames

    @property
    def common_name(self) -> str:
        """The last common name of the subject, or ''."""
        return next((text for text in reversed(self.values(COMMON_NAME))), "")

    @property
    def organizations(self) -> tuple[str, ...]:
        """The organisations of the subject."""
        return self.values(ORGANIZATION)

    def values(self, oid: str) -> tuple[str, ...]:
        """Return the values of an attribute that are strings, in order."""
        return tuple(one.text for part in self.subject for one in part if one.oid == oid and one.text is not None)


LARGEST: Final = 1 << 16
"""The maximum size of a text in bytes. A request with an RSA key of 16,384 bits and a hundred names has 10 kB."""


class RefusedRequest(CertificateError):
    """A request that is not parsed here, although Go might parse it and kube-controller-manager sign it."""


def read(text: bytes, *, source: str = "the request") -> RequestDetails:
    """Parse the request in the only PEM block of a text.

    Raises RefusedRequest for a text with a second `-----BEGIN` and for one that is larger than `LARGEST`, and
    CertificateError for anything that Go refuses; both name `source`.
    """
    remedy = "send PEM with one CERTIFICATE REQUEST block"
    if len(text) > LARGEST:
        raise RefusedRequest(f"{source} is larger than {LARGEST} bytes", remedy=remedy)
    if (begun := text.count(pem.MARK)) > 1:
        raise RefusedRequest(f"{source} has {begun} BEGIN lines instead of one", remedy=remedy)
    found = pem.blocks(text, source=source)
    if not found or found[0].label != pem.REQUEST:
        raise CertificateError(f"{source} contains no certificate request", remedy=remedy)
    try:
        return _request(found[0].der)
    except (DERError, uris.URIError) as error:
        raise CertificateError(f"{source} cannot be read", detail=str(error), remedy="create the request again") from error


def _request(data: bytes) -> RequestDetails:
    content, algorithm, signature = _parts(der.one(data, "the request"), 3, "the request")
    version, subject, key, attributes = _parts(content, 4, "the content of the request")
    der.require_integer(version.require(der.INTEGER, "the version").content)
    _require_key(key)
    extensions = tuple(_extensions(attributes.require(_ATTRIBUTES, "the list of attributes")))
    san = next((one for one in extensions if one.oid == SUBJECT_ALTERNATIVE_NAME), None)
    return RequestDetails(
        der=data,
        signed=content.whole,
        public_key=key.whole,
        signature_algorithm=_algorithm(algorithm),
        signature=der.bits(signature.require(der.BIT_STRING, "the signature").content),
        subject=tuple(distinguished_names.read(subject)),
        extensions=extensions,
        names=_names(san.value) if san is not None else RequestNames(),
    )


def _parts(element: Element, count: int, what: str) -> list[Element]:
    """Return the first parts of a sequence.

    Further ones are ignored, as in Go: later versions may extend a structure.
    """
    found = list(itertools.islice(element.require(der.SEQUENCE, what).children(), count))
    if len(found) < count:
        raise DERError(f"{what} has {len(found)} parts instead of {count}")
    return found


def _algorithm(element: Element) -> str:
    (kind,) = _parts(element, 1, "an algorithm")
    return der.identifier_text(kind.require(der.OBJECT_IDENTIFIER, "an algorithm's identifier").content)


def _require_key(element: Element) -> None:
    algorithm, value = _parts(element, 2, "the public key")
    _algorithm(algorithm)
    der.bits(value.require(der.BIT_STRING, "the key's value").content)


def _extensions(attributes: Element) -> Iterator[RequestedExtension]:
    """Yield the requested extensions of all attributes that request some.

    An unreadable attribute is ignored, as in Go.
    """
    known: set[str] = set()
    for attribute in attributes.children():
        for one in _asked_for(attribute):
            extension = _extension(one)
            if extension.oid in known:
                raise DERError(f"the extension {extension.oid} is requested twice")
            known.add(extension.oid)
            yield extension


def _asked_for(attribute: Element) -> Iterator[Element]:
    try:
        kind, values = _parts(attribute, 2, "an attribute")
        wanted = der.identifier_text(kind.require(der.OBJECT_IDENTIFIER, "an attribute").content) == _EXTENSION_REQUEST
        found = list(values.require(der.SET, "the values of an attribute").children())
    except DERError:
        return
    if wanted and found:
        yield from found[0].require(der.SEQUENCE, "the list of extensions").children()


def _extension(element: Element) -> RequestedExtension:
    parts = element.require(der.SEQUENCE, "an extension").children()
    oid = der.identifier_text(next(parts, _NOTHING).require(der.OBJECT_IDENTIFIER, "an extension").content)
    value, critical = next(parts, _NOTHING), False
    if value.identifier == der.BOOLEAN:
        critical, value = der.boolean(value.content), next(parts, _NOTHING)
    return RequestedExtension(oid=oid, critical=critical, value=value.require(der.OCTET_STRING, f"the value of extension {oid}").content)


def _names(value: bytes) -> RequestNames:
    found: dict[int, list[Element]] = {}
    outer = next(der.elements(value), None)
    if outer is None:
        raise DERError("the list of alternative names is empty")
    for one in outer.require(der.SEQUENCE, "the list of alternative names").children():
        found.setdefault(one.identifier, []).append(one)
    known = {0x81, 0x82, 0x86, 0x87}
    return RequestNames(
        emails=tuple(_ascii(one, "an e-mail name") for one in found.get(0x81, ())),
        dns=tuple(_ascii(one, "a DNS name") for one in found.get(0x82, ())),
        uris=tuple(uris.written(_ascii(one, "a URI name")) for one in found.get(0x86, ())),
        ips=tuple(_ip(one.content) for one in found.get(0x87, ())),
        others=tuple(_KINDS.get(kind, f"kind {kind:#04x}") for kind, ones in found.items() if kind not in known for _ in ones),
    )


def _ascii(element: Element, what: str) -> str:
    try:
        return element.content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DERError(f"{what} is not ASCII") from error


def _ip(content: bytes) -> bytes:
    if len(content) not in {4, 16}:
        raise DERError(f"an IP address of {len(content)} bytes")
    mapped = ipaddress.IPv6Address(content).ipv4_mapped if len(content) == 16 else None
    return mapped.packed if mapped is not None else content
