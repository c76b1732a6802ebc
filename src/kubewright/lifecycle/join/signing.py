"""Whether anybody signs certificates at the moment.

A kubelet that waits for its certificate goes on as nobody, is refused its Node, and asks for it again after pauses that double: in a cluster
whose kube-controller-manager is just starting, it comes to know of its Node seconds after it has its certificate. So it is started when the
requests that others made are answered.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from kubewright.base.errors import APIError, WaitTimeout
from kubewright.base.events import Waited
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.lifecycle.steps.waiting import LOOK

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

_SIGNER: Final = "kubernetes.io/kube-apiserver-client-kubelet"
_LOOKED_AT: Final = 50
"""Requests that are read: in a large cluster there are thousands, and where nobody signs, any of them will do."""

_SLOW, _OLD = 1.0, 15.0
"""Seconds. One that is answered sooner tells nothing, and one that waits for longer may wait for a human being."""

_LONGEST: Final = 15.0


def wait(ctx: JoinContext) -> Iterable[Waited]:
    """Wait, for seconds at most, while young requests of kubelets remain unanswered; not at all where that cannot be seen.

    What this machine's kubelet says does not count: it has no configuration yet, and a package may have it start in vain again and again.
    """
    with suppress(WaitTimeout):
        yield ctx.waiter.until(
            lambda: _unanswered(ctx), within=_LONGEST, saying="the cluster to sign certificates", every=LOOK, at_most=LOOK
        )


def _unanswered(ctx: JoinContext) -> str | None:
    path = f"{CERTIFICATE_SIGNING_REQUEST.path()}?fieldSelector=spec.signerName%3D{_SIGNER}&limit={_LOOKED_AT}"
    try:
        answer = ctx.bootstrap.raw("GET", path)
    except APIError:  # whatever it is, the kubelet will meet it too
        return None
    if answer.status != 200:
        return None
    now = ctx.clock.now()
    try:
        waiting = [one for one in json.loads(answer.body)["items"] if not one.get("status") and _SLOW <= _age(one, now) <= _OLD]
    except (ValueError, LookupError, TypeError, AttributeError):  # not an API server's list
        return None
    return f"{len(waiting)} requests for a kubelet's certificate wait for an answer" if waiting else None


def _age(request: dict[str, Any], now: datetime) -> float:
    """Return seconds; a clock that is wrong makes a request too old or not born yet, and nobody waits for it."""
    return (now - datetime.fromisoformat(request["metadata"]["creationTimestamp"])).total_seconds()
