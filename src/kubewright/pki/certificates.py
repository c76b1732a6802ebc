"""One certificate as a value: everything that rules and summaries look at, read at once, so that nothing later can fail on bad input."""

from __future__ import annotations

import ipaddress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field
from kubewright.pki import pem
from kubewright.pki.keys import kind_of, public_der
from kubewright.pki.reading import reading

if TYPE_CHECKING:
    from cryptography import x509

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, kw_only=True)
class AlternativeNames:
    """The subjectAltName extension, each kind in the order of the file."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A certificate that was read. `extensions` are the names in the order of the file; `usages` the names of extended key usages.

    `key_kind` is `RSA-2048`, `ECDSA-P256` or the library's name of another kind; `public_key` is the DER SubjectPublicKeyInfo, empty for
    a kind that the library does not know.
    """

    der: bytes = field(repr=False)
    native: x509.Certificate = field(repr=False, compare=False)
    subject: tuple[tuple[str, str], ...]
    issuer: tuple[tuple[str, str], ...]
    serial: int
    not_before: datetime
    not_after: datetime
    is_authority: bool
    usages: tuple[str, ...]
    names: AlternativeNames
    extensions: tuple[str, ...]
    key_kind: str
    public_key: bytes = field(repr=False)

    @property
    def common_name(self) -> str:
        """The last common name of the subject, or ''."""
        return next((value for name, value in reversed(self.subject) if name == "commonName"), "")

    @property
    def organizations(self) -> tuple[str, ...]:
        """The organisations of the subject, which the API server takes for groups."""
        return tuple(value for name, value in self.subject if name == "organizationName")

    @property
    def lifetime(self) -> timedelta:
        """The whole span from its start to its end."""
        return self.not_after - self.not_before

    def pem(self) -> bytes:
        """Return it as a PEM block."""
        return pem.encode(pem.CERTIFICATE, self.der)

    def describe(self) -> str:
        """Name it in a message: its subject and its serial number."""
        return f"certificate {', '.join(f'{name}={value}' for name, value in self.subject) or 'without subject'} (serial {self.serial:x})"

    def issued_by(self, issuer: Certificate) -> bool:
        """Whether the issuer's name fits and its key made the signature. Neither dates nor the issuer's rights are looked at."""
        try:
            self.native.verify_directly_issued_by(issuer.native)
        except Exception:  # any failure, an unknown algorithm included, means that trust cannot be shown
            return False
        return True


def read(der: bytes, *, source: str) -> Certificate:
    """Read one DER certificate. Raises CertificateError, naming `source`."""
    from cryptography import x509

    with reading(f"the certificate in {source}", remedy=f"restore {source} from a copy, or remove it together with its key"):
        native = x509.load_der_x509_certificate(der)
        kind, public = _key(native)
        return Certificate(
            der=der,
            native=native,
            subject=name_pairs(native.subject),
            issuer=name_pairs(native.issuer),
            serial=native.serial_number,
            not_before=native.not_valid_before_utc,
            not_after=native.not_valid_after_utc,
            is_authority=_is_authority(native.extensions),
            usages=_usages(native.extensions),
            names=alternative_names(native.extensions),
            extensions=tuple(extension_name(extension.oid) for extension in native.extensions),
            key_kind=kind,
            public_key=public,
        )


def first(text: bytes, *, source: str) -> Certificate:
    """Read the first certificate of PEM text. Raises CertificateError, naming `source`, also where there is none."""
    found = next((block for block in pem.blocks(text, source=source) if block.label == pem.CERTIFICATE), None)
    if found is None:
        raise CertificateError(f"{source} holds no certificate", remedy=f"restore {source} from a copy")
    return read(found.der, source=source)


def name_pairs(name: x509.Name) -> tuple[tuple[str, str], ...]:
    """Return the attributes of a distinguished name, `commonName` and its like, in order."""
    return tuple((extension_name(attribute.oid), _text(attribute.value)) for attribute in name)


def extension_name(oid: x509.ObjectIdentifier) -> str:
    """Return the short name of an object identifier, or its dotted form where the library knows none."""
    known: str = oid._name  # noqa: SLF001 (the library has the table and no public way to it)
    return oid.dotted_string if known == "Unknown OID" else known


def alternative_names(extensions: x509.Extensions) -> AlternativeNames:
    """Return the alternative names of a certificate or request; kinds that Kubernetes has no use for are left out."""
    from cryptography import x509

    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return AlternativeNames()
    return AlternativeNames(
        dns=tuple(names.get_values_for_type(x509.DNSName)),
        ips=tuple(str(address) for address in names.get_values_for_type(x509.IPAddress)),
        emails=tuple(names.get_values_for_type(x509.RFC822Name)),
        uris=tuple(names.get_values_for_type(x509.UniformResourceIdentifier)),
    )


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()


def _key(native: x509.Certificate) -> tuple[str, bytes]:
    try:
        key = native.public_key()
        return kind_of(key), public_der(key)
    except Exception:  # a bundle may hold an authority with a key of a kind that we cannot use; the others still count
        return native.public_key_algorithm_oid.dotted_string, b""


def _is_authority(extensions: x509.Extensions) -> bool:
    from cryptography import x509

    try:
        return extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _usages(extensions: x509.Extensions) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(extension_name(usage) for usage in found)
