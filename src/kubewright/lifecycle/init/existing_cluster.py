"""The cluster to which a machine already belongs, for plans: it is only read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.machine import Addresses
from kubewright.base.errors import APIError, KubewrightError, NotFound
from kubewright.base.events import Warned
from kubewright.base.messages import shown_url
from kubewright.base.records import replace
from kubewright.base.wait import PollingWaiter
from kubewright.host.seam import Host
from kubewright.kube.answers import worth_retrying
from kubewright.kube.api import KubeAPI
from kubewright.kube.resources import named
from kubewright.lifecycle import adoption, machine_record
from kubewright.lifecycle.operation import Bound

PATIENCE: Final = 20.0
"""Seconds for which requests to a server that does not answer are retried: as long as a starting or busy one takes."""
_READ: Final = 3.0
"""Seconds that one read may take."""


def cluster(bound: Bound, addresses: Addresses, *, kubeconfig: str) -> KubeAPI | None:
    """Return a client for the cluster of this machine as `answering` does; None, with a warning, if it cannot be reached.

    Raises as that does for a machine that another tool created: its plan shows what `--adopt` would do, and that
    refuses.
    """
    try:
        return answering(bound, addresses, kubeconfig=kubeconfig)
    except KubewrightError as error:  # whatever is wrong with it, the plan continues without it
        if adoption.traces(bound.base):
            raise
        bound.reporter.emit(Warned(text=f"the cluster of this machine cannot be read, so the plan assumes that it is empty: {error}"))
        return None


def answering(bound: Bound, addresses: Addresses, *, kubeconfig: str) -> KubeAPI | None:
    """Return a client for the cluster of this machine once the server answers; None if the machine belongs to none.

    The default kubeconfig is used with this machine's own API server, so that a load balancer may be down (kubeadm
    v1.36: cmd/init.go). Raises WaitTimeout for a server that does not answer in time, and as
    `adoption.load_administrator` does.
    """
    path = PurePosixPath(kubeconfig) if kubeconfig else _kubeconfig(bound.base)
    if path is None:
        return None
    access = adoption.load_administrator(bound.base, path, now=bound.clock.now())
    if not kubeconfig:
        access = replace(access, server=addresses.api_server)
    client = bound.machine.client(access, timeout=_READ, proxied=False)
    with ExitStack() as unless_it_answers:
        unless_it_answers.callback(client.close)
        if _missing(client) is not None:
            PollingWaiter(clock=bound.clock, reporter=bound.connections.waits).until(
                lambda: _missing(client),
                within=PATIENCE,
                saying=f"the API server {shown_url(access.server)} to answer",
                remedy="check its log and the kubelet's (`journalctl -u kubelet`); once it answers, run the same command again",
            )
        unless_it_answers.pop_all()
    return client


def _kubeconfig(host: Host) -> PurePosixPath | None:
    """Return the kubeconfig to use, whether it exists or not; None for a machine without one that belongs to no cluster.

    A machine of ours that has lost its admin.conf gets a new one in the next run: until then, the other one is used.
    """
    places = [host.layout.kubeconfig(name) for name in ("admin", "super-admin")]
    foreign = bool(adoption.traces(host))
    found = next((path for path in (places[:1] if foreign else places) if host.state(path) is not None), None)
    record = machine_record.current(host)
    return found or (places[0] if foreign or (record is not None and record.finished) else None)


def _missing(client: KubeAPI) -> str | None:
    """Return which of a cluster's standard objects the server does not return yet.

    Raises APIError for permanent errors.
    """
    try:
        client.get(named("Namespace"), "kube-system")
    except NotFound:
        return "it has no namespace kube-system yet"
    except APIError as error:
        if not worth_retrying(error):
            raise
        return str(error)
    return None
