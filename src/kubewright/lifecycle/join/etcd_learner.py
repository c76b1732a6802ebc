"""A new etcd member copies the data of its cluster in a temporary pod, before the permanent one starts.

An etcd that starts without data first publishes its name to the cluster, and serves no clients until it sees that this
succeeded. The leader sends it all data at the same moment, including the name, so it never sees that, and retries only
after its request timed out: the API server waits for seven seconds (etcd v3.6: EtcdServer.publishV3). Started again,
with data, it serves at once. A pod of another name makes this a start and not a restart, which would count as one and
may be delayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import APIError, HostError
from kubewright.base.events import Waited
from kubewright.etcd.api import by_peer_url
from kubewright.host.desired import Directory, File
from kubewright.host.states import ContainerState
from kubewright.lifecycle.join import peers
from kubewright.lifecycle.stacked_etcd import QUORUM_REMEDY, client_url, peer_url
from kubewright.lifecycle.steps import static_pods, stopping
from kubewright.lifecycle.steps.kubelet import with_server
from kubewright.lifecycle.steps.stopping import StoppingPods

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

NAME: Final = "etcd-learner"
_GRACE: Final = 2
"""The grace period in seconds: it serves no clients, and its data is already written."""
_SNAPSHOT: Final = 1.5
"""Seconds after which a member that the others know will not get a snapshot any more: the leader had the whole log for it."""
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def possible(ctx: JoinContext) -> bool:
    """Return whether the kubelet would stop a pod whose manifest is removed.

    A kubelet stops no static pod before it has a response from an API server. If it uses the server of its own machine,
    it has none until etcd is up.
    """
    for name in ("kubelet", "bootstrap-kubelet"):
        content = ctx.host.read(ctx.layout.kubeconfig(name))
        if content:
            return with_server(content, ctx.addresses.api_server) is not None
    return True


def learn(ctx: JoinContext, pod: Mapping[str, Any]) -> Iterable[Change | Waited]:
    """Run etcd until it has the data of the cluster, and stop it.

    `pod` is the permanent one; this pod leaves only the data. Raises WaitTimeout, early if the other members do not
    reach this machine.
    """
    path = ctx.layout.manifest(NAME)
    ctx.host.ensure(Directory(path=path.parent, mode=static_pods.PRIVATE))
    ctx.host.ensure(File(path=path, content=yaml.dump(_as_learner(pod)).encode(), mode=static_pods.MANIFEST_MODE))
    yield ctx.components.until(
        _Learned(ctx), saying="the new etcd member to receive the data", blame=(NAME,), within=_patience(ctx), remedy=QUORUM_REMEDY
    )
    yield from end(ctx)


def end(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Stop the temporary pod, also one that a killed run left."""
    if ctx.host.remove(ctx.layout.manifest(NAME)):
        yield from wait_until_gone(ctx, pods=(NAME,))


def serving(ctx: JoinContext) -> Waited:
    """Wait until the permanent etcd of this machine serves clients and follows a leader, not the temporary one of a killed run."""
    endpoint = client_url(ctx.addresses)
    return ctx.components.until(
        lambda: _still_learns(ctx) or ctx.etcd.status(endpoint).reason or None,
        saying="the new etcd member to serve",
        blame=("etcd",),
        within=_patience(ctx),
        remedy=QUORUM_REMEDY,
    )


def _still_learns(ctx: JoinContext) -> str:
    """Return why the etcd that serves may be the temporary one of an earlier run; '' if it is not.

    A kubelet that is just starting may start this pod although its manifest was removed in the meantime. The pod serves,
    because it has data, until the kubelet stops it.
    """
    if not ctx.resumed:
        return ""
    try:
        found = ctx.host.runtime.containers(namespace="kube-system")
    except HostError as error:
        return str(error)
    runs = any(one.name == NAME and one.state is ContainerState.RUNNING for one in found)
    return "the temporary etcd of an earlier run is still running" if runs else ""


def _patience(ctx: JoinContext) -> float:
    return ctx.configuration.init.timeouts.etcd_api_call.seconds


class _Learned:
    """Whether the data of the cluster has been copied.

    The new member itself is not queried, because it lets clients wait.
    """

    def __init__(self, ctx: JoinContext) -> None:
        self._ctx = ctx
        self._known: float | None = None
        self._arrivals = peers.Arrivals(ctx)

    def __call__(self) -> str | None:
        if _has_data(self._ctx):
            return None
        self._arrivals.require()
        if self._known is None:
            return self._look_for_name()
        if self._ctx.clock.monotonic() - self._known < _SNAPSHOT:
            return "it is receiving its data"
        return None

    def _look_for_name(self) -> str:
        """Record whether the others know it by its name, which means that it has started."""
        try:
            own = by_peer_url(self._ctx.etcd.members(agreed=False), peer_url(self._ctx.addresses))
        except APIError as error:
            return str(error)
        if own is None or not own.name:
            return "it has not started yet"
        self._known = self._ctx.clock.monotonic()
        return "it is receiving its data"


def _has_data(ctx: JoinContext) -> bool:
    """Return whether a snapshot of the leader has arrived, and its database is in place."""
    names = [path.name for path in ctx.host.entries(ctx.layout.etcd_data / "member" / "snap")]
    return any(name.endswith(".snap") for name in names) and not any(name.endswith(".snap.db") for name in names)


def _as_learner(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return etcd's pod and container under another name, without probes, so that it is not mistaken for the permanent one."""
    containers = [{**{key: value for key, value in one.items() if key not in _PROBES}, "name": NAME} for one in pod["spec"]["containers"]]
    spec = {**pod["spec"], "containers": containers, "terminationGracePeriodSeconds": _GRACE}
    return {**pod, "metadata": {"name": NAME, "namespace": pod["metadata"]["namespace"]}, "spec": spec}


def wait_until_gone(ctx: JoinContext, *, pods: Iterable[str]) -> Iterable[Change | Waited]:
    """Wait until nothing uses this machine's peer port; `pods` are the static pods whose manifests were removed.

    Raises WaitTimeout.
    """
    held = (ctx.addresses.advertise, ctx.addresses.ports.etcd_peer)
    ended = StoppingPods(names=tuple(pods), node=ctx.node_name, held=(held,))
    return stopping.until_gone(ended, host=ctx.host, clock=ctx.clock, waiter=ctx.waiter, within=_patience(ctx))
