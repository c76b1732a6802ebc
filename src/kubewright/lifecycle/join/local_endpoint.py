"""The kubelet of a control plane talks to the API server of its own machine (kubeadm: ControlPlaneKubeletLocalMode).

kubeadm has the kubelet ask that server for its certificate as well: it is not up then, and the kubelet waits for seconds between its
attempts. Here the kubelet asks the cluster that it was introduced to, and is pointed to its own machine once there is a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.events import Waited
from kubewright.host.desired import File, Service
from kubewright.lifecycle.steps.kubelet import SERVICE

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

TOPIC: Final = "kubelet-start"


def use(ctx: JoinContext) -> Iterable[Change | Waited]:
    """Put this machine's API server into kubelet.conf, and start the kubelet with it.

    The kubelet is stopped first: whoever is killed in between leaves one that does not run, which the next join sees and starts.
    """
    path = ctx.layout.kubeconfig("kubelet")
    content = ctx.host.read(path)
    moved = pointed(content, ctx.addresses.api_server) if content else None
    if moved is None:
        return
    ctx.say(TOPIC, "Starting the kubelet again, with the API server of this machine")
    runs = ctx.host.service(SERVICE) is not None
    if runs:
        yield ctx.host.ensure(Service(name=SERVICE, running=False))
    yield ctx.host.ensure(File(path=path, content=moved, mode=0o600))
    if runs:
        yield ctx.host.ensure(Service(name=SERVICE, running=True))


def pointed(kubeconfig: bytes, server: str) -> bytes | None:
    """Return a kubeconfig with another server and everything else as it was; None if that is its server already."""
    document: Any = yaml.load_one(kubeconfig, source="kubelet.conf").value
    clusters = [row["cluster"] for row in document.get("clusters") or ()]
    if all(cluster.get("server") == server for cluster in clusters):
        return None
    for cluster in clusters:
        cluster["server"] = server
    return yaml.dump(document).encode()
