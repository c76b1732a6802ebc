"""Whether a certificate that was found may stay: a table of checks, each of which finds the first difference from what is wanted.

kubeadm's `init` looks only at the chain (spec 5.2), so that a leaf without key or without a name fails much later, in a component's log.
Here all checks hold; `KUBEADM_INIT` names those that kubeadm makes, for the documentation and for whoever must accept what it accepts.
Expiry is no misfit: renewal decides about that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kubewright.base.errors import CertificateMismatch
from kubewright.base.quoting import quoted
from kubewright.base.records import dataclass
from kubewright.pki import bundles, names, pairs
from kubewright.pki.authorities import LoadedAuthority
from kubewright.pki.certificates import Certificate
from kubewright.pki.keys import PrivateKey
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.table import Usage


@dataclass(frozen=True, kw_only=True)
class Found:
    """What lies in the store for one leaf: certificates (the leaf first, then intermediates), key, authority."""

    certificates: tuple[Certificate, ...]
    key: PrivateKey | None
    authority: LoadedAuthority

    @property
    def leaf(self) -> Certificate:
        """The certificate itself."""
        return self.certificates[0]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing to look at. `differs` returns '' where all is well, else what is wrong, naming no secret."""

    name: str
    differs: Callable[[CertificateSpec, Found], str]
    remedy: str
    kubeadm: bool = False


def _chain(spec: CertificateSpec, found: Found) -> str:
    if bundles.chains_to(found.leaf, roots=found.authority.bundle, intermediates=found.certificates[1:]):
        return ""
    return f"it is not signed by {spec.signer}.crt"


def _key_there(spec: CertificateSpec, found: Found) -> str:
    return "" if found.key else f"{spec.key_file} is missing"


def _key_fits(spec: CertificateSpec, found: Found) -> str:
    return "" if found.key and pairs.fits(found.leaf, found.key) else f"{spec.key_file} is the key of another certificate"


def _subject(spec: CertificateSpec, found: Found) -> str:
    """Compare who a client is. Clients of a server look at its alternative names, never at its subject."""
    if Usage.CLIENT not in spec.usages:
        return ""
    if found.leaf.common_name != spec.common_name:
        return f"its common name is {quoted(found.leaf.common_name)} instead of {quoted(spec.common_name)}"
    lacking = [name for name in spec.organizations if name not in found.leaf.organizations]
    return f"it lacks the organisation {quoted(lacking[0])}" if lacking else ""


def _usages(spec: CertificateSpec, found: Found) -> str:
    """Compare extended usages; a certificate that names none is good for all (RFC 5280, section 4.2.1.12)."""
    if not found.leaf.usages or "anyExtendedKeyUsage" in found.leaf.usages:
        return ""
    lacking = [str(usage) for usage in spec.usages if usage not in found.leaf.usages]
    return f"it lacks the usage {lacking[0]}" if lacking else ""


def _names(spec: CertificateSpec, found: Found) -> str:
    lacking = names.missing(spec.names, dns=found.leaf.names.dns, ips=found.leaf.names.ips)
    return f"it is not for {', '.join(lacking)}" if lacking else ""


_AGAIN: Final = "remove {crt} and {key} to have both made again"

CHECKS: Final[tuple[Check, ...]] = (
    Check(name="chain", differs=_chain, remedy="put back the authority it was signed by, or " + _AGAIN, kubeadm=True),
    Check(name="key there", differs=_key_there, remedy="put {key} back, or remove {crt} to have both made again"),
    Check(name="key fits", differs=_key_fits, remedy="restore both from the same copy, or " + _AGAIN),
    Check(name="subject", differs=_subject, remedy=_AGAIN),
    Check(name="usages", differs=_usages, remedy=_AGAIN),
    Check(name="names", differs=_names, remedy=_AGAIN + ", or take the name out of the configuration"),
)

KUBEADM_INIT: Final = tuple(check for check in CHECKS if check.kubeadm)


def require(spec: CertificateSpec, found: Found, *, checks: tuple[Check, ...] = CHECKS) -> None:
    """Require that what was found may stay. Raises CertificateMismatch with the first difference."""
    for check in checks:
        difference = check.differs(spec, found)
        if difference:
            raise CertificateMismatch(
                f"{spec.certificate_file} is not the {spec.name} certificate that is wanted",
                detail=difference,
                remedy=check.remedy.format(crt=spec.certificate_file, key=spec.key_file),
            )
