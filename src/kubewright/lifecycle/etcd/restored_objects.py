"""Objects that matter to a cluster whose data is restored: webhooks that may lock it, and Nodes that the data lacks or brings back.

Everything here is advice: it is not an error if the API server does not answer, because the restore may be meant to repair that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import APIError
from kubewright.base.events import Warned
from kubewright.kube.resources import NODE, named

if TYPE_CHECKING:
    from kubewright.base.events import Reporter
    from kubewright.kube.api import KubeAPI

_WEBHOOKS: Final = (named("MutatingWebhookConfiguration"), named("ValidatingWebhookConfiguration"))
_FAIL: Final = "Fail"
"""The default of failurePolicy (kube-apiserver v1.36: pkg/apis/admissionregistration/v1/defaults.go)."""


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
