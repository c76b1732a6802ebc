"""Certificates and keys as plain dictionaries without values that differ from run to run, for comparing and printing.

The structure is that of the reference data (kubeadm v1.36.2, `certificates.json`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kubewright.pki import certificates, keys
from kubewright.pki.certificates import AlternativeNames, Certificate
from kubewright.pki.encoding import pem
from kubewright.pki.keys import PrivateKey

if TYPE_CHECKING:
    from cryptography import x509

_CURVES: Final = {"ECDSA-P256": "secp256r1", "ECDSA-P384": "secp384r1", "ECDSA-P521": "secp521r1"}
_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
)


def of_certificate(certificate: Certificate, *, authorities: Mapping[str, Certificate] | None = None) -> dict[str, object]:
    """Summarise a certificate. `signed_by` is the name of the first of `authorities` whose key signed it, or None."""
    native = certificate.native
    return {
        "version": native.version.name,
        "subject": _attributes(certificate.subject),
        "issuer": _attributes(certificate.issuer),
        "serial_bits_max63": 1 <= certificate.serial < 1 << 63,
        "signature_algorithm": native.signature_algorithm_oid._name,
        "public_key": _public_key(certificate.key_kind),
        "validity_seconds": int(certificate.lifetime.total_seconds()),
        "extensions": [_extension(extension) for extension in native.extensions],
        "signed_by": next((name for name, one in (authorities or {}).items() if certificate.issued_by(one)), None),
    }


def of_key(text: bytes, *, source: str) -> dict[str, object]:
    """Summarise a private key file: PEM label, kind and size. Raises CertificateError."""
    label = next((block.label for block in pem.blocks(text, source=source) if block.private), "")
    return {"pem_type": label, "key": of_private_key(keys.load(text, source=source))}


def of_private_key(key: PrivateKey) -> dict[str, object]:
    """Summarise a private key: kind and size."""
    return _public_key(key.kind)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A certificate request as the X.509 library reads it, independently of our own reader."""

    subject: tuple[tuple[str, str], ...]
    names: AlternativeNames
    extensions: tuple[str, ...]
    key_kind: str
    public_key: bytes = field(repr=False)
    signature_valid: bool

    @property
    def common_name(self) -> str:
        """The subject's only common name."""
        (found,) = (value for name, value in self.subject if name == "commonName")
        return found

    @property
    def organizations(self) -> tuple[str, ...]:
        """The subject's organisations."""
        return tuple(value for name, value in self.subject if name == "organizationName")


def of_request(text: bytes) -> Request:
    """Read a request."""
    from cryptography import x509

    native = x509.load_pem_x509_csr(text)
    key = native.public_key()
    return Request(
        subject=tuple((certificates.extension_name(one.oid), str(one.value)) for one in native.subject),
        names=certificates.alternative_names(native.extensions),
        extensions=tuple(certificates.extension_name(extension.oid) for extension in native.extensions),
        key_kind=keys.kind_of(key),
        public_key=keys.public_der(key),
        signature_valid=native.is_signature_valid,
    )


def _public_key(kind: str) -> dict[str, object]:
    family, _, size = kind.partition("-")
    return {"type": "RSA", "bits": int(size), "exponent": 65537} if family == "RSA" else {"type": family, "curve": _CURVES.get(kind, size)}


def _attributes(pairs: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


def _extension(extension: x509.Extension[Any]) -> dict[str, object]:
    name = extension.oid._name
    summarise = _EXTENSIONS.get(name)
    value = summarise(extension.value) if summarise else {"value": None}
    return {"name": name, "critical": extension.critical, **value}


def _key_usage(value: Any) -> dict[str, object]:
    return {"value": [usage for usage in _USAGES if getattr(value, usage)]}


def _names(value: x509.SubjectAlternativeName) -> dict[str, object]:
    from cryptography import x509

    ips = [str(address) for address in value.get_values_for_type(x509.IPAddress)]
    return {"value": {"dns": value.get_values_for_type(x509.DNSName), "ip": ips}}


def _authority_identifier(value: x509.AuthorityKeyIdentifier) -> dict[str, object]:
    only = value.authority_cert_issuer is None and value.authority_cert_serial_number is None
    return {"value": "key identifier only" if only else "key identifier, issuer and serial number"}


_EXTENSIONS: Final[Mapping[str, Callable[[Any], dict[str, object]]]] = {
    "keyUsage": _key_usage,
    "extendedKeyUsage": lambda value: {"value": [usage._name for usage in value]},
    "basicConstraints": lambda value: {"value": {"ca": value.ca, "path_length": value.path_length}},
    "subjectKeyIdentifier": lambda value: {"value_bytes": len(value.digest)},
    "authorityKeyIdentifier": _authority_identifier,
    "subjectAltName": _names,
}
