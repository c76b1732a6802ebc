"""Kubeconfigs with client certificates: keep valid ones, create missing ones.

Source: kubeadm v1.36: phases/kubeconfig.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document, require_usable
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.errors import CertificateError, CertificateMismatch, DocumentError, ValidationError
from kubewright.base.messages import shown_url
from kubewright.pki import issuing, table
from kubewright.pki.certificates import Pair, expiry, invalid, pair_of, parse
from kubewright.pki.ensure import IssuingSources, authority_warning
from kubewright.pki.specs import KubeconfigSpec
from kubewright.pki.store import KUBECONFIG_MODE, CertificateStore, LoadedAuthority, load_authority, require_authority

if TYPE_CHECKING:
    from kubewright.apis.kubeconfig import Kubeconfig, Resolved


def ensure_kubeconfig(files: CertificateStore, certificates: CertificateStore, spec: KubeconfigSpec, sources: IssuingSources) -> Change:
    """Keep a kubeconfig that matches its spec.

    Create one, with a new key and client certificate, if there is none or an empty file.

    `files` is the Kubernetes directory, `certificates` that of the certificates. A file matches if it can be used, and
    its first CA is one of ca.crt; an embedded client certificate must match its key. Another server than wanted, and an
    expired certificate, are kept and reported in the reason (`warnings` are about them). Raises CertificateMismatch with the first difference, CertificateError for a file that
    cannot be read, or created without the CA's key.
    """
    authority = require_authority(certificates, spec.certificate.signer, wanted=spec.file)
    found = files.read(spec.file)
    if not found:  # empty: created by a static pod's volume (hostPath, FileOrCreate) after the file had been lost
        pair = issue(spec, authority, sources)
        files.write(spec.file, yaml.dump(document(spec, authority, pair)).encode(), mode=KUBECONFIG_MODE)
        until = expiry(pair.leaf, sources.clock.now())
        return Change(target=f"kubeconfig {spec.file}", action=Action.CREATE, reason=f"made, {until}")
    return Change(target=f"kubeconfig {spec.file}", action=Action.NONE, reason=_keep(spec, found, authority, sources))


def issue(spec: KubeconfigSpec, authority: LoadedAuthority, sources: IssuingSources) -> Pair:
    """Issue the key and the certificate.

    Its validity begins with the CA's, as in kubeadm. Raises CertificateError without the CA's key.
    """
    authority.signing_key(wanted=spec.file)
    key = sources.keys.take(spec.certificate.algorithm)
    begin = authority.certificate.not_before
    text = issuing.signed(spec.certificate, key, authority, started=sources.start, random=sources.random, not_before=begin)
    return Pair(certificates=tuple(parse(text, source=spec.file)), key=key)


def document(spec: KubeconfigSpec, authority: LoadedAuthority, pair: Pair) -> dict[str, object]:
    """Return the document, which embeds the whole CA file."""
    return kubeconfig_document(
        server=spec.server,
        ca_pem=authority.pem,
        cluster_name=spec.cluster_name,
        user=spec.certificate.common_name,
        credentials=EmbeddedCertificate(certificate_pem=pair.certificate_pem(), key_pem=pair.key.pem()),
    )


def load(text: bytes, *, source: str) -> Kubeconfig:
    """Parse a kubeconfig file. Raises CertificateError, naming `source`, for anything else."""
    from kubewright.apis.kubeconfig import parse

    try:
        return parse(yaml.load_one(text, source=source))
    except (DocumentError, ValidationError) as error:
        why = error.detail if isinstance(error, ValidationError) else str(error)
        raise CertificateError(f"{source} cannot be read", detail=why, remedy=_again(source)) from error


def warnings(spec: KubeconfigSpec, text: bytes, now: datetime) -> list[str]:
    """Return the warnings about a file that `ensure_kubeconfig` has kept (kubeadm v1.36 has the first one: phases/kubeconfig/kubeconfig.go)."""
    resolved = resolve(load(text, source=spec.file), spec.file)
    pair = _pair(spec, resolved)
    problem = invalid(pair.leaf, now) if pair else ""
    found = [_other_server(spec, resolved), f"its client certificate is not valid now ({problem})" if problem else ""]
    return [f"{spec.file}: {one}: {_again('it')}" for one in found if one]


def signer_warnings(certificates: CertificateStore, now: datetime) -> list[str]:
    """Return the warning about a CA for kubeconfigs that is not valid now (kubeadm v1.36: phases/kubeconfig/kubeconfig.go).

    A missing CA is not reported here: creating the kubeconfig fails.
    """
    signer = load_authority(certificates, table.authority("ca").base)
    warning = authority_warning(signer, now) if signer is not None else ""
    return [warning] if warning else []


def _keep(spec: KubeconfigSpec, text: bytes, authority: LoadedAuthority, sources: IssuingSources) -> str:
    """Require that a file may be kept, and return the text to report about it."""
    resolved = resolve(load(text, source=spec.file), spec.file)
    _require_authority(spec.file, resolved, authority)
    pair = _pair(spec, resolved)
    said = ["existing", _other_server(spec, resolved), expiry(pair.leaf, sources.clock.now()) if pair else ""]
    return ", ".join(one for one in said if one)


def _other_server(spec: KubeconfigSpec, resolved: Resolved) -> str:
    server = resolved.cluster.server
    return "" if server == spec.server else f"its server is {shown_url(server)} and would be {shown_url(spec.server)}"


def _pair(spec: KubeconfigSpec, resolved: Resolved) -> Pair | None:
    """Return the embedded client certificate and key, None if there are none. Raises CertificateMismatch if they do not match."""
    user = resolved.user
    if not user.client_certificate_data or not user.client_key_data:
        return None
    return pair_of(user.client_certificate_data, user.client_key_data, source=spec.file)


def resolve(kubeconfig: Kubeconfig, source: str) -> Resolved:
    """Return the entries of the current context. Raises CertificateMismatch, naming `source`, if it cannot be used."""
    try:
        return require_usable(kubeconfig)
    except ValidationError as error:
        raise CertificateMismatch(f"{source} cannot be used", detail=error.detail, remedy=_again(source)) from error


def _require_authority(source: str, resolved: Resolved, authority: LoadedAuthority) -> None:
    """Require that the first CA of the file is in ca.crt: the file may be older than a bundle for a change of CA."""
    embedded = resolved.cluster.certificate_authority_data
    if not embedded:
        raise CertificateMismatch(f"{source} contains no CA certificate", detail="it has no CA data", remedy=_again(source))
    first = parse(embedded, source=f"the CA data of {source}")[0]
    if first.der not in [certificate.der for certificate in authority.bundle]:
        raise CertificateMismatch(
            f"{source} trusts another CA than {authority.base}.crt",
            detail=f"it trusts the {first.describe()}",
            remedy=_again(source),
        )


def _again(source: str) -> str:
    return f"remove {source} to have it created again, or restore it from a copy"
