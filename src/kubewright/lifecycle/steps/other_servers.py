"""The API servers of other control planes, one of which must be ready while that of this machine is stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kubewright.base.errors import HostError
from kubewright.kube.resources import POD
from kubewright.lifecycle.steps import health
from kubewright.lifecycle.steps.detected_cluster import API_SERVER
from kubewright.manifests.pods import NAMESPACE
from kubewright.manifests.static_pods import ENDPOINT

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI


def require_ready(api: KubeAPI, *, node: str, reach: Callable[[str], KubeAPI]) -> None:
    """Refuse to stop the API server of this machine if there are others and none of them is ready.

    `node` is the name of this machine's Node, `reach` returns a client of the API server at a URL. Raises HostError,
    and APIError.
    """
    others = dict(_others(api, node))
    if not others:
        return
    problems = []
    for name, server in others.items():
        reason = health.unready(reach(server))
        if reason is None:
            return
        problems.append(f"{name}: {reason}")
    raise HostError(
        "the API server of this machine is not stopped, because no other one is ready",
        detail="\n".join(problems),
        remedy="start another one; the Node of a machine that will not come back is removed with `kubectl delete node NAME`",
    )


def _others(api: KubeAPI, own: str) -> Iterator[tuple[str, str]]:
    """Yield the Nodes and URLs of other API servers, from their pods."""
    for pod in api.list(POD, NAMESPACE, label_selector=f"component={API_SERVER},tier=control-plane"):
        node, endpoint = str(pod["spec"].get("nodeName", "")), (pod["metadata"].get("annotations") or {}).get(ENDPOINT, "")
        if endpoint and node != own:
            yield node, f"https://{endpoint}"
