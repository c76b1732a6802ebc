"""Bootstrap tokens of a running cluster: creating, listing and deleting them, and using one to join.

Source: kubeadm v1.36: cmd/token.go, apis/output/v1alpha3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.apis.kubeconfig import BearerToken, kubeconfig_document
from kubewright.base.clock import Clock, rfc3339
from kubewright.base.durations import SECOND
from kubewright.base.errors import AlreadyExists, DocumentError, KubewrightError, NotFound, UsageError
from kubewright.base.messages import shown_url
from kubewright.base.plain_text import shell_word
from kubewright.base.records import dataclass, field, replace
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import SECRET
from kubewright.pki import pins
from kubewright.tokens import secrets, strings
from kubewright.tokens.secrets import StoredToken

API_VERSION: Final = "output.kubeadm.k8s.io/v1alpha3"
KIND: Final = "BootstrapToken"
BOOTSTRAP_USER: Final = "tls-bootstrap-token-user"
CLUSTER_NAME: Final = "kubernetes"


def create(api: KubeAPI, tokens: Sequence[BootstrapToken], *, clock: Clock) -> None:
    """Create the Secrets of new tokens.

    Raises AlreadyExists, before any is created, if an id is taken or given twice; UsageError for an invalid token.
    """
    bodies = [secrets.secret_object(token, clock=clock) for token in tokens]
    ids = [strings.parse(token.token).id for token in tokens]
    require_free(api, ids)
    for token_id, body in zip(ids, bodies, strict=True):
        try:
            api.create(body)
        except AlreadyExists as error:
            raise _taken(token_id) from error


def require_free(api: KubeAPI, ids: Sequence[str]) -> None:
    """Raise AlreadyExists for an id that a token of the cluster has, and for one that is given twice."""
    for token_id in ids:
        if ids.count(token_id) > 1 or _exists(api, token_id):
            raise _taken(token_id)


def _exists(api: KubeAPI, token_id: str) -> bool:
    try:
        api.get(SECRET, secrets.name_of(token_id), secrets.NAMESPACE)
    except NotFound:
        return False
    return True


def _taken(token_id: str) -> AlreadyExists:
    return AlreadyExists(
        f"a token with the id {token_id} exists already",
        code=409,
        reason="AlreadyExists",
        remedy=f"choose another one, or delete it first (kubewright token delete {token_id})",
    )


@dataclass(frozen=True, kw_only=True)
class Listing:
    """The tokens of a cluster in the order of their names, and problems with invalid Secrets."""

    tokens: Sequence[StoredToken]
    problems: Sequence[KubewrightError] = ()


def stored(api: KubeAPI) -> Listing:
    """Return every token of the cluster. Invalid Secrets are problems, not errors."""
    found, problems = [], []
    for secret in api.list(SECRET, secrets.NAMESPACE, field_selector=f"type={secrets.TYPE}"):
        try:
            found.append(_readable(secrets.parse_secret(secret)))
        except KubewrightError as error:  # Secrets are independent; an invalid one must not hide the others
            problems.append(error)
    return Listing(tokens=found, problems=problems)


def _readable(token: StoredToken) -> StoredToken:
    if token.expiration and token.expires is None:
        raise DocumentError(
            f"secret {secrets.NAMESPACE}/{secrets.name_of(token.token.id)}: its expiration is not a time",
            remedy=f"delete it: it cannot be used (kubewright token delete {token.token.id})",
        )
    return token


def as_map(token: StoredToken) -> dict[str, object]:
    """Return the form of kubeadm's output kind, keys in the order of its JSON, without empty ones.

    It contains the whole token.
    """
    expires = token.expires
    shown = {
        "description": token.description,
        "expires": "" if expires is None else rfc3339(expires),
        "usages": list(token.usages),
        "groups": list(token.groups),
    }
    return {"kind": KIND, "apiVersion": API_VERSION, "token": token.token.text, **{key: value for key, value in shown.items() if value}}


def delete(api: KubeAPI, token_id: str) -> None:
    """Delete a token by its id. Raises NotFound if there is none."""
    try:
        api.delete(SECRET, secrets.name_of(token_id), secrets.NAMESPACE)
    except NotFound as error:
        raise NotFound(
            f"no token has the id {token_id}", code=404, reason="NotFound", remedy="see those that exist: kubewright token list"
        ) from error


@dataclass(frozen=True, kw_only=True)
class ClusterInfo:
    """The address and identity of a cluster for joining machines: the URL of its API server and its CA bundle."""

    server: str
    ca_pem: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ControlPlane:
    """Join as a further control plane, with the key for the uploaded certificates if there is one."""

    certificate_key: str = field(default="", repr=False)


def join_command(door: ClusterInfo, token: str, *, control_plane: ControlPlane | None = None, node_name: str = "") -> str:
    """Return the command on one line, in the form that scripts extract (kubeadm v1.36: cmd/util/join.go).

    All certificates of the CA are pinned. It names `kubewright`; the command line replaces that by the program's name.
    The same words are valid for kubeadm. Each value is one word for a shell. Raises UsageError for a server that cannot
    be joined, and UnsafeText.
    """
    if not door.server.startswith("https://"):
        raise UsageError(
            f"machines cannot join over {shown_url(door.server)}", remedy="use a kubeconfig with the https address of the cluster"
        )
    server = shell_word(door.server.removeprefix("https://"), what="the server of the kubeconfig")
    hashes = "".join(f"--discovery-token-ca-cert-hash {pin} " for pin in pins.of_bundle(door.ca_pem, source="the kubeconfig's CA"))
    name = f"--node-name {shell_word(node_name, what='the name of the node')} " if node_name else ""
    command = f"kubewright join {server} --token {shell_word(token, what='the token')} {hashes}{name}"
    if control_plane is None:
        return command
    key = shell_word(control_plane.certificate_key, what="the certificate key") if control_plane.certificate_key else ""
    return f"{command}--control-plane {f'--certificate-key {key}' if key else ''}"


def bootstrap_kubeconfig(door: ClusterInfo, token: str) -> Mapping[str, object]:
    """Return the kubeconfig with which a kubelet starts: bootstrap-kubelet.conf of `join`."""
    return kubeconfig_document(
        server=door.server,
        ca_pem=door.ca_pem,
        cluster_name=CLUSTER_NAME,
        user=BOOTSTRAP_USER,
        credentials=BearerToken(token=token),
    )


def reused(configured: Sequence[BootstrapToken], api: KubeAPI, *, now: datetime) -> tuple[BootstrapToken, ...]:
    """Return configured tokens; a generated one is replaced by a token of an earlier run, so that repeated runs do not accumulate tokens."""
    if not any(token.made_up for token in configured):
        return tuple(configured)
    there = list(stored(api).tokens)
    chosen = []
    for token in configured:
        found = next((one for one in there if token.made_up and _can_replace(token, one, now=now)), None)
        if found is not None:
            there.remove(found)
            token = replace(token, token=found.token.text, expires=found.expiration, ttl=None)  # noqa: PLW2901 - the same, as it is stored
        chosen.append(token)
    return tuple(chosen)


def _can_replace(wanted: BootstrapToken, found: StoredToken, *, now: datetime) -> bool:
    """Return whether a stored token can replace a wanted one: the same permissions and purpose, and at least half of the lifetime left."""
    same = (wanted.description, set(wanted.usages), set(wanted.groups)) == (found.description, set(found.usages), set(found.groups))
    until = now + timedelta(seconds=wanted.ttl / SECOND) if wanted.ttl else None
    end = secrets.parse_moment(wanted.expires) if wanted.expires else until
    if end is None or found.expires is None:
        return same and end is found.expires
    return same and found.expires - now >= (end - now) / 2
