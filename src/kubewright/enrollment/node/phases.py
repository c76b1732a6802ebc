"""The tree of `node join`, as data. Help and completion are generated from it; phases name their functions and do not import them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

_HERE: Final = "kubewright.enrollment.node"
_UNTIL_JOINED: Final = f"{_HERE}.context:until_joined"
_FLAGS: Final = (
    "nodename apiserver-endpoint apiserver-ca-cert-file join-token container-runtime-endpoint image-service-endpoint extra-san"
    " join-key-fingerprint accept-kubelet-fields"
)

PHASES: Final[Phases[NodeJoinContext]] = Phases(
    Phase(
        "preflight", "Run the checks before the join", run=lambda ctx: ctx.bound.preflight(ctx), flags=f"{_FLAGS} ignore-preflight-errors"
    ),
    Phase("request", "Request to join the cluster from the hub", run=f"{_HERE}.joining:request", condition=_UNTIL_JOINED, flags=_FLAGS),
    Phase("answer", "Wait for the answer of the hub, and check it", run=f"{_HERE}.joining:answer", condition=_UNTIL_JOINED, flags=_FLAGS),
    Phase("kubelet-install", "Install the kubelet", run=f"{_HERE}.kubelet:install", condition=_UNTIL_JOINED, flags=_FLAGS),
    Phase("tunnel", "Set up the VPN, if the hub gives one", run=f"{_HERE}.tunnel:configure", condition=_UNTIL_JOINED, flags=_FLAGS),
    Phase("files", "Write the kubelet's files", run=f"{_HERE}.kubelet:files", condition=_UNTIL_JOINED, flags=_FLAGS),
    Phase("forget-key", "Remove the key of this join", run=f"{_HERE}.kubelet:forget_key", flags=_FLAGS),
    Phase("tunnel-start", "Start the VPN", run=f"{_HERE}.tunnel:start", condition=f"{_HERE}.tunnel:only_in_vpn", flags=_FLAGS),
    Phase("kubelet-start", "Start the kubelet", run=f"{_HERE}.kubelet:start", flags=_FLAGS),
    Phase("node-ready", "Wait for the Node to be ready", run=f"{_HERE}.kubelet:ready", flags=_FLAGS),
)
