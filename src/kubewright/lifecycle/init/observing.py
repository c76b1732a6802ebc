"""The cluster that a machine already belongs to, for plans: what is there is read, nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import APIError, KubewrightError, NotFound
from kubewright.base.events import Warned
from kubewright.base.records import replace
from kubewright.kube.api import KubeAPI
from kubewright.kube.client import KubeClient
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import named
from kubewright.lifecycle.init.calls import Call

PATIENCE: Final = 3.0
"""Seconds that one read may take: a plan is not worth waiting for a server that is down."""

Observe = Callable[[Call], KubeAPI | None]
"""Gives the cluster of a machine, None if there is none or it does not answer."""


def cluster(call: Call) -> KubeAPI | None:
    """Return a client for the cluster of this machine, where its kubeconfig exists and the server answers; else None, with a warning.

    The default kubeconfig is used with this machine's own API server, so that a load balancer may be down (spec/kubeadm.md 2.2).
    """
    default = call.host.layout.kubeconfig("admin")
    path = PurePosixPath(call.request.kubeconfig) if call.request.kubeconfig else default
    client = None
    try:
        if call.host.read(path) is None:
            return None
        access = load_access(path, read=call.host.read)
        if path == default:
            access = replace(access, server=call.addresses.api_server)
        client = KubeClient(access, clock=call.means.clock, timeout=PATIENCE)
        _try(client)
    except KubewrightError as error:  # whatever is wrong with it: the plan goes on without
        if client is not None:
            client.close()
        call.means.reporter.emit(Warned(text=f"the cluster of this machine cannot be asked, so the plan takes it for empty: {error}"))
        return None
    return client


def _try(client: KubeClient) -> None:
    """Raise APIError unless the server answers with what every cluster has."""
    try:
        client.get(named("Namespace"), "kube-system")
    except NotFound as error:
        raise APIError("it has no namespace kube-system yet", remedy="ask again in a moment") from error
