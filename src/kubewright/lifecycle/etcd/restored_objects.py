"""Objects that matter to a cluster whose data is restored.

These are webhooks that may lock it, Nodes that the data lacks or brings back, and the Leases which show that the
controllers and the kubelets work with the restored data.

Everything here is advice: it is not an error if the API server does not answer, because the restore may be meant to repair that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError, WaitTimeout
from kubewright.base.events import Warned
from kubewright.kube import lease_rules
from kubewright.kube.resources import LEASE, NODE, named
from kubewright.lifecycle.steps.detected_cluster import read_static_pod

if TYPE_CHECKING:
    from kubewright.base.events import Reporter, Waited
    from kubewright.base.wait import Waiter
    from kubewright.host.seam import Host
    from kubewright.kube.api import KubeAPI

_WEBHOOKS: Final = (named("MutatingWebhookConfiguration"), named("ValidatingWebhookConfiguration"))
_FAIL: Final = "Fail"
"""The default of failurePolicy (kube-apiserver v1.36: pkg/apis/admissionregistration/v1/defaults.go)."""

_CONTROLLERS: Final = ("kube-controller-manager", "kube-scheduler")
_NODE_LEASES: Final = "kube-node-lease"
RENEWED_WITHIN: Final = 60.0
"""Seconds for the leases: a kubelet renews its own every 10, and controllers wait 15 for that of their predecessors."""
Leases = Mapping[str, tuple[str, str]]
"""The name and the namespace of a lease, by what has to renew it."""


def warn_of_webhooks(api: KubeAPI, *, reporter: Reporter) -> None:
    """Warn of the webhooks without which the API server refuses requests."""
    found: list[str] = []
    with suppress(APIError):
        found = list(_strict_webhooks(api))
    if found:
        text = (
            "the API server refuses requests that match one of these webhooks (failurePolicy Fail) while the webhook does not answer, and"
            " the pods that serve it may not run after the restore; if one of them blocks the cluster, delete its configuration: "
        )
        reporter.emit(Warned(text=text + ", ".join(found)))


def _strict_webhooks(api: KubeAPI) -> Iterator[str]:
    for resource in _WEBHOOKS:
        for body in api.list(resource):
            names = [hook.get("name", "") for hook in body.get("webhooks") or () if hook.get("failurePolicy", _FAIL) == _FAIL]
            if names:
                yield f"{resource.singular}/{body['metadata']['name']} ({', '.join(names)})"


def nodes(api: KubeAPI | None) -> frozenset[str] | None:
    """Return the names of all Nodes; None if they are unknown."""
    try:
        return None if api is None else frozenset(node["metadata"]["name"] for node in api.list(NODE))
    except APIError:
        return None


def differences(before: frozenset[str] | None, after: frozenset[str] | None, *, own: str) -> Iterator[str]:
    """Yield what has to be done about Nodes that a restore has removed or brought back.

    `own` is this machine, whose kubelet is restarted.
    """
    if before is None or after is None:
        return
    if lost := sorted(before - after - {own}):
        yield f"The restored data lacks the Nodes {', '.join(lost)}: restart their kubelets, which register them again"
    if back := sorted(after - before):
        yield f"The Nodes {', '.join(back)} are back: delete those whose machines are gone (`kubectl delete node`)"


def leases(host: Host, nodes: frozenset[str]) -> Leases:
    """Return the leases of the controllers on this machine, and of these Nodes."""
    pods = {name: read_static_pod(host, host.layout.manifest(name)) for name in _CONTROLLERS}
    elected = {name: lease for name, pod in pods.items() if pod is not None and (lease := pod.leader_lease(name)) is not None}
    return {**elected, **{f"Node {name}": (name, _NODE_LEASES) for name in sorted(nodes)}}


def wait_for_leases(api: KubeAPI, wanted: Leases, *, since: datetime, waiter: Waiter, reporter: Reporter) -> Iterator[Waited]:
    """Wait until these leases have been renewed since a time, which shows that what holds them works with the restored data.

    The ones that were not renewed in time are a warning: machines may be gone, or stopped on purpose.
    """
    try:
        yield waiter.until(
            lambda: _not_renewed(api, wanted, since.timestamp()),
            within=RENEWED_WITHIN,
            saying="the controllers and the kubelets to renew their leases",
            every=0.5,
            at_most=2.0,
        )
    except WaitTimeout as error:
        text = "not everything works with the restored data yet: see the logs of controllers, and start the kubelets of Nodes or delete these Nodes"
        reporter.emit(Warned(text=f"{text} ({error})"))


def _not_renewed(api: KubeAPI, wanted: Leases, since: float) -> str | None:
    try:
        found = {
            (one["metadata"]["name"], space): one for space in {space for _, space in wanted.values()} for one in api.list(LEASE, space)
        }
    except APIError as error:
        return str(error)
    specs = {what: found.get(lease, {}).get("spec") or {} for what, lease in wanted.items()}
    late = [what for what, spec in specs.items() if lease_rules.moment(spec, "renewTime") <= since]
    return f"not renewed since: {', '.join(late)}" if late else None
