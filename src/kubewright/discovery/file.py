"""Finding a cluster with a kubeconfig, from a file of this machine or from an https URL (kubeadm v1.36: discovery/file, discovery/https).

A kubeconfig from a URL is under the control of its server: it must neither run a program nor refer to files of this
machine (`resolve_discovery`). kubeadm checks neither the status nor the size of the answer, and follows any redirect;
here an error page is reported as such, and size and redirects are limited.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.kubeconfig import Kubeconfig, parse, resolve_discovery
from kubewright.base import yaml
from kubewright.base.errors import APIError, CertificateError, Forbidden, TrustError
from kubewright.base.messages import shown_url
from kubewright.base.records import dataclass, replace
from kubewright.kube.answers import worth_retrying
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.credentials import Access, Anonymous
from kubewright.kube.kubeconfigs import ReadFile, access_of
from kubewright.kube.refusals import Patience
from kubewright.kube.resources import CONFIG_MAP
from kubewright.tokens import cluster_info

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Reporter
    from kubewright.http.sync import Downloads

MOST: Final = 1 << 20
"""The largest kubeconfig from a URL, in bytes."""


def load(path: PurePosixPath, *, read: ReadFile) -> Access:
    """Read a kubeconfig of this machine. Raises CertificateError if there is none, DocumentError and ValidationError for an invalid one."""
    content = read(path)
    if content is None:
        raise CertificateError(f"the discovery file {path} does not exist", remedy="check the path")
    return _access(parse(yaml.load_one(content, source=str(path))), read=read, base=path.parent)


def fetch(url: str, *, downloads: Downloads, within: float) -> Access:
    """Get a kubeconfig from a URL within `within` seconds.

    Raises APIError if the answer is not a kubeconfig, DocumentError and ValidationError for an invalid one.
    """
    with downloads.get(url, most=MOST, within=within) as answer:
        content = answer.read()
    if answer.status != 200:
        raise APIError(
            f"{shown_url(url)} answers {answer.status} where a kubeconfig should be",
            detail=content[:200].decode(errors="replace"),
            remedy="check the URL, and what the server's log says",
        )
    return _access(parse(yaml.load_one(content, source=shown_url(url))), read=None, base=PurePosixPath("/"))


def _access(found: Kubeconfig, *, read: ReadFile | None, base: PurePosixPath) -> Access:
    resolved = resolve_discovery(found, untrusted=read is None)
    return access_of(resolved, read=read, base=base, source=found.source)


@dataclass(frozen=True, kw_only=True)
class Refreshed:
    """The access of a discovery file, completed with the cluster's own information, and warnings for the user."""

    access: Access
    warnings: tuple[str, ...] = ()


def refresh(
    access: Access, *, connect: Callable[[Access], KubeAPI], clock: Clock, reporter: Reporter, within: float, host_trust: bytes | None
) -> Refreshed:
    """Read cluster-info with a file's access, for up to `within` seconds, to prove that the file leads to a cluster.

    A CA that the file lacks is taken from cluster-info; the connection is then verified with `host_trust`, the CAs
    that this machine trusts. If cluster-info may not be read, that is only a warning; credentials that a ready server
    does not know are refused soon. Raises APIError if cluster-info cannot be read, TrustError if no CA is known at
    the end.
    """
    asked = access if access.ca_pem is not None else replace(access, ca_pem=host_trust)
    nobody = replace(asked, identity=Anonymous(), impersonation=None)
    with ExitStack() as opened:

        def client(of: Access) -> KubeAPI:
            return opened.enter_context(closing(connect(of)))

        api = client(asked)
        patience = Patience(
            api=lambda: api, anonymous=lambda: client(nobody), clock=clock, reporter=reporter, within=within, passes=worth_retrying
        )
        found = patience.call(lambda: _read(api))
    if found is None:
        return _complete(access, ("cluster-info may not be read with the discovery file, so the file's content is used unchanged",))
    said = cluster_info.described(found, server=access.server)
    warnings = (
        ()
        if said.server == access.server
        else (f"the discovery file names {shown_url(access.server)}, and the cluster names {shown_url(said.server)}",)
    )
    return _complete(access if access.ca_pem is not None else replace(access, ca_pem=said.ca_pem), warnings)


def _read(client: KubeAPI) -> Object | None:
    """Return cluster-info, None if reading it is forbidden."""
    try:
        return client.get(CONFIG_MAP, cluster_info.NAME, cluster_info.NAMESPACE)
    except Forbidden:
        return None


def _complete(access: Access, warnings: tuple[str, ...]) -> Refreshed:
    if access.ca_pem is None:
        raise TrustError(
            f"there is no CA certificate for {shown_url(access.server)}",
            detail="the discovery file has none, and neither has cluster-info",
            remedy="put certificate-authority-data into the discovery file",
        )
    return Refreshed(access=access, warnings=warnings)


def is_url(path: str) -> bool:
    """Return whether a discovery file is given as a URL."""
    return path.lower().startswith("https://")


def anonymous(access: Access) -> bool:
    """Whether a file contains no credentials."""
    return isinstance(access.identity, Anonymous)
