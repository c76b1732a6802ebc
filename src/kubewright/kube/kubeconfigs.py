"""From a kubeconfig to an `Access`, and which file it is.

What client-go does, and where we differ:

| case | client-go | here |
|---|---|---|
| data and a path given | the data counts | an error |
| relative path | relative to the file | the same |
| no certificate authority | the host's own trust | an error when connecting: a cluster's CA is always its own |
| exec, auth-provider | run, if compiled in | refused, unless the caller brings something that runs them |
| username and password | sent as basic authentication | refused: no API server takes it since 1.19 |
| token and tokenFile | the file's content, read again each minute | the file's content; daemons read it again (`daemons.identities`) |
| several files in $KUBECONFIG | merged | the first that exists, as kubeadm's `token` does |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from kubewright.apis.kubeconfig import Cluster, Kubeconfig, Resolved, User, parse, require_usable, resolve_discovery
from kubewright.base import yaml
from kubewright.base.errors import CertificateError, UsageError
from kubewright.base.masking import remember_token
from kubewright.http.proxies import parse_proxy
from kubewright.kube.credentials import Access, Anonymous, BearerToken, ClientCertificate, Identity, Impersonation

ReadFile = Callable[[PurePosixPath], bytes | None]
"""Returns a file's content, None if the file does not exist: `Host.read`."""
RunPlugin = Callable[[Mapping[str, object]], Identity]
"""Runs the `exec` program of a user, for callers that allow it."""


def default_paths(environment: Mapping[str, str], *, home: PurePosixPath | None) -> tuple[PurePosixPath, ...]:
    """Return the files to use if the user names none: those of $KUBECONFIG, or ~/.kube/config if it is not set."""
    named = environment.get("KUBECONFIG", "")
    if named:
        return tuple(dict.fromkeys(PurePosixPath(part) for part in named.split(":") if part))
    return (home / ".kube" / "config",) if home is not None else ()


def first_existing(candidates: tuple[PurePosixPath, ...], *, read: ReadFile) -> PurePosixPath:
    """Return the first of these files that exists. Raises CertificateError, naming them all, if none does."""
    for path in candidates:
        if read(path) is not None:
            return path
    raise CertificateError(
        "there is no kubeconfig",
        detail=f"looked for {', '.join(map(str, candidates)) or 'none'}",
        remedy="pass one with --kubeconfig, or set KUBECONFIG",
    )


def load_access(path: PurePosixPath, *, read: ReadFile, context: str = "", run_plugin: RunPlugin | None = None) -> Access:
    """Read a kubeconfig file of this machine, and the files that it refers to, into an access.

    Raises CertificateError for a missing file, DocumentError and ValidationError for an invalid one.
    """
    return access_from_kubeconfig(_parsed(path, read), context=context, read=read, base=path.parent, run_plugin=run_plugin)


def load_embedded_access(path: PurePosixPath, *, read: ReadFile) -> Access:
    """Read a kubeconfig file that others can write: it must neither refer to files of this machine nor disable verification.

    Otherwise its author could make us, who may be root, read any file as a token, and send it to any server. Raises
    CertificateError for a missing file, DocumentError and ValidationError for an invalid one.
    """
    found = _parsed(path, read)
    return access_of(resolve_discovery(found, untrusted=True), source=found.source)


def _parsed(path: PurePosixPath, read: ReadFile) -> Kubeconfig:
    content = read(path)
    if content is None:
        raise CertificateError(f"the kubeconfig {path} does not exist", remedy="check the path")
    return parse(yaml.load_one(content, source=str(path)))


def access_from_kubeconfig(
    kubeconfig: Kubeconfig,
    *,
    context: str = "",
    read: ReadFile | None = None,
    base: PurePosixPath | None = None,
    run_plugin: RunPlugin | None = None,
) -> Access:
    """Resolve a context, by default the current one.

    Without `read` the kubeconfig must not refer to files: it came over the network. Raises ValidationError for an
    unusable context, CertificateError for missing files, UsageError for refused settings.
    """
    chosen = require_usable(kubeconfig, context=context)
    return access_of(chosen, read=read, base=base, source=kubeconfig.source, run_plugin=run_plugin)


def access_of(
    chosen: Resolved,
    *,
    read: ReadFile | None = None,
    base: PurePosixPath | None = None,
    source: str = "",
    run_plugin: RunPlugin | None = None,
) -> Access:
    """Turn a resolved context into an access, like `access_from_kubeconfig`; `source` names the kubeconfig in errors."""
    files = _Files(read=read, base=base or PurePosixPath("/"), source=source or "the kubeconfig")
    cluster, user = chosen.cluster, chosen.user
    return Access(
        server=cluster.server,
        ca_pem=_ca(cluster, files),
        identity=_identity(user, files, run_plugin),
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
        proxy=parse_proxy(cluster.proxy_url, name="proxy-url") if cluster.proxy_url else None,
        impersonation=_impersonation(user),
    )


class _Files:
    """Reads the files that a kubeconfig refers to."""

    def __init__(self, *, read: ReadFile | None, base: PurePosixPath, source: str) -> None:
        self._read = read
        self._base = base
        self.source = source

    def content(self, data: bytes, path: str) -> bytes:
        """Return the data; if there is none, the file's content."""
        if data or not path:
            return data
        if self._read is None:
            raise UsageError(f"{self.source} may not name files", detail=path, remedy="embed the content (kubectl config view --flatten)")
        found = self._read(self._base / path)
        if found is None:
            raise CertificateError(f"{self.source} names a file that does not exist", detail=str(self._base / path), remedy="restore it")
        return found


def _ca(cluster: Cluster, files: _Files) -> bytes | None:
    return files.content(cluster.certificate_authority_data, cluster.certificate_authority) or None


def _identity(user: User, files: _Files, run_plugin: RunPlugin | None) -> Identity:
    """Return the user's identity. A client certificate takes precedence over a token, because TLS presents it first."""
    if user.exec is not None and run_plugin is not None:
        return run_plugin(user.exec)
    for refused, name in ((user.exec, "exec"), (user.auth_provider, "auth-provider"), (user.username or None, "username and password")):
        if refused is not None:
            raise UsageError(f"{files.source}: credentials by {name} are not supported", remedy="use a client certificate or a token")
    if user.has_certificate:
        return ClientCertificate(
            cert_pem=files.content(user.client_certificate_data, user.client_certificate),
            key_pem=files.content(user.client_key_data, user.client_key),
        )
    token = remember_token(files.content(b"", user.token_file).decode("utf-8", "replace").strip() or user.token)
    return BearerToken(_checked(token, files)) if token else Anonymous()


def _checked(token: str, files: _Files) -> str:
    """Refuse a token that could add other headers."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise CertificateError(f"{files.source}: the token holds characters that no token has", remedy="write the file again")
    return token


def _impersonation(user: User) -> Impersonation | None:
    if not user.impersonate:
        return None
    return Impersonation(user=user.impersonate, uid=user.impersonate_uid, groups=user.impersonate_groups)
