"""Checks whether a kubeconfig can be used, and whether it can be trusted (client-go: tools/clientcmd/validation.go; kubeadm v1.36: discovery/file)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kubewright.apis.kubeconfig.types import Cluster, Kubeconfig, Resolved, User
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.messages import quoted, shown_url
from kubewright.base.records import dataclass

Problems = Iterator[tuple[str, FieldErrorType, str]]
"""Field below the entry, kind, reason."""


def require_usable(kubeconfig: Kubeconfig, *, context: str = "") -> Resolved:
    """Resolve a context, by default the current one, with everything that a client needs.

    Raises ValidationError with all problems of the context, its cluster and its user; other entries are not checked.
    """
    name = context or kubeconfig.current_context
    problems = list(_context_problems(kubeconfig, name))
    chosen = kubeconfig.contexts.get(name)
    cluster = kubeconfig.clusters.get(chosen.cluster) if chosen else None
    user = kubeconfig.users.get(chosen.user) if chosen else None
    if chosen and cluster is not None:
        problems += _errors_at(kubeconfig, _entry("clusters", kubeconfig.clusters, chosen.cluster) / "cluster", cluster_problems(cluster))
    if chosen and user is not None:
        problems += _errors_at(kubeconfig, _entry("users", kubeconfig.users, chosen.user) / "user", user_problems(user))
    if problems or chosen is None or cluster is None or user is None:
        raise _unusable(kubeconfig, problems)
    return Resolved(cluster=cluster, user=user, namespace=chosen.namespace)


def _context_problems(kubeconfig: Kubeconfig, name: str) -> Iterator[FieldError]:
    chosen = kubeconfig.contexts.get(name)
    if chosen is None:
        reason = f"the context {quoted(name)} does not exist" if name else "no context is chosen"
        yield _error(
            kubeconfig, FieldPath() / "current-context", FieldErrorType.REQUIRED if not name else FieldErrorType.INVALID, reason, name
        )
        return
    path = _entry("contexts", kubeconfig.contexts, name) / "context"
    for kind, named, known in (("cluster", chosen.cluster, kubeconfig.clusters), ("user", chosen.user, kubeconfig.users)):
        if named not in known:
            reason = f"there is no {kind} {quoted(named)}" if named else f"the context names no {kind}"
            yield _error(kubeconfig, path / kind, FieldErrorType.INVALID if named else FieldErrorType.REQUIRED, reason, named)


def cluster_problems(cluster: Cluster) -> Problems:
    """Yield the problems of a cluster. An empty certificate authority means the host's own CA certificates."""
    if not cluster.server:
        yield "server", FieldErrorType.REQUIRED, "a cluster needs the URL of its API server"
    if cluster.certificate_authority and cluster.certificate_authority_data:
        yield "certificate-authority", FieldErrorType.FORBIDDEN, "may not be given together with certificate-authority-data"
    if cluster.insecure_skip_tls_verify and (cluster.certificate_authority or cluster.certificate_authority_data):
        yield "insecure-skip-tls-verify", FieldErrorType.FORBIDDEN, "may not be given together with a certificate authority"


def user_problems(user: User) -> Problems:
    """Yield the problems of a user. No credentials are valid: anonymous."""
    if user.client_certificate and user.client_certificate_data:
        yield "client-certificate", FieldErrorType.FORBIDDEN, "may not be given together with client-certificate-data"
    if user.client_key and user.client_key_data:
        yield "client-key", FieldErrorType.FORBIDDEN, "may not be given together with client-key-data"
    if user.has_certificate and not (user.client_key or user.client_key_data):
        yield "client-key-data", FieldErrorType.REQUIRED, "a client certificate needs its key"
    if (user.token or user.token_file) and user.username:
        yield "username", FieldErrorType.FORBIDDEN, "may not be given together with a token"
    if user.exec is not None and user.auth_provider is not None:
        yield "auth-provider", FieldErrorType.FORBIDDEN, "may not be given together with exec"


@dataclass(frozen=True, kw_only=True)
class Forbidden:
    """A field that a kubeconfig from a URL must not contain."""

    field: str
    given: Callable[[User], object]
    reason: str


# The author of such a kubeconfig could otherwise make us run a program, or send a file of this machine to a server.
_NO_PATH: Final = "a kubeconfig that others wrote may not name files of this machine"
FORBIDDEN_USER: Final = (
    Forbidden(field="exec", given=lambda user: user.exec is not None, reason="a kubeconfig that others wrote may not run a program"),
    Forbidden(
        field="auth-provider",
        given=lambda user: user.auth_provider is not None,
        reason="a kubeconfig that others wrote may not run a plugin",
    ),
    Forbidden(field="tokenFile", given=lambda user: user.token_file, reason=_NO_PATH),
    Forbidden(field="client-certificate", given=lambda user: user.client_certificate, reason=_NO_PATH),
    Forbidden(field="client-key", given=lambda user: user.client_key, reason=_NO_PATH),
)


def resolve_discovery(kubeconfig: Kubeconfig, *, untrusted: bool) -> Resolved:
    """Find the cluster of a discovery file: that of the current context, else the unnamed one.

    `untrusted` means that it came from a URL, or that others can write it: then no entry may contain exec, tokenFile or
    paths, or disable verification. A file without contexts has no credentials: the user is empty. Raises
    ValidationError with all problems.
    """
    problems = list(_untrusted_problems(kubeconfig)) if untrusted else []
    if kubeconfig.current_context:
        resolved = require_usable(kubeconfig)
    else:
        resolved = Resolved(cluster=kubeconfig.clusters.get("", Cluster()), user=User())
    if not resolved.cluster.server.startswith("https://"):
        problems.append(_missing_server(kubeconfig, resolved.cluster))
    if problems:
        raise _unusable(kubeconfig, problems)
    return resolved


def _missing_server(kubeconfig: Kubeconfig, cluster: Cluster) -> FieldError:
    if cluster.server:
        return _error(
            kubeconfig, FieldPath() / "clusters", FieldErrorType.INVALID, "the server must be an https URL", shown_url(cluster.server)
        )
    reason = "there must be a current context, or one cluster with an empty name"
    return _error(kubeconfig, FieldPath() / "clusters", FieldErrorType.REQUIRED, reason, None)


def _untrusted_problems(kubeconfig: Kubeconfig) -> Iterator[FieldError]:
    for index, cluster in enumerate(kubeconfig.clusters.values()):
        path = (FieldPath() / "clusters")[index] / "cluster"
        if cluster.certificate_authority:
            yield _error(kubeconfig, path / "certificate-authority", FieldErrorType.FORBIDDEN, _NO_PATH, None)
        if cluster.insecure_skip_tls_verify:
            reason = "a kubeconfig that others wrote may not disable verification"
            yield _error(kubeconfig, path / "insecure-skip-tls-verify", FieldErrorType.FORBIDDEN, reason, None)
    for index, user in enumerate(kubeconfig.users.values()):
        path = (FieldPath() / "users")[index] / "user"
        yield from (
            _error(kubeconfig, path / rule.field, FieldErrorType.FORBIDDEN, rule.reason, None)
            for rule in FORBIDDEN_USER
            if rule.given(user)
        )


def _entry(plural: str, entries: Mapping[str, object], name: str) -> FieldPath:
    return (FieldPath() / plural)[list(entries).index(name)]


def _errors_at(kubeconfig: Kubeconfig, path: FieldPath, problems: Problems) -> list[FieldError]:
    return [_error(kubeconfig, path / name, kind, reason, None) for name, kind, reason in problems]


def _error(kubeconfig: Kubeconfig, path: FieldPath, kind: FieldErrorType, reason: str, value: object) -> FieldError:
    return FieldError(path=path, type=kind, reason=reason, value=value, source=kubeconfig.source)


def _unusable(kubeconfig: Kubeconfig, problems: list[FieldError]) -> ValidationError:
    name = kubeconfig.source or "the kubeconfig"
    return ValidationError(f"{name} cannot be used", problems, remedy="correct the file, or choose another one")
