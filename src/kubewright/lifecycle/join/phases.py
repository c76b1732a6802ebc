"""The tree of join, as data: names and order are kubeadm's (spec/kubeadm.md 2.3). What each phase does is in the modules beside this one.

They are named, not imported: a worker should not load what makes control planes.
"""

from __future__ import annotations

from typing import Final

from kubewright.lifecycle.join.context import JoinContext, only_control_planes
from kubewright.workflow.phases import Phase, Phases

JoinPhase = Phase[JoinContext]

_HERE: Final = "kubewright.lifecycle.join"
_ALL: Final[JoinPhase] = Phase("all", "Run all of them", every=True)

PREFLIGHT: Final[JoinPhase] = Phase(
    "preflight [api-server-endpoint]", "Run the checks before join", run=lambda ctx: ctx.bound.preflight(ctx)
)
PREPARE: Final[JoinPhase] = Phase(
    "control-plane-prepare",
    "Prepare this machine for a control plane",
    condition=only_control_planes,
    children=(
        _ALL,
        Phase(
            "download-certs [api-server-endpoint]",
            "Download the certificates that the control planes share",
            run=f"{_HERE}.downloading:download_certs",
        ),
        Phase("certs [api-server-endpoint]", "Generate this machine's certificates", run=f"{_HERE}.control_plane:certificates"),
        Phase(
            "kubeconfig [api-server-endpoint]",
            "Generate the kubeconfig files of a control plane",
            run=f"{_HERE}.control_plane:kubeconfigs",
        ),
        Phase("control-plane", "Generate the static pods of the control plane", run=f"{_HERE}.control_plane:manifests"),
    ),
)
CHECK_ETCD: Final[JoinPhase] = Phase(
    "check-etcd", "Check that etcd is healthy", hidden=True, condition=only_control_planes, run=f"{_HERE}.etcd_member:check"
)
KUBELET_START: Final[JoinPhase] = Phase(
    "kubelet-start [api-server-endpoint]", "Write the kubelet's files and start it", run=f"{_HERE}.kubelet:start"
)
ETCD_JOIN: Final[JoinPhase] = Phase(
    "etcd-join", "Add a member to the local etcd cluster", condition=only_control_planes, run=f"{_HERE}.etcd_member:join"
)
WAIT_BOOTSTRAP: Final[JoinPhase] = Phase(
    "kubelet-wait-bootstrap", "Wait for the kubelet to get its certificate", run=f"{_HERE}.kubelet:wait_bootstrap"
)
CONTROL_PLANE_JOIN: Final[JoinPhase] = Phase(
    "control-plane-join",
    "Make this machine a control plane",
    condition=only_control_planes,
    children=(
        _ALL,
        Phase("mark-control-plane", "Label and taint the Node as a control plane", run=f"{_HERE}.marking:mark_control_plane"),
    ),
)
WAIT: Final[JoinPhase] = Phase(
    "wait-control-plane", "Wait for the control plane", condition=only_control_planes, run=f"{_HERE}.control_plane:wait"
)

PHASES: Final[Phases[JoinContext]] = Phases(
    PREFLIGHT,
    PREPARE,
    CHECK_ETCD,
    KUBELET_START,
    ETCD_JOIN,
    WAIT_BOOTSTRAP,
    CONTROL_PLANE_JOIN,
    WAIT,
)
