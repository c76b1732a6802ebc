"""`reset` on a real machine, and the clients that it needs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from kubewright.base.errors import HostError
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.lifecycle.means import LOCK
from kubewright.lifecycle.reset import calls, checks
from kubewright.lifecycle.reset.calls import PATIENCE, Call, Outcome
from kubewright.lifecycle.reset.context import ResetContext, doing

if TYPE_CHECKING:
    from kubewright.etcd.api import Etcd
    from kubewright.kube.api import KubeAPI

PRIVATE = 0o700


def act(call: Call, *, lock_directory: PurePosixPath, ask: Callable[[str], str]) -> Outcome:
    """Reset this machine, or run the phases that were asked for: one kubewright at a time. `ask` is given a question, and returns the answer.

    Nobody is asked where the configuration says `force`, or where nothing is there.
    """
    call.host.ensure(Directory(path=lock_directory, mode=PRIVATE))
    with Lock(lock_directory / LOCK, doing="reset", clock=call.means.clock):
        call.remains.begin()
        return calls.run(
            call,
            call.host,
            remains=call.remains,
            voice=doing,
            examine=checks.asked(None if call.configuration.force else ask),
            connect=lambda: connect(call),
            reach_etcd=reach_etcd,
        )


def connect(call: Call) -> KubeAPI:
    """Make a client of the cluster: with the kubeconfig that was named, else the administrator's, else the kubelet's."""
    from kubewright.kube.client import KubeClient
    from kubewright.kube.kubeconfigs import load_access

    layout = call.remains.layout
    named = [PurePosixPath(call.request.kubeconfig)] if call.request.kubeconfig else []
    for path in named or [layout.kubeconfig("admin"), layout.kubeconfig("kubelet")]:
        if call.host.read(path) is not None or named:
            return KubeClient(load_access(path, read=call.host.read), clock=call.means.clock, timeout=PATIENCE)
    raise HostError("there is no kubeconfig to ask the cluster with", remedy="name one with --kubeconfig")


def reach_etcd(ctx: ResetContext, endpoints: tuple[str, ...]) -> Etcd:
    """Make a client of etcd: at the endpoints that the machine tells, else at those that the cluster tells."""
    from kubewright.lifecycle import etcd_access

    urls = list(endpoints) or etcd_access.endpoints(ctx.connect())
    return etcd_access.client(urls, pki=ctx.remains.layout.pki, files=ctx.host, clock=ctx.clock)
