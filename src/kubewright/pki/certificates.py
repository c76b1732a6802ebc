"""Certificates as values: one, several in a file, or one with its key.

All fields that rules need are parsed at once, so that bad input cannot cause errors later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kubewright.base.errors import CertificateMismatch
from kubewright.base.records import dataclass, field
from kubewright.pki import keys
from kubewright.pki.encoding import der, distinguished_names, pem, uris
from kubewright.pki.encoding.der import DERError, Element
from kubewright.pki.encoding.pem import quiet, reading
from kubewright.pki.keys import PrivateKey, kind_of

if TYPE_CHECKING:
    from cryptography import x509


_LONGEST_CHAIN = 8
_CONTENT = "the content of a certificate"
_COMMON_NAME = "2.5.4.3"
_VERSION = 0xA0
"""The first element of a certificate, which is optional."""


@dataclass(frozen=True, kw_only=True)
class AlternativeNames:
    """The subjectAltName extension, each kind in the order of the file."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    emails: tuple[str, ...] = ()
    uris: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """A parsed certificate.

    `extensions` are the names in the order of the file; `usages` the names of extended key usages. `key_kind` is
    `RSA-2048`, `ECDSA-P256` or the library's name of another kind; `public_key` is the DER SubjectPublicKeyInfo as in
    the certificate, from which pins are computed. `path_length` is how many CAs may follow below a CA, None for any
    number.
    """

    der: bytes = field(repr=False)
    native: x509.Certificate = field(repr=False, compare=False)
    subject: tuple[tuple[str, str], ...]
    issuer: tuple[tuple[str, str], ...]
    serial: int
    not_before: datetime
    not_after: datetime
    is_authority: bool
    path_length: int | None
    usages: tuple[str, ...]
    names: AlternativeNames
    extensions: tuple[str, ...]
    key_kind: str
    public_key: bytes = field(repr=False)

    @property
    def native_subject(self) -> x509.Name:
        """The subject as an object of the library, which parses it each time and warns of lengths that Go and clusters accept."""
        with quiet():
            return self.native.subject

    @property
    def common_name(self) -> str:
        """The last common name of the subject, or ''."""
        return next((value for name, value in reversed(self.subject) if name == "commonName"), "")

    @property
    def organizations(self) -> tuple[str, ...]:
        """The organisations of the subject, which the API server treats as groups."""
        return tuple(value for name, value in self.subject if name == "organizationName")

    @property
    def lifetime(self) -> timedelta:
        """The validity period, from notBefore to notAfter."""
        return self.not_after - self.not_before

    def pem(self) -> bytes:
        """Return the certificate as a PEM block."""
        return pem.encode(pem.CERTIFICATE, self.der)

    def describe(self) -> str:
        """Describe it in a message: its subject and its serial number."""
        return f"certificate {', '.join(f'{name}={value}' for name, value in self.subject) or 'without subject'} (serial {self.serial:x})"

    def issued_by(self, issuer: Certificate) -> bool:
        """Whether the issuer's name matches and its key made the signature.

        Checks neither dates nor the issuer's rights.
        """
        try:
            self.native.verify_directly_issued_by(issuer.native)
        except Exception:  # any failure, even an unknown algorithm, means that trust cannot be established
            return False
        return True

    def has_signed(self, content: bytes, signature: bytes) -> bool:
        """Whether this certificate's key has signed a text (`PrivateKey.sign`).

        False for kinds of keys that we do not generate.
        """
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

        try:
            key = self.native.public_key()
            if isinstance(key, rsa.RSAPublicKey):
                key.verify(signature, content, padding.PKCS1v15(), hashes.SHA256())
            elif isinstance(key, ec.EllipticCurvePublicKey):
                digest = {384: hashes.SHA384(), 521: hashes.SHA512()}.get(key.key_size, hashes.SHA256())
                key.verify(signature, content, ec.ECDSA(digest))
            else:
                return False
        except (InvalidSignature, ValueError):
            return False
        return True


def read(content: bytes, *, source: str) -> Certificate:
    """Parse one DER certificate. Raises CertificateError, naming `source`."""
    from cryptography import x509

    with reading(f"the certificate in {source}", remedy=f"restore {source} from a copy, or remove it together with its key"):
        native = x509.load_der_x509_certificate(content)
        constraints = _constraints(native.extensions)
        issuer, _, subject, key = _parts(der.one(native.tbs_certificate_bytes, _CONTENT))
        return Certificate(
            der=content,
            native=native,
            subject=tuple(_attributes(subject)),
            issuer=tuple(_attributes(issuer)),
            serial=native.serial_number,
            not_before=native.not_valid_before_utc,
            not_after=native.not_valid_after_utc,
            is_authority=constraints.ca,
            path_length=constraints.path_length,
            usages=_usages(native.extensions),
            names=alternative_names(native.extensions),
            extensions=tuple(extension_name(extension.oid) for extension in native.extensions),
            key_kind=_key_kind(native),
            public_key=key.whole,
        )


def first(text: bytes, *, source: str) -> Certificate:
    """Parse the first certificate of PEM text. Raises CertificateError, naming `source`, also if there is none."""
    return read(pem.certificates(text, source=source)[0], source=source)


def first_common_name(text: bytes, *, source: str) -> str:
    """Return the last common name in the first certificate of PEM text, or ''. Raises CertificateError.

    Only the name is parsed, without the library: importing that takes most of the time of a command that needs nothing
    else of it.
    """
    [content] = pem.certificates(text, source=source)[:1]
    with reading(f"the certificate in {source}"):
        inside = next(der.one(content, "a certificate").require(der.SEQUENCE, "a certificate").children())
        _, _, subject, _ = _parts(inside)
        attributes = [*itertools.chain.from_iterable(distinguished_names.read(subject))]
        return next((one.text for one in reversed(attributes) if one.oid == _COMMON_NAME and one.text is not None), "")


def _parts(content: Element) -> list[Element]:
    """Return issuer, validity, subject and public key as encoded in the file: the library may encode them differently, which changes the pin."""
    parts = [*content.children()]
    first = 3 if parts[0].identifier == _VERSION else 2
    return parts[first : first + 4]


def _attributes(name: Element) -> Iterator[tuple[str, str]]:
    """Yield the attributes of a distinguished name, such as `commonName`.

    Raises DERError for a value that is not a string, as Go does.
    """
    from cryptography import x509

    for attribute in itertools.chain.from_iterable(distinguished_names.read(name)):
        if attribute.text is None:
            raise DERError(f"the attribute {attribute.oid} of a name is not a string")
        yield extension_name(x509.ObjectIdentifier(attribute.oid)), attribute.text


def extension_name(oid: x509.ObjectIdentifier) -> str:
    """Return the short name of an object identifier, or its dotted form if the library has none."""
    known: str = oid._name  # noqa: SLF001 (the library has the table and no public way to it)
    return oid.dotted_string if known == "Unknown OID" else known


def alternative_names(extensions: x509.Extensions) -> AlternativeNames:
    """Return the alternative names of a certificate; kinds that Kubernetes does not use are left out.

    An IPv4-mapped IPv6 address is returned as IPv4, and URIs as Go formats them. Raises URIError for one that Go
    refuses.
    """
    from cryptography import x509

    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return AlternativeNames()
    return AlternativeNames(
        dns=tuple(names.get_values_for_type(x509.DNSName)),
        ips=tuple(str(getattr(address, "ipv4_mapped", None) or address) for address in names.get_values_for_type(x509.IPAddress)),
        emails=tuple(names.get_values_for_type(x509.RFC822Name)),
        uris=tuple(map(uris.written, names.get_values_for_type(x509.UniformResourceIdentifier))),
    )


def _key_kind(native: x509.Certificate) -> str:
    try:
        return kind_of(native.public_key())
    except Exception:  # a bundle may hold a CA whose kind of key we cannot use; the other certificates still count
        return native.public_key_algorithm_oid.dotted_string


def _constraints(extensions: x509.Extensions) -> x509.BasicConstraints:
    from cryptography import x509

    try:
        return extensions.get_extension_for_class(x509.BasicConstraints).value
    except x509.ExtensionNotFound:
        return x509.BasicConstraints(ca=False, path_length=None)


def _usages(extensions: x509.Extensions) -> tuple[str, ...]:
    from cryptography import x509

    try:
        found = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(extension_name(usage) for usage in found)


def parse(text: bytes, *, source: str = "the bundle") -> list[Certificate]:
    """Parse every certificate of PEM text, in order; blocks of other kinds are skipped.

    Raises CertificateError, naming `source`, for one that cannot be parsed, and if there is none.
    """
    return [read(content, source=source) for content in pem.certificates(text, source=source)]


def chains_to(leaf: Certificate, *, roots: Sequence[Certificate], intermediates: Sequence[Certificate] = ()) -> bool:
    """Whether signatures lead from a certificate to one of the roots, directly or through intermediate CAs.

    Dates are not checked: an expired certificate still belongs to the chain.
    """
    reached = [leaf]
    left = [certificate for certificate in intermediates if certificate.is_authority]
    for _ in range(_LONGEST_CHAIN):
        if any(certificate.issued_by(root) for certificate in reached for root in roots):
            return True
        reached = [issuer for issuer in left if any(certificate.issued_by(issuer) for certificate in reached)]
        left = [certificate for certificate in left if certificate not in reached]
        if not reached:
            return False
    return False


def expiry(certificate: Certificate, now: datetime) -> str:
    """Describe when it expires, for reasons and warnings: `expires in 364 d`, `expired 3 h ago`, `not valid for another 5 min`."""
    if now < certificate.not_before:
        return f"not valid for another {span(certificate.not_before - now)}"
    if now > certificate.not_after:
        return f"expired {span(now - certificate.not_after)} ago"
    return f"expires in {span(certificate.not_after - now)}"


def invalid(certificate: Certificate, now: datetime) -> str:
    """Return the reason why it is not valid at a time, as `expiry` describes it; '' if it is valid."""
    return "" if certificate.not_before <= now <= certificate.not_after else expiry(certificate, now)


def span(length: timedelta) -> str:
    """Format a duration in its largest whole unit: days, hours, minutes or seconds."""
    seconds = int(length.total_seconds())
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A key and the certificates that come with it: the leaf first, then intermediates."""

    certificates: tuple[Certificate, ...]
    key: PrivateKey

    @property
    def leaf(self) -> Certificate:
        """The certificate of the key."""
        return self.certificates[0]

    def certificate_pem(self) -> bytes:
        """Return the leaf and its intermediates as PEM."""
        return b"".join(certificate.pem() for certificate in self.certificates)

    def pem(self) -> bytes:
        """Return the form of the kubelet's files: certificates first, then the key."""
        return self.certificate_pem() + self.key.pem()


def fits(certificate: Certificate, key: PrivateKey) -> bool:
    """Whether a certificate is for this key."""
    import hmac  # hmac imports OpenSSL, which is not needed to check whether the pair exists

    return hmac.compare_digest(certificate.public_key, key.public_der())


def parse_pair(text: bytes, *, source: str) -> Pair:
    """Parse PEM text with certificates and one key, in any order, and require that they match.

    Raises CertificateError, naming `source`, for anything unreadable, and CertificateMismatch if the key belongs to
    another certificate.
    """
    return pair_of(text, text, source=source)


def pair_of(certificate_pem: bytes, key_pem: bytes, *, source: str) -> Pair:
    """Parse certificates and key from two texts and require that they match. Raises as `parse_pair` does."""
    found = parse(certificate_pem, source=source)
    key = keys.load(key_pem, source=source)
    if not fits(found[0], key):
        raise CertificateMismatch(
            f"certificate and key of {source} do not match",
            detail=f"the key is not that of the {found[0].describe()}",
            remedy=f"restore both from the same backup, or remove {source} to have both created again",
        )
    return Pair(certificates=tuple(found), key=key)


def join(certificate_pem: bytes, key_pem: bytes) -> bytes:
    """Return certificate and key as one text, certificates first. Other blocks of either text are dropped."""
    found = pem.certificates(certificate_pem, source="the certificate")
    private = (block for block in pem.blocks(key_pem, source="the key") if block.private)
    return b"".join(pem.encode(pem.CERTIFICATE, content) for content in found) + pem.join(private)
