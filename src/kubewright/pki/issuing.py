"""Issues certificates exactly as kubeadm v1.36 does (cmd/kubeadm/app/util/pkiutil): serial, times, extensions and their order."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import CertificateError
from kubewright.base.randomness import Random
from kubewright.pki.certificates import extension_name
from kubewright.pki.encoding.pem import quiet
from kubewright.pki.keys import PrivateKey
from kubewright.pki.names import Names
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import LoadedAuthority

if TYPE_CHECKING:
    from cryptography import x509

BACKDATED: Final = timedelta(minutes=5)
"""The difference between notBefore and the current time, for clocks that are behind."""

_SERIAL_BYTES: Final = 8
_SHORT: Final = 64


def self_signed(spec: CertificateSpec, key: PrivateKey, *, started: datetime, random: Random) -> bytes:
    """Create the certificate of a CA, as PEM. `started` is the start of its validity period."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding

    subject = subject_of(spec.common_name, spec.organizations)
    with _making(spec.name):
        builder = _basic(spec, subject, subject, key, _period(spec, started), random)
        identifier = x509.SubjectKeyIdentifier.from_public_key(key.native.public_key())
        builder = builder.add_extension(identifier, critical=False)
        return _signed(builder, spec, key).public_bytes(Encoding.PEM)


def signed(
    spec: CertificateSpec,
    key: PrivateKey,
    authority: LoadedAuthority,
    *,
    started: datetime,
    random: Random,
    not_before: datetime | None = None,
) -> bytes:
    """Create a certificate that a CA signs, as PEM. Raises as `certificate` does."""
    from cryptography.hazmat.primitives.serialization import Encoding

    made = certificate(spec, key, authority, started=started, random=random, not_before=not_before)
    return made.public_bytes(Encoding.PEM)


def certificate(
    spec: CertificateSpec,
    key: PrivateKey,
    authority: LoadedAuthority,
    *,
    started: datetime,
    random: Random,
    not_before: datetime | None = None,
) -> x509.Certificate:
    """Create a certificate that a CA signs.

    Its validity ends one period after `started` and begins five minutes before, or at `not_before`: client certificates
    inside kubeconfigs begin with the CA's. Raises CertificateError if the CA's key is kept elsewhere.
    """
    from cryptography import x509

    signing = authority.signing_key(wanted=spec.name)
    begin, end = _period(spec, started)
    with _making(spec.name):
        subject = subject_of(spec.common_name, spec.organizations)
        builder = _basic(spec, subject, authority.certificate.native_subject, key, (not_before or begin, end), random)
        identifier = _key_identifier(authority.certificate.native)
        if identifier is not None:
            builder = builder.add_extension(x509.AuthorityKeyIdentifier(identifier, None, None), critical=False)
        return _signed(builder, spec, signing)


def subject_of(common_name: str, organizations: tuple[str, ...] = ()) -> x509.Name:
    """Return a subject: the organisations as one set, then the common name, as Go encodes them."""
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    sets = [x509.RelativeDistinguishedName([_attribute(NameOID.COMMON_NAME, common_name)])]
    if organizations:
        named = dict.fromkeys(organizations)
        sets.insert(0, x509.RelativeDistinguishedName([_attribute(NameOID.ORGANIZATION_NAME, one) for one in named]))
    return x509.Name(sets)


def _attribute(kind: x509.ObjectIdentifier, value: str) -> x509.NameAttribute[str]:
    """Return one attribute; it may be longer than the library allows, because node names have up to 253 characters."""
    from cryptography import x509

    if len(value) <= _SHORT:
        return x509.NameAttribute(kind, value)
    with quiet():
        return x509.NameAttribute(kind, value, _validate=False)


def san_extension(names: Names) -> x509.SubjectAlternativeName:
    """Return the extension with the alternative names: DNS names first, then addresses."""
    from cryptography import x509

    addresses = [x509.IPAddress(ipaddress.ip_address(ip)) for ip in names.ips]
    return x509.SubjectAlternativeName([*(x509.DNSName(name) for name in names.dns), *addresses])


def _basic(
    spec: CertificateSpec,
    subject: x509.Name,
    issuer: x509.Name,
    key: PrivateKey,
    period: tuple[datetime, datetime],
    random: Random,
) -> x509.CertificateBuilder:
    """Return a builder with everything up to the basic constraints, in kubeadm's order."""
    from cryptography import x509

    builder = x509.CertificateBuilder(issuer, subject, key.native.public_key(), _serial(random), *period)
    builder = builder.add_extension(_key_usage(signs=spec.is_authority), critical=True)
    if spec.usages:
        builder = builder.add_extension(x509.ExtendedKeyUsage([_usage(usage) for usage in spec.usages]), critical=False)
    return builder.add_extension(x509.BasicConstraints(ca=spec.is_authority, path_length=None), critical=True)


def _signed(builder: x509.CertificateBuilder, spec: CertificateSpec, signing: PrivateKey) -> x509.Certificate:
    if spec.names:
        builder = builder.add_extension(san_extension(spec.names), critical=False)
    return builder.sign(signing.native, signing.signature_hash())  # type: ignore[arg-type]


def _period(spec: CertificateSpec, started: datetime) -> tuple[datetime, datetime]:
    begin = started.astimezone(UTC).replace(microsecond=0)
    try:
        end = begin + spec.lifetime
    except OverflowError as error:
        raise CertificateError(f"{spec.name} would expire after the year 9999", remedy="configure a shorter validity period") from error
    if end <= begin:
        raise CertificateError(f"{spec.name} would expire before it is valid", remedy="configure a validity period above zero")
    return begin - BACKDATED, end


def _serial(random: Random) -> int:
    """Return 1 <= serial < 2^63."""
    return int.from_bytes(random.token_bytes(_SERIAL_BYTES)) >> 1 or 1


def _usage(usage: str) -> x509.ObjectIdentifier:
    """Return the identifier of a usage, given its name as in `certificates`, or in dotted form. Raises ValueError."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    known = (value for value in vars(ExtendedKeyUsageOID).values() if isinstance(value, x509.ObjectIdentifier))
    return next((one for one in known if extension_name(one) == usage), None) or x509.ObjectIdentifier(usage)


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_identifier(authority: x509.Certificate) -> bytes | None:
    """Return the CA's key identifier; some CAs that were created elsewhere have none."""
    from cryptography import x509

    try:
        return authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    except x509.ExtensionNotFound:
        return None


@contextmanager
def _making(name: str) -> Iterator[None]:
    """Name the certificate in errors about values that it cannot contain, such as a name that is not ASCII."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise CertificateError(
            f"{name} cannot be issued", detail=str(error), remedy="correct the node name, the certificate SANs or the DNS domain"
        ) from error
