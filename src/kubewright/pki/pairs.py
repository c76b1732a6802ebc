"""A certificate and its key together, as one PEM text (`kubelet-client-current.pem`) or as two."""

from __future__ import annotations

from kubewright.base.errors import CertificateMismatch
from kubewright.base.records import dataclass
from kubewright.pki import bundles, keys, pem
from kubewright.pki.certificates import Certificate
from kubewright.pki.keys import PrivateKey


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
    import hmac  # loads OpenSSL; looking whether there is a pair does without

    return hmac.compare_digest(certificate.public_key, key.public_der())


def parse(text: bytes, *, source: str) -> Pair:
    """Read PEM text with certificates and one key, in any order, and require that they fit.

    Raises CertificateError, naming `source`, for anything unreadable, and CertificateMismatch where the key is another one's.
    """
    return of(text, text, source=source)


def of(certificate_pem: bytes, key_pem: bytes, *, source: str) -> Pair:
    """Read certificates and key from two texts and require that they fit. Raises as `parse` does."""
    found = bundles.parse(certificate_pem, source=source)
    key = keys.load(key_pem, source=source)
    if not fits(found[0], key):
        raise CertificateMismatch(
            f"certificate and key of {source} do not fit",
            detail=f"the key is not that of the {found[0].describe()}",
            remedy=f"restore both from the same copy, or remove {source} to have both made again",
        )
    return Pair(certificates=tuple(found), key=key)


def join(certificate_pem: bytes, key_pem: bytes) -> bytes:
    """Write certificate and key as one text, certificates first. What either text holds beside its own blocks is dropped."""
    certificates = (block for block in pem.blocks(certificate_pem, source="the certificate") if block.label == pem.CERTIFICATE)
    private = (block for block in pem.blocks(key_pem, source="the key") if block.private)
    return pem.join(certificates) + pem.join(private)
