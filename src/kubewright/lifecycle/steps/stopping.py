"""Waits for the end of static pods whose manifests were removed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import WaitTimeout
from kubewright.base.records import dataclass
from kubewright.host.desired import Service
from kubewright.host.network.listeners import blocking
from kubewright.lifecycle.steps.kubelet import SERVICE

if TYPE_CHECKING:
    from kubewright.base.clock import Clock
    from kubewright.base.events import Waited
    from kubewright.base.wait import Waiter
    from kubewright.host.seam import Host
    from kubewright.workflow.phases import Step

_LOOK: Final = 0.02
_BY_KUBELET: Final = 8.0
"""Seconds in which a kubelet stops a pod, if it stops pods at all."""


@dataclass(frozen=True, kw_only=True)
class StoppingPods:
    """Static pods of the machine with this node name.

    They are running while something listens at one of the addresses and ports `held`.
    """

    names: tuple[str, ...]
    node: str
    held: tuple[tuple[str, int], ...]


def until_gone(pods: StoppingPods, *, host: Host, clock: Clock, waiter: Waiter, within: float) -> Iterable[Step]:
    """Wait until nothing uses the addresses of static pods whose manifests were removed before.

    A kubelet that was restarted stops no static pod before it has a response from an API server (kubelet v1.36,
    pkg/kubelet: sources ready), which it may never get. It is restarted then: afterwards it no longer knows the pods,
    and does not restart what the container runtime removes. Raises WaitTimeout.
    """
    try:
        yield _free(pods, host=host, waiter=waiter, within=min(_BY_KUBELET, within))
    except WaitTimeout:
        from kubewright.host.cri.images_and_sandboxes import remove_sandbox

        yield host.ensure(Service(name=SERVICE, restart=True))
        names = {f"{name}-{pods.node}" for name in pods.names}
        for sandbox in host.runtime.sandboxes():
            if sandbox.name in names:
                yield remove_sandbox(sandbox, runtime=host.runtime, clock=clock)
        yield _free(pods, host=host, waiter=waiter, within=within)


def _free(pods: StoppingPods, *, host: Host, waiter: Waiter, within: float) -> Waited:
    def free() -> str | None:
        listening = host.network.listeners()
        held = [port for address, port in pods.held if blocking(listening, address, port) is not None]
        return f"port {held[0]} is still in use" if held else None

    return waiter.until(
        free,
        within=within,
        saying=f"{' and '.join(pods.names)} to end",
        every=_LOOK,
        at_most=_LOOK,
        remedy="find the process that listens on the port with `ss -ltnp`, and stop it",
    )
