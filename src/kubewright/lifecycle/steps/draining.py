"""Draining a node: no new pods, and existing ones are evicted, as `kubectl drain --force --delete-emptydir-data` does.

The kubelet's own identity is sufficient: it may change its Node and evict its own pods (NodeRestriction).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, NotFound, TooManyRequests
from kubewright.base.events import Waited
from kubewright.base.wait import Waiter
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import NODE, POD

_MIRROR: Final = "kubernetes.io/config.mirror"
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_LOOK, _LONGEST_LOOK = 0.2, 2.0


def evictable(pods: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pods to evict: neither static ones nor a DaemonSet's, which would return, nor those that have ended.

    A pod that is being deleted counts until it is gone, even if it has ended: its kubelet has to delete it, and may be
    stopped right after draining. Pure.
    """
    return [pod for pod in pods if not _stays(pod)]


def _stays(pod: Mapping[str, Any]) -> bool:
    metadata = core.metadata(pod)
    owners = metadata.get("ownerReferences") or ()
    daemon = any(owner.get("kind") == "DaemonSet" and owner.get("controller") for owner in owners)
    ended = (pod.get("status") or {}).get("phase") in _ENDED and not metadata.get("deletionTimestamp")
    return daemon or ended or _MIRROR in (metadata.get("annotations") or {})


def drain(api: KubeAPI, node: str, *, waiter: Waiter, within: float) -> Iterator[Change | Waited]:
    """Cordon a node, then evict its pods and wait until they are gone.

    Raises WaitTimeout, naming the remaining ones.
    """
    try:
        found = api.get(NODE, node)
    except NotFound:  # it has left before, and its pods are gone with it
        return
    if (found.get("spec") or {}).get("unschedulable"):
        yield Change(target=f"node {node}", action=Action.NONE)
    else:
        api.patch(NODE, node, {"spec": {"unschedulable": True}}, type="merge")
        yield Change(target=f"node {node}", action=Action.UPDATE, reason="no new pods")
    for pod in evictable(_pods(api, node)):
        yield Change(target=core.about_object({**pod, "kind": POD.kind}), action=Action.DELETE, reason="evicted")
    yield waiter.until(
        lambda: _evict_remaining(api, node),
        within=within,
        saying="the pods of this node to terminate",
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy="see what blocks them (kubectl get poddisruptionbudget -A); or continue without --drain",
    )


def _pods(api: KubeAPI, node: str) -> Sequence[Object]:
    return api.list(POD, field_selector=f"spec.nodeName={node}")


def _evict_remaining(api: KubeAPI, node: str) -> str | None:
    """Evict the remaining pods, and return which are left. Disruption budgets may delay evictions."""
    try:
        left = evictable(_pods(api, node))
    except APIError as error:
        return str(error)
    reasons = [_evicted(api, pod) for pod in left]
    return ", ".join(reasons) or None


def _evicted(api: KubeAPI, pod: Mapping[str, Any]) -> str:
    name, namespace = core.identity_of(pod)
    if core.metadata(pod).get("deletionTimestamp"):
        return f"{namespace}/{name} is terminating"
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": namespace}}
    try:
        api.create(body, resource=POD, subresource="eviction")
    except NotFound:
        return f"{namespace}/{name} has been deleted"
    except TooManyRequests as error:
        return f"{namespace}/{name} cannot be evicted yet: {error}"
    return f"{namespace}/{name} is evicted"
