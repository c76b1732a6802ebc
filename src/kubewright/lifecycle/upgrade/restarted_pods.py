"""Waits until the static pods of a control plane run as the kubelet wants them, after that was replaced.

A kubelet of another minor release starts all static pods again: it gives each a UID that is a hash of the Pod in the
form of its own Go types, which gain fields with each release (kubelet v1.36: pkg/kubelet/config/common.go,
applyDefaults). Its Node is Ready before that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import url
from kubewright.base import yaml
from kubewright.base.errors import APIError, HostError
from kubewright.base.records import replace
from kubewright.host.states import ContainerState
from kubewright.lifecycle.steps.detected_cluster import ETCD
from kubewright.lifecycle.steps.kubelet import FIX
from kubewright.lifecycle.upgrade.control_plane import proofs
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE, NAMESPACE
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.upgrade.context import UpgradeContext

_PORT: Final = 10250
_ANYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - addresses on which the kubelet may listen


def wait(ctx: UpgradeContext) -> Iterator[Step]:
    """Wait until each component runs in a container of its present pod, and is healthy.

    Raises ComponentFailed or WaitTimeout. A kubelet that does not serve its API is not asked for its pods.
    """
    present = [name for name in (ETCD, *CONTROL_PLANE) if ctx.host.state(ctx.host.layout.manifest(name)) is not None]
    kubelet = _kubelet(ctx)
    if kubelet is None:
        return
    within = ctx.timeouts.kubelet_health_check.seconds
    saying = "the kubelet to start its static pods"
    yield ctx.components.until(lambda: _fault(ctx, kubelet, present), saying=saying, blame=present, within=within, at_most=0.5, remedy=FIX)
    for name in present:
        yield proofs.wait(ctx, proofs.of(ctx, name), "")


def _kubelet(ctx: UpgradeContext) -> KubeAPI | None:
    """Return a client of this machine's kubelet, whose certificate is self-signed by default; None if it does not serve."""
    path = ctx.host.layout.kubelet_config
    found = yaml.load(ctx.host.read(path) or b"", source=str(path))
    settings = found if isinstance(found, dict) else {}
    if settings.get("enableServer") is False:
        return None
    address, port = str(settings.get("address") or ""), settings.get("port")
    server = url(ctx.addresses.loopback if address in _ANYWHERE else address, port if port and isinstance(port, int) else _PORT)
    return ctx.bound.connections.kube(replace(ctx.administrator, server=server, ca_pem=None, verify=False, tls_server_name=""))


def _fault(ctx: UpgradeContext, kubelet: KubeAPI, names: list[str]) -> str | None:
    """Return which component does not run in a container of its present pod; None also for a kubelet that refuses to say."""
    try:
        answer = kubelet.raw("GET", "/pods")
        if answer.status in (401, 403):
            return None
        pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in json.loads(answer.body)["items"]}
        containers = ctx.host.runtime.containers(namespace=NAMESPACE)
    except (APIError, HostError) as error:
        return str(error)
    except (ValueError, LookupError, TypeError):
        return "the kubelet does not list its pods yet"
    running = {(one.name, one.pod_uid) for one in containers if one.state is ContainerState.RUNNING}
    waits = [name for name in names if (name, pods.get(f"{name}-{ctx.node_name}")) not in running]
    return f"the kubelet starts {', '.join(waits)}" if waits else None
