"""The ConfigMap kube-public/cluster-info and its signatures, by which a machine with only a token decides whether to trust a cluster.

Source: kubeadm v1.36: phases/bootstraptoken/clusterinfo, discovery/token. A signature is a detached JSON Web
Signature (RFC 7515) with HMAC-SHA256, `b64url(header)..b64url(mac)`, unpadded; the key is the token's secret as bytes
(cluster-bootstrap: token/jws).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from kubewright.apis.kubeconfig import parse, resolve_discovery
from kubewright.apis.kubeconfig.documents import cluster_body
from kubewright.base import yaml
from kubewright.base.errors import CertificateError, DocumentError, TrustError, ValidationError
from kubewright.base.records import dataclass, field, replace
from kubewright.pki import certificates, pins
from kubewright.pki.pins import Pin
from kubewright.tokens.secrets import StoredToken
from kubewright.tokens.strings import BootstrapTokenString

NAMESPACE: Final = "kube-public"
NAME: Final = "cluster-info"
KUBECONFIG: Final = "kubeconfig"
SIGNATURE_PREFIX: Final = "jws-kubeconfig-"


def detached_signature(content: str, token: BootstrapTokenString) -> str:
    """Sign a text with a token."""
    header = _encode(json.dumps({"alg": "HS256", "kid": token.id}, separators=(",", ":")).encode())
    signed = f"{header}.{_encode(_bytes(content))}".encode()
    mac = hmac.new(token.secret.encode(), signed, hashlib.sha256).digest()
    return f"{header}..{_encode(mac)}"


def verify_signature(signature: str, content: str, token: BootstrapTokenString) -> bool:
    """Whether a signature is this token's over this text: it is computed again and compared as a whole, in constant time."""
    return hmac.compare_digest(detached_signature(content, token).encode(), _bytes(signature))


def _bytes(text: str) -> bytes:
    """Encode a text from a JSON answer, which may contain halves of surrogate pairs."""
    return text.encode("utf-8", "surrogatepass")


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


class MissingSignature(TrustError):
    """cluster-info has no signature by this token.

    It may come later: the controller signs soon after a token is created.
    """

    def __init__(self, *, server: str, token_id: str) -> None:
        super().__init__(
            f"{server} does not know the token {token_id}",
            detail=f"its {NAMESPACE}/{NAME} contains no {SIGNATURE_PREFIX}{token_id}: the token expired, was never created, or may not sign",
            remedy="create a new token on a control-plane node (kubewright token create --print-join-command) and use it here",
        )


class ForgedClusterInfo(TrustError):
    """The token's signature does not match the content: the server that answered does not know the token's secret."""

    def __init__(self, *, server: str, token_id: str) -> None:
        super().__init__(
            f"what {server} says about the cluster is not signed with the token {token_id}",
            detail="the signature does not fit the content: the token is mistyped, or another server answers in place of the cluster",
            remedy="compare token and address with the join command that a control-plane node prints",
        )


class ChangedClusterInfo(TrustError):
    """The content was different when it was read again over a verified connection."""

    def __init__(self, *, server: str) -> None:
        super().__init__(
            f"what {server} says about the cluster differs from its answer before its identity was verified",
            remedy="try again; if it happens twice, another server answers in place of the cluster",
        )


class UselessClusterInfo(TrustError):
    """The content is signed, but contains no cluster that can be joined."""

    def __init__(self, *, server: str, detail: str) -> None:
        super().__init__(
            f"what {server} says about the cluster cannot be used",
            detail=detail,
            remedy=f"write the ConfigMap {NAMESPACE}/{NAME} again on a control-plane node (init phase bootstrap-token)",
        )


def document(*, server: str, ca_pem: bytes) -> dict[str, object]:
    """Make the kubeconfig in cluster-info: one unnamed cluster with the whole CA bundle, and no user."""
    return {
        "apiVersion": "v1",
        "clusters": [{"cluster": cluster_body(server, ca_pem=ca_pem), "name": ""}],
        "contexts": None,
        "current-context": "",
        "kind": "Config",
        "users": None,
    }


def config_map(*, server: str, ca_pem: bytes, signatures: Mapping[str, str] | None = None) -> dict[str, object]:
    """Make the ConfigMap. kubeadm writes it without signatures; the controller adds them."""
    return {
        "apiVersion": "v1",
        "data": {KUBECONFIG: yaml.dump(document(server=server, ca_pem=ca_pem)), **(signatures or {})},
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
    }


def signatures(text: str, tokens: Iterable[StoredToken], *, now: datetime) -> dict[str, str]:
    """Return the signature entries for a text: one for each token that may sign now."""
    return {f"{SIGNATURE_PREFIX}{one.token.id}": detached_signature(text, one.token) for one in tokens if one.signs(now)}


def signed(found: Mapping[str, object], tokens: Iterable[StoredToken], *, now: datetime) -> dict[str, object] | None:
    """Return the ConfigMap with exactly the required signatures; None if they are correct already, or there is no text to sign."""
    data = _data(found)
    text = data.get(KUBECONFIG)
    if text is None:
        return None
    others = {key: value for key, value in data.items() if not key.startswith(SIGNATURE_PREFIX)}
    wanted = {**others, **signatures(text, tokens, now=now)}
    return None if wanted == data else {**found, "data": wanted}


@dataclass(frozen=True, kw_only=True)
class VerifiedCluster:
    """A cluster whose identity was proven. `server` is the URL that the cluster names; `text` is the signed text.

    `ca_pem` is its whole bundle, `pinned_pem` the certificates in it that pins confirm: none without pins. Until the
    same text has been read over a connection verified with `pinned_pem`, anyone who knows the token may have written
    the rest of the bundle.
    """

    server: str
    ca_pem: bytes = field(repr=False)
    text: str = field(repr=False)
    pinned_pem: bytes = field(repr=False, default=b"")

    @property
    def holds_unpinned(self) -> bool:
        """Whether the bundle contains certificates that no pin confirms."""
        return len({one.der for one in certificates.parse(self.ca_pem)}) > len(certificates.parse(self.pinned_pem))

    def require_same(self, found: Mapping[str, object], *, server: str) -> None:
        """Require that the ConfigMap, read again with `pinned_pem`, contains the same text. Raises ChangedClusterInfo."""
        if _data(found).get(KUBECONFIG) != self.text:
            raise ChangedClusterInfo(server=server)


def verify(
    found: Mapping[str, object], *, token: BootstrapTokenString, pinned: Sequence[Pin] = (), server: str, now: datetime
) -> VerifiedCluster:
    """Verify a ConfigMap that came over an unverified connection from `server`.

    Without pins the token's signature is the only proof. With pins, one certificate of the CA bundle must be pinned
    too; the caller then reads again with `pinned_pem` and calls `require_same`, which confirms the rest of the
    bundle. Raises MissingSignature (which may be temporary), ForgedClusterInfo, UselessClusterInfo, and
    pins.PinMismatch.
    """
    data = _data(found)
    text, signature = data.get(KUBECONFIG), data.get(f"{SIGNATURE_PREFIX}{token.id}")
    if text is None:
        raise UselessClusterInfo(server=server, detail=f"the ConfigMap has no key {KUBECONFIG}")
    if signature is None:
        raise MissingSignature(server=server, token_id=token.id)
    if not verify_signature(signature, text, token):
        raise ForgedClusterInfo(server=server, token_id=token.id)
    return _believed(text, tuple(pinned), server, now.replace(second=0, microsecond=0))


def described(found: Mapping[str, object], *, server: str) -> VerifiedCluster:
    """Read a ConfigMap that came over a verified connection. Raises UselessClusterInfo."""
    text = _data(found).get(KUBECONFIG)
    if text is None:
        raise UselessClusterInfo(server=server, detail=f"the ConfigMap has no key {KUBECONFIG}")
    return _read(text, server)


def is_signed(found: Mapping[str, object], *, by: str = "") -> bool:
    """Whether the token with this id has signed, or any token."""
    return any(name.startswith(f"{SIGNATURE_PREFIX}{by}") for name in _data(found))


def _data(found: Mapping[str, object]) -> dict[str, str]:
    data = found.get("data")
    entries = data.items() if isinstance(data, Mapping) else ()
    return {str(key): value for key, value in entries if isinstance(value, str)}


@functools.lru_cache(maxsize=8)
def _believed(text: str, pinned: tuple[Pin, ...], server: str, minute: datetime) -> VerifiedCluster:
    """Parse the signed text and compare the pins. Cached: all nodes of a fleet read the same text, and its certificates take a millisecond."""
    verified = _read(text, server)
    return replace(verified, pinned_pem=_pinned(verified, pinned, server, minute)) if pinned else verified


def _read(text: str, server: str) -> VerifiedCluster:
    try:
        cluster = resolve_discovery(parse(yaml.load(text), source=NAME), untrusted=True).cluster
    except (DocumentError, ValidationError) as error:
        why = error.detail if isinstance(error, ValidationError) else str(error)
        raise UselessClusterInfo(server=server, detail=why) from error
    if not cluster.certificate_authority_data:
        raise UselessClusterInfo(server=server, detail="it contains no CA certificate")
    return VerifiedCluster(server=cluster.server, ca_pem=cluster.certificate_authority_data, text=text)


def _pinned(verified: VerifiedCluster, pinned: Sequence[Pin], server: str, now: datetime) -> bytes:
    try:
        return pins.require(verified.ca_pem, pinned, server=server, now=now)
    except CertificateError as error:
        raise UselessClusterInfo(server=server, detail=str(error)) from error
