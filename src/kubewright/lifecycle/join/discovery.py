"""Finds the cluster as the JoinConfiguration specifies: by token, by a file, or by a kubeconfig from a URL.

Source: kubeadm v1.36: discovery.

A machine that already belongs to the cluster needs none of these: a control plane has its admin.conf, and any node its
kubelet.conf with its certificate, even long after the token has expired.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.node_types import BootstrapTokenDiscovery
from kubewright.base.errors import HostError, KubewrightError, TrustError
from kubewright.base.events import Warned
from kubewright.base.messages import shown_url
from kubewright.discovery import file as by_file
from kubewright.discovery import token as by_token
from kubewright.host.seam import Host
from kubewright.http.proxies import Proxies
from kubewright.http.tls import SYSTEM_BUNDLES
from kubewright.kube.credentials import Access, BearerToken, ClientCertificate
from kubewright.kube.kubeconfigs import load_access
from kubewright.lifecycle import adoption
from kubewright.pki import certificates, pins
from kubewright.pki.pins import Pin
from kubewright.tokens import strings

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext


def find(ctx: JoinContext) -> Access:
    """Find the cluster and return access with the identity that requests the node's certificate.

    Raises TrustError for a cluster that cannot be trusted, WaitTimeout or APIError for one that does not answer.
    """
    discovery = ctx.join.discovery
    if discovery.bootstrap_token is not None:
        found = _by_token(ctx, discovery.bootstrap_token)
    else:
        found = _by_file(ctx, discovery.file.kube_config_path if discovery.file is not None else "")
    return found.as_identity(BearerToken(discovery.tls_bootstrap_token)) if discovery.tls_bootstrap_token else found


def known(ctx: JoinContext) -> Access | None:
    """Return a cluster machine's existing access, None for other machines.

    Raises TrustError for an administrator of another cluster.
    """
    admin = ctx.host.layout.kubeconfig("admin")
    if ctx.control_plane and ctx.host.state(admin) is not None:
        return _pinned(ctx, adoption.load_administrator(ctx.host, admin, now=ctx.clock.now()), source=str(admin))
    return node_access(ctx.host, now=ctx.clock.now()) if ctx.resumed else None


def _pinned(ctx: JoinContext, known: Access, *, source: str) -> Access:
    """Require that the cluster is the requested one, if its CA is pinned: the kubeconfig may be of an older cluster."""
    asked = ctx.join.discovery.bootstrap_token
    if asked is not None and asked.ca_cert_hashes and known.ca_pem is not None:
        wanted = [pins.Pin.parse(text) for text in asked.ca_cert_hashes]
        if not pins.matches(pins.of_bundle(known.ca_pem, source=source), wanted):
            raise TrustError(
                f"{source} belongs to another cluster than the one to join: its CA is not pinned",
                detail=f"pinned: {', '.join(map(str, wanted))}",
                remedy="reset this machine, or move the file away; then run the same command again",
            )
    return known


def _by_token(ctx: JoinContext, asked: BootstrapTokenDiscovery) -> Access:
    question = by_token.Question(
        server=by_token.server_url(asked.api_server_endpoint),
        token=strings.parse(asked.token),
        pins=[Pin.parse(text) for text in asked.ca_cert_hashes],
        within=ctx.join.timeouts.discovery.seconds,
    )
    return by_token.discover(question, connect=ctx.connect, waiter=ctx.waiter, clock=ctx.clock)


def _by_file(ctx: JoinContext, place: str) -> Access:
    access = (
        _fetched(place, within=ctx.join.timeouts.discovery.seconds)
        if by_file.is_url(place)
        else by_file.load(PurePosixPath(place), read=ctx.host.read)
    )
    found = by_file.refresh(
        access,
        connect=ctx.connect,
        clock=ctx.clock,
        reporter=ctx.reporter,
        within=ctx.join.timeouts.discovery.seconds,
        host_trust=_host_trust(ctx),
    )
    for warning in found.warnings:
        ctx.reporter.emit(Warned(text=warning))
    if by_file.anonymous(found.access) and not ctx.join.discovery.tls_bootstrap_token:
        raise TrustError(f"{shown_url(place)} contains no credentials", remedy="pass a token with --tls-bootstrap-token")
    return found.access


def _fetched(url: str, *, within: float) -> Access:
    from kubewright.http import tls
    from kubewright.http.sync import Downloads

    downloads = Downloads(tls.host_context(), proxies=Proxies.from_environment(os.environ))
    try:
        return by_file.fetch(url, downloads=downloads, within=within)
    finally:
        downloads.close()


def _host_trust(ctx: JoinContext) -> bytes | None:
    """Return the CA certificates that this machine trusts."""
    return next((content for path in SYSTEM_BUNDLES if (content := ctx.host.read(PurePosixPath(path)))), None)


def node_access(host: Host, *, now: datetime) -> Access | None:
    """Return this machine's access as its Node; None if it has no kubelet.conf that is currently usable."""
    try:
        return require_node_access(host, now=now)
    except KubewrightError:
        return None


def require_node_access(host: Host, *, now: datetime) -> Access:
    """Read kubelet.conf and the files that it names.

    Raises what reading raises, and HostError without a currently valid certificate.
    """
    path = host.layout.kubeconfig("kubelet")
    access = load_access(path, read=host.read)
    if not isinstance(access.identity, ClientCertificate):
        raise HostError(f"{path} contains no client certificate", remedy="remove it, and join again")
    if certificates.parse(access.identity.cert_pem, source=str(path))[0].not_after <= now:
        raise HostError(f"the client certificate of {path} has expired", remedy="remove it, and join again with a new token")
    return access
