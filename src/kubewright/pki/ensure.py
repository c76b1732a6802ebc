"""Keep valid certificates and keys, and make missing ones. Existing files are never replaced here.

Keys are written before their certificates: if a run is killed between the two, the next one finds a key without a
certificate and uses that key. The other way round, a certificate without key, is an error: something was lost.
"""

from __future__ import annotations

from datetime import datetime

from kubewright.base.change import Action, Change
from kubewright.base.clock import Clock
from kubewright.base.errors import CertificateError, CertificateMismatch
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.pki import certificates, issuing, keys
from kubewright.pki.keys import FreshKeys, KeySource, PrivateKey
from kubewright.pki.specs import CertificateSpec, Found, KeyPairSpec, require_fit
from kubewright.pki.store import (
    CERTIFICATE_MODE,
    KEY_MODE,
    PUBLIC_KEY_MODE,
    CertificateStore,
    LoadedAuthority,
    is_external,
    load_authority,
    require_authority,
)


@dataclass(frozen=True)
class IssuingSources:
    """The dependencies of issuing: time, random numbers, keys.

    `started` is the start of all validity periods of a run; None: the time of each call. A run of kubeadm uses the
    start of its process, so that all its certificates expire in the same second.
    """

    clock: Clock
    random: Random
    keys: KeySource = field(default_factory=FreshKeys)
    started: datetime | None = None

    @property
    def start(self) -> datetime:
        """The time at which validity periods start."""
        return self.started or self.clock.now()


def ensure(store: CertificateStore, spec: CertificateSpec | KeyPairSpec, sources: IssuingSources) -> Change:
    """Keep or create one certificate or key pair. Raises as the two functions below do."""
    if isinstance(spec, KeyPairSpec):
        return ensure_key_pair(store, spec, sources)
    return ensure_certificate(store, spec, sources)


def ensure_certificate(store: CertificateStore, spec: CertificateSpec, sources: IssuingSources) -> Change:
    """Keep a certificate that matches its spec; create one, and its key, if there is none.

    A leaf matches if it chains to its CA, its key exists and belongs to it, and it has the subject, the usages and at
    least the names of the spec. A CA certificate matches if it is one; without a key it is external and signs nothing.
    The reason of the change says what was found and when it expires: an expired certificate is kept, because renewal is
    a separate command (`warning` is about it). Raises CertificateMismatch, naming the file and the first difference, and CertificateError for
    files that cannot be read or created.
    """
    if spec.is_authority:
        return _ensure_authority(store, spec, sources)
    text = store.read(spec.certificate_file)
    authority = require_authority(store, spec.signer, wanted=spec.name)
    if text is None:
        return _make_leaf(store, spec, authority, sources)
    found = Found(
        certificates=tuple(certificates.parse(text, source=spec.certificate_file)), key=_read_key(store, spec), authority=authority
    )
    require_fit(spec, found)
    return _kept(spec.name, f"existing, {certificates.expiry(found.leaf, sources.clock.now())}")


def warning(store: CertificateStore, spec: CertificateSpec, change: Change, now: datetime) -> str:
    """Return the warning about a certificate after `ensure` if it, or the CA that has just signed it, is not valid now; otherwise ''.

    Of a CA, the certificate that signs counts (kubeadm v1.36, app/phases/certs/certs.go, CheckCertificatePeriodValidity).
    """
    if spec.is_authority or change:
        return authority_warning(require_authority(store, spec.base if spec.is_authority else spec.signer, wanted=spec.name), now)
    file = spec.certificate_file
    problem = certificates.invalid(certificates.first(store.read(file) or b"", source=file), now)
    return f"{file} is not valid now ({problem}): `kubewright certs renew {spec.name}` replaces it" if problem else ""


def authority_warning(signer: LoadedAuthority, now: datetime) -> str:
    """Return the warning about a CA that is not valid now; otherwise ''."""
    problem = certificates.invalid(signer.certificate, now)
    return f"{signer.base}.crt is not valid now ({problem}): certificates that it has signed are refused" if problem else ""


def _ensure_authority(store: CertificateStore, spec: CertificateSpec, sources: IssuingSources) -> Change:
    found = load_authority(store, spec.base)
    if found is None:
        key, said = _key_for(store, spec, sources)
        made = issuing.self_signed(spec, key, started=sources.start, random=sources.random)
        return _put(store, spec, made, said, sources)
    return _kept(spec.name, f"existing{'' if found.key else ' keyless'}, {certificates.expiry(found.certificate, sources.clock.now())}")


def _make_leaf(store: CertificateStore, spec: CertificateSpec, authority: LoadedAuthority, sources: IssuingSources) -> Change:
    authority.signing_key(wanted=spec.name)  # before a key is generated and written
    key, said = _key_for(store, spec, sources)
    made = issuing.signed(spec, key, authority, started=sources.start, random=sources.random)
    return _put(store, spec, made, said, sources)


def _put(store: CertificateStore, spec: CertificateSpec, made: bytes, said: str, sources: IssuingSources) -> Change:
    store.write(spec.certificate_file, made, mode=CERTIFICATE_MODE)
    when = certificates.expiry(certificates.first(made, source=spec.certificate_file), sources.clock.now())
    return Change(target=f"certificate {spec.name}", action=Action.CREATE, reason=f"{said}, {when}")


def _key_for(store: CertificateStore, spec: CertificateSpec, sources: IssuingSources) -> tuple[PrivateKey, str]:
    """Return the existing key, or generate and write one; also return the text to report about it."""
    found = _read_key(store, spec)
    if found is not None:
        return found, "made for the existing key"
    key = sources.keys.take(spec.algorithm)
    store.write(spec.key_file, key.pem(), mode=KEY_MODE)
    return key, "made"


def _read_key(store: CertificateStore, spec: CertificateSpec | KeyPairSpec) -> PrivateKey | None:
    text = store.read(spec.key_file)
    return None if text is None else keys.load(text, source=spec.key_file)


def _kept(name: str, reason: str) -> Change:
    return Change(target=f"certificate {name}", action=Action.NONE, reason=reason)


def ensure_key_pair(store: CertificateStore, spec: KeyPairSpec, sources: IssuingSources) -> Change:
    """Keep the service account keys, or generate them; a missing public half is derived from the private one.

    Raises CertificateMismatch if the two halves do not match, CertificateError if one cannot be read, the private one
    alone is missing, or both are missing with an external CA, whose administrator must provide them (kubeadm v1.36).
    """
    target = f"key pair {spec.name}"
    private, public = _read_key(store, spec), store.read(spec.public_file)
    if private is None:
        _may_make(store, spec, public)
        private = sources.keys.take(spec.algorithm)
        store.write(spec.key_file, private.pem(), mode=KEY_MODE)
        store.write(spec.public_file, private.public_pem(), mode=PUBLIC_KEY_MODE)
        return Change(target=target, action=Action.CREATE, reason="made")
    if public is None:
        store.write(spec.public_file, private.public_pem(), mode=PUBLIC_KEY_MODE)
        return Change(target=target, action=Action.UPDATE, reason=f"{spec.public_file} made from the existing {spec.key_file}")
    _require_halves(spec, private, public)
    return Change(target=target, action=Action.NONE, reason="existing")


def _may_make(store: CertificateStore, spec: KeyPairSpec, public: bytes | None) -> None:
    if public is not None:
        raise CertificateError(
            f"{spec.key_file} is missing, although {spec.public_file} exists",
            remedy=f"put {spec.key_file} back, or remove {spec.public_file} to have both created again; this invalidates tokens signed with it",
        )
    if is_external(store):
        raise CertificateError(
            f"{spec.key_file} and {spec.public_file} are missing",
            detail="ca.key is not here, so the CA is external, and so are the service account keys",
            remedy=f"put {spec.key_file} and {spec.public_file} in place",
        )


def _require_halves(spec: KeyPairSpec, private: PrivateKey, public: bytes) -> None:
    """Require that the public file contains the private key's half: kube-apiserver accepts several during a key rotation."""
    if private.public_der() not in keys.load_public(public, source=spec.public_file):
        raise CertificateMismatch(
            f"{spec.key_file} and {spec.public_file} do not match",
            detail="the API server would refuse every token that kube-controller-manager issues",
            remedy=f"restore both from the same copy, or remove {spec.public_file} to have it created from {spec.key_file}",
        )
