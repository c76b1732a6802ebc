"""Renewal: a new key and validity period for a certificate, with everything else copied.

Source: kubeadm v1.36: phases/certs/renewal.

The old key is never read, so a lost key is no obstacle. If a run is killed between the two writes of a pair, the next
one renews again, because only the certificate is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm import features
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.durations import SECOND
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass
from kubewright.pki import certificates, issuing, keys, kubeconfigs, names
from kubewright.pki.certificates import Certificate
from kubewright.pki.ensure import IssuingSources
from kubewright.pki.keys import Algorithm, PrivateKey
from kubewright.pki.specs import CertificateSpec
from kubewright.pki.store import CERTIFICATE_MODE, KEY_MODE, KUBECONFIG_MODE, CertificateStore, LoadedAuthority

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import ClusterConfiguration


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The parts of a renewed certificate that the configuration determines; the rest is copied."""

    algorithm: Algorithm
    lifetime: timedelta

    @classmethod
    def of(cls, cluster: ClusterConfiguration) -> Terms:
        """Take the terms from a ClusterConfiguration."""
        period = timedelta(seconds=cluster.certificate_validity_period // SECOND)
        return cls(algorithm=Algorithm(features.key_algorithm(cluster)), lifetime=period)


def renew_pair(
    store: CertificateStore, base: str, authority: LoadedAuthority, *, terms: Terms, sources: IssuingSources, same_key: bool = False
) -> tuple[Change, ...]:
    """Renew `base`.crt and `base`.key, and return what was written.

    With `same_key`, the key is kept if it belongs to the certificate, so that a server that reads both files again never
    finds two that do not match. Raises CertificateError for a certificate that is missing, unreadable or cannot be signed
    here.
    """
    name = f"{base}.crt"
    text = store.read(name)
    if text is None:
        raise CertificateError(f"{name} is missing", remedy=f"create it with `init phase certs`, or restore {name} from a copy")
    found = certificates.first(text, source=name)
    present = _present_key(store, base, found) if same_key else None
    key, made = _issue(found, name, authority, terms, sources, key=present)
    written = () if present is not None else (store.write(f"{base}.key", key.pem(), mode=KEY_MODE),)
    return (*written, store.write(name, made, mode=CERTIFICATE_MODE))


def _present_key(store: CertificateStore, base: str, found: Certificate) -> PrivateKey | None:
    """Return the key of a certificate; None if it is missing, cannot be used, or belongs to another one."""
    text = store.read(f"{base}.key")
    with suppress(CertificateError):
        key = keys.load(text, source=f"{base}.key") if text is not None else None
        return key if key is not None and certificates.fits(found, key) else None
    return None


def renew_kubeconfig(files: CertificateStore, file: str, authority: LoadedAuthority, *, terms: Terms, sources: IssuingSources) -> Change:
    """Renew the client certificate inside a kubeconfig, and put the whole CA file into it; its other entries stay.

    kubeadm embeds only the first certificate of ca.crt, which breaks the component's trust in the middle of a change of
    CA.
    Raises CertificateError for a file that is missing, cannot be used or embeds no client certificate.
    """
    text = files.read(file)
    if text is None:
        raise CertificateError(f"{file} is missing", remedy=f"create it with `init phase kubeconfig`, or restore {file} from a copy")
    key, made = _issue(client_certificate(text, source=file), file, authority, terms, sources)
    renewed = _with_credentials(yaml.load(text, source=file), ca_pem=authority.pem, certificate_pem=made, key=key)
    return files.write(file, yaml.dump(renewed).encode(), mode=KUBECONFIG_MODE)


def client_certificate(text: bytes, *, source: str) -> Certificate:
    """Return the client certificate that a kubeconfig embeds for its current context.

    Raises CertificateError, also if it has none.
    """
    user = kubeconfigs.resolve(kubeconfigs.load(text, source=source), source).user
    if not user.client_certificate_data:
        raise CertificateError(
            f"{source} embeds no client certificate",
            detail=f"it names the file {user.client_certificate}"
            if user.client_certificate
            else "its user has another kind of credentials",
            remedy=f"remove {source} and create it again with `init phase kubeconfig`",
        )
    return certificates.first(user.client_certificate_data, source=source)


def _issue(
    found: Certificate, name: str, authority: LoadedAuthority, terms: Terms, sources: IssuingSources, *, key: PrivateKey | None = None
) -> tuple[PrivateKey, bytes]:
    spec = spec_of(found, name=name, signer=authority.base, terms=terms)
    authority.signing_key(wanted=name)  # before a key is generated
    key = key or sources.keys.take(spec.algorithm)
    return key, issuing.signed(spec, key, authority, started=sources.start, random=sources.random)


def spec_of(found: Certificate, *, name: str, signer: str, terms: Terms) -> CertificateSpec:
    """Return the spec of the certificate that replaces one: its common name, organisations, DNS names, addresses and extended usages."""
    return CertificateSpec(
        name=name,
        base=name.removesuffix(".crt"),
        signer=signer,
        common_name=found.common_name,
        organizations=found.organizations,
        usages=found.usages,
        names=names.of(found.names.dns, found.names.ips),
        lifetime=terms.lifetime,
        algorithm=terms.algorithm,
    )


def _with_credentials(document: object, *, ca_pem: bytes, certificate_pem: bytes, key: PrivateKey) -> object:
    """Return a kubeconfig document, known to be usable, with new credentials for its current context."""
    whole = _map(document)
    context = _map(_entry(whole, "contexts", str(whole["current-context"]))["context"])
    credentials = EmbeddedCertificate(certificate_pem=certificate_pem, key_pem=key.pem())
    made = kubeconfig_document(server="", ca_pem=ca_pem, cluster_name="", user="", credentials=credentials)
    cluster, user = (_map(_entry(made, plural, "")[plural[:-1]]) for plural in ("clusters", "users"))
    cluster.pop("server")
    replaced = _replaced(whole, "clusters", str(context.get("cluster") or ""), cluster, drop=("certificate-authority",))
    return _replaced(replaced, "users", str(context.get("user") or ""), user, drop=("client-key",))


def _replaced(
    document: dict[str, object], plural: str, name: str, values: Mapping[str, object], *, drop: tuple[str, ...]
) -> dict[str, object]:
    entry = _entry(document, plural, name)
    kept = {key: value for key, value in _map(entry[plural[:-1]]).items() if key not in drop}
    renewed = {**entry, plural[:-1]: {**kept, **values}}
    return {**document, plural: [renewed if one is entry else one for one in _list(document[plural])]}


def _entry(document: Mapping[str, object], plural: str, name: str) -> dict[str, object]:
    return next(_map(one) for one in _list(document[plural]) if (_map(one).get("name") or "") == name)


def _map(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
