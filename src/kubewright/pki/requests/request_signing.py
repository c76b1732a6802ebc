"""Signs requests as kube-controller-manager v1.36 does (pkg/controller/certificates/authority, and Go's CreateCertificate).

The certificate is assembled here and signed by the X.509 library: the library's builder refuses names, key usages and
empty attributes that kube-controller-manager signs, and takes three times as long.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.pki import certificates
from kubewright.pki.certificates import Certificate
from kubewright.pki.encoding import der, pem
from kubewright.pki.encoding.pem import reading
from kubewright.pki.keys import public_der
from kubewright.pki.requests import request_keys
from kubewright.pki.requests.request_details import COMMON_NAME, ORGANIZATION, SUBJECT_ALTERNATIVE_NAME, RequestDetails

BACKDATED: Final = timedelta(minutes=5)
"""The difference between notBefore and the current time."""
SHORT: Final = timedelta(hours=8)
"""A shorter validity period is not shortened by the backdating."""
SHORTEST: Final = timedelta(minutes=10)
"""The validity period of a request for less."""

_SERIAL_BYTES: Final = 16
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_NULL: Final = der.encode(0x05)

_SUBJECT: Final = ("2.5.4.6", "2.5.4.8", "2.5.4.7", "2.5.4.9", "2.5.4.17", ORGANIZATION, "2.5.4.11")
"""Attributes that may have several values, in Go's order: country, province, locality, street, postal code, organisation, unit."""
_SINGLE: Final = (COMMON_NAME, "2.5.4.5")
"""Common name and serial number, of which the last value applies."""

KEY_USAGES: Final = {
    "signing": 0,
    "digital signature": 0,
    "content commitment": 1,
    "key encipherment": 2,
    "data encipherment": 3,
    "key agreement": 4,
    "cert sign": 5,
    "crl sign": 6,
    "encipher only": 7,
    "decipher only": 8,
}
"""The bit of each usage of the API that is a key usage."""
EXTENDED_USAGES: Final = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}
"""The identifier of each usage of the API that is an extended key usage, in the order in a certificate."""


class SeveralCertificates(CertificateMismatch):
    """A CA file contains more than one certificate: nothing is signed until it contains one."""


@dataclass(frozen=True, kw_only=True)
class SigningAuthority:
    """A CA that signs requests: one certificate and its key."""

    certificate: Certificate
    subject: bytes = field(repr=False)
    key_identifier: bytes | None = field(repr=False)
    algorithm: bytes = field(repr=False)
    """DER AlgorithmIdentifier of its signatures."""
    sign: Callable[[bytes], bytes] = field(repr=False, compare=False)

    @property
    def not_after(self) -> datetime:
        """The time when it expires."""
        return self.certificate.not_after


@dataclass(frozen=True, kw_only=True)
class VerifiedRequest:
    """A request whose sender has proved possession of the key. `key` is its DER SubjectPublicKeyInfo, encoded again."""

    details: RequestDetails
    key: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Period:
    """The validity period of a certificate."""

    not_before: datetime
    not_after: datetime


def load_authority(certificate_pem: bytes, key_pem: bytes, *, source: str) -> SigningAuthority:
    """Load a CA.

    Raises SeveralCertificates, CertificateMismatch for a key of another certificate, CertificateError for unreadable
    files.
    """
    found = certificates.parse(certificate_pem, source=source)
    key = _private_key(key_pem, source=source)
    certificate = found[0]
    if public_der(key.public_key()) != certificate.public_key:
        raise CertificateMismatch(f"the key of {source} does not belong to its certificate", remedy="restore both from the same copy")
    if len(found) != 1:
        raise SeveralCertificates(
            f"{source} contains {len(found)} certificates instead of one",
            remedy="keep only the one that signs; put the others into the bundle of clients",
        )
    native = certificate.native
    try:
        identifier = native.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        identifier = None
    algorithm, sign = _signing(key)
    return SigningAuthority(
        certificate=certificate,
        subject=certificate.native_subject.public_bytes(),
        key_identifier=identifier,
        algorithm=algorithm,
        sign=sign,
    )


def _private_key(text: bytes, *, source: str) -> Any:
    block = next((one for one in pem.blocks(text, source=source) if one.private), None)
    if block is None:
        raise CertificateError(f"{source} has no private key", remedy="pass the file that contains it")
    with reading(f"the key of {source}"):
        return load_der_private_key(block.der, None)


def _signing(key: Any) -> tuple[bytes, Callable[[bytes], bytes]]:
    """Return the algorithm that Go chooses for a key, and the function that signs with it."""
    if isinstance(key, rsa.RSAPrivateKey):
        rsa_key = key
        return _algorithm("1.2.840.113549.1.1.11", _NULL), lambda data: rsa_key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        oid, digest = {384: ("1.2.840.10045.4.3.3", hashes.SHA384()), 521: ("1.2.840.10045.4.3.4", hashes.SHA512())}.get(
            key.key_size, ("1.2.840.10045.4.3.2", hashes.SHA256())
        )
        ec_key, algorithm = key, ec.ECDSA(digest)
        return _algorithm(oid), lambda data: ec_key.sign(data, algorithm)
    return _algorithm("1.3.101.112"), key.sign


def _algorithm(oid: str, parameters: bytes = b"") -> bytes:
    return der.encode(der.SEQUENCE, _identifier(oid), parameters)


@functools.lru_cache(maxsize=128)
def _identifier(oid: str) -> bytes:
    return der.encode(der.OBJECT_IDENTIFIER, der.identifier_content(oid))


def unknown_usages(usages: Sequence[str]) -> list[str]:
    """Return the usages that a certificate cannot express."""
    return [usage for usage in usages if usage not in KEY_USAGES and usage not in EXTENDED_USAGES]


def duration(expiration_seconds: int | None, *, longest: timedelta) -> timedelta:
    """Return the validity period: the requested one, but at least 10 min, and at most the signer's own duration."""
    if expiration_seconds is None:
        return longest
    wanted = timedelta(seconds=expiration_seconds)
    return longest if wanted > longest else max(wanted, SHORTEST)


def period(length: timedelta, *, now: datetime, authority_ends: datetime) -> Period:
    """Return the validity period. Raises CertificateError if the CA has expired."""
    not_before = now - BACKDATED
    not_after = now + length if length < SHORT else now + length - BACKDATED
    if not now < authority_ends:
        raise CertificateError(
            "the CA certificate has expired", detail=f"it ended at {authority_ends:%Y-%m-%dT%H:%M:%SZ}", remedy="renew it"
        )
    return Period(not_before=not_before, not_after=min(not_after, authority_ends))


def issue(verified: VerifiedRequest, *, authority: SigningAuthority, usages: Sequence[str], valid: Period, random: Random) -> bytes:
    """Issue the certificate of a request, as PEM."""
    request = verified.details
    subject = der.encode(der.SEQUENCE, *_subject(request))
    extensions = b"".join(_extensions(request, subject, authority, tuple(usages)))
    content = der.encode(
        der.SEQUENCE,
        b"\xa0\x03\x02\x01\x02",  # version 3
        _integer(int.from_bytes(random.token_bytes(_SERIAL_BYTES)) or 1),
        authority.algorithm,
        authority.subject,
        der.encode(der.SEQUENCE, _time(valid.not_before), _time(valid.not_after)),
        subject,
        verified.key,
        der.encode(0xA3, der.encode(der.SEQUENCE, extensions)),
    )
    signature = der.encode(der.BIT_STRING, b"\0", authority.sign(content))
    return pem.encode(pem.CERTIFICATE, der.encode(der.SEQUENCE, content, authority.algorithm, signature))


def _integer(value: int) -> bytes:
    return der.encode(der.INTEGER, value.to_bytes(value.bit_length() // 8 + 1))


def _time(moment: datetime) -> bytes:
    utc = moment.astimezone(UTC)
    if 1950 <= utc.year < 2050:
        return der.encode(_UTC_TIME, f"{utc:%y%m%d%H%M%SZ}".encode())
    return der.encode(_GENERALIZED_TIME, f"{utc.year:04d}{utc:%m%d%H%M%SZ}".encode())


def _subject(request: RequestDetails) -> Iterator[bytes]:
    """Yield the parts of the subject: the attributes that Go knows, all values of one in one set; others are lost."""
    for oid in _SUBJECT:
        values = request.values(oid)
        if values:
            yield der.encode(der.SET, *sorted(_attribute(oid, value) for value in values))
    for oid in _SINGLE:
        last = request.values(oid)[-1:]
        if last and last[0]:
            yield der.encode(der.SET, _attribute(oid, last[0]))


def _attribute(oid: str, value: str) -> bytes:
    kind = der.PRINTABLE_STRING if der.is_printable(value) else der.UTF8_STRING
    return der.encode(der.SEQUENCE, _identifier(oid), der.encode(kind, value.encode()))


def _extensions(request: RequestDetails, subject: bytes, authority: SigningAuthority, usages: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the extensions in Go's order."""
    yield _usages(usages)
    yield _extension("2.5.29.19", der.encode(der.SEQUENCE), critical=True)
    # Go omits it if the certificate would seem to have issued itself.
    if authority.key_identifier and subject != authority.subject:
        yield _extension("2.5.29.35", der.encode(der.SEQUENCE, der.encode(0x80, authority.key_identifier)))
    names = request.names
    listed = [
        *(der.encode(0x82, name.encode()) for name in names.dns),
        *(der.encode(0x81, name.encode()) for name in names.emails),
        *(der.encode(0x87, ip) for ip in names.ips),
        *(der.encode(0x86, name.encode()) for name in names.uris),
    ]
    if listed:
        empty = subject == der.encode(der.SEQUENCE)
        yield _extension(SUBJECT_ALTERNATIVE_NAME, der.encode(der.SEQUENCE, *listed), critical=empty)


@functools.lru_cache(maxsize=64)
def _usages(usages: tuple[str, ...]) -> bytes:
    bits = {KEY_USAGES[usage] for usage in usages if usage in KEY_USAGES}
    wanted = {EXTENDED_USAGES[usage] for usage in usages if usage in EXTENDED_USAGES}
    found = b""
    if bits:
        highest = max(bits)
        unused = 7 - highest % 8
        value = sum(1 << (highest - bit) for bit in bits) << unused
        found = _extension("2.5.29.15", der.encode(der.BIT_STRING, bytes((unused,)), value.to_bytes(highest // 8 + 1)), critical=True)
    if wanted:
        ordered = [oid for oid in dict.fromkeys(EXTENDED_USAGES.values()) if oid in wanted]
        found += _extension("2.5.29.37", der.encode(der.SEQUENCE, *map(_identifier, ordered)))
    return found


def _extension(oid: str, value: bytes, *, critical: bool = False) -> bytes:
    flag = der.encode(der.BOOLEAN, b"\xff") if critical else b""
    return der.encode(der.SEQUENCE, _identifier(oid), flag, der.encode(der.OCTET_STRING, value))


def verified(request: RequestDetails) -> VerifiedRequest:
    """Verify that the sender of a request has its key.

    Raises CertificateError for a wrong signature and for kinds of key that Go does not verify.
    """
    try:
        key = request_keys.load(request.public_key)
        _verify(key, request)
        return VerifiedRequest(details=request, key=public_der(key))
    except (InvalidSignature, UnsupportedAlgorithm, ValueError, TypeError) as error:
        raise CertificateError(
            "the signature of the request is not by its key", detail=str(error), remedy="sign the request with the key that it contains"
        ) from error


def signature_valid(request: RequestDetails) -> bool:
    """Whether the sender of a request has proved possession of the key."""
    try:
        verified(request)
    except CertificateError:
        return False
    return True


def _verify(key: Any, request: RequestDetails) -> None:
    kind, digest = _digests().get(request.signature_algorithm, ("", None))
    if kind == "RSA" and isinstance(key, rsa.RSAPublicKey) and digest is not None:
        key.verify(request.signature, request.signed, padding.PKCS1v15(), digest)
    elif kind == "PSS" and isinstance(key, rsa.RSAPublicKey):
        _verify_pss(request)
    elif kind == "ECDSA" and isinstance(key, ec.EllipticCurvePublicKey) and digest is not None:
        key.verify(request.signature, request.signed, ec.ECDSA(digest))
    elif kind == "Ed25519" and isinstance(key, ed25519.Ed25519PublicKey):
        key.verify(request.signature, request.signed)
    else:
        raise InvalidSignature(f"key and signature algorithm {request.signature_algorithm} do not match")


def _verify_pss(request: RequestDetails) -> None:
    """Verify an RSA-PSS signature, whose digest is among its parameters, which the library reads."""
    if not x509.load_der_x509_csr(request.der).is_signature_valid:
        raise InvalidSignature("")


@functools.cache
def _digests() -> dict[str, tuple[str, hashes.HashAlgorithm | None]]:
    """Return the signature algorithms that Go verifies in requests: including SHA-1, but not MD5."""
    return {
        "1.2.840.113549.1.1.5": ("RSA", hashes.SHA1()),  # noqa: S303 (Go takes it in requests)
        "1.3.14.3.2.29": ("RSA", hashes.SHA1()),  # noqa: S303 (Go takes it in requests)
        "1.2.840.113549.1.1.11": ("RSA", hashes.SHA256()),
        "1.2.840.113549.1.1.12": ("RSA", hashes.SHA384()),
        "1.2.840.113549.1.1.13": ("RSA", hashes.SHA512()),
        "1.2.840.113549.1.1.10": ("PSS", None),
        "1.2.840.10045.4.1": ("ECDSA", hashes.SHA1()),  # noqa: S303 (as above)
        "1.2.840.10045.4.3.2": ("ECDSA", hashes.SHA256()),
        "1.2.840.10045.4.3.3": ("ECDSA", hashes.SHA384()),
        "1.2.840.10045.4.3.4": ("ECDSA", hashes.SHA512()),
        "1.3.101.112": ("Ed25519", None),
    }
