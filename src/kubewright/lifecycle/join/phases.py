"""The tree of join, as data: names, order and flags are kubeadm's (kubeadm v1.36: cmd/join.go, cmd/phases/join).

Help and completion are generated from it. The functions of the phases are in the other modules of this package. They
are named, not imported: a worker should not load the modules for control planes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.lifecycle.join.context import JoinContext

    JoinPhase = Phase[JoinContext]

_HERE: Final = "kubewright.lifecycle.join"
_CONTROL_PLANES: Final = f"{_HERE}.context:only_control_planes"
_ENDPOINT: Final = "api-server-endpoint"
_TAKEN: Final = "api-server-endpoint, not shown"
"""Names of positional arguments: kubeadm accepts the endpoint here as well, and does not show it."""

_DISCOVERY = (
    "discovery-file discovery-token discovery-token-ca-cert-hash discovery-token-unsafe-skip-ca-verification tls-bootstrap-token token"
)
_PREFLIGHT = (
    "apiserver-advertise-address apiserver-bind-port certificate-key config control-plane cri-socket dry-run ignore-preflight-errors"
    " node-name " + _DISCOVERY
)
_PREPARE = "apiserver-advertise-address apiserver-bind-port certificate-key config control-plane dry-run node-name patches " + _DISCOVERY
_DOWNLOAD = "certificate-key config control-plane dry-run " + _DISCOVERY
_CERTS = "apiserver-advertise-address config control-plane dry-run node-name " + _DISCOVERY
_STATIC_PODS = "apiserver-advertise-address apiserver-bind-port config control-plane dry-run patches"
_KUBELET = "config cri-socket dry-run node-name patches " + _DISCOVERY
_MEMBER = "apiserver-advertise-address config control-plane dry-run node-name patches"

PREFLIGHT: Final[JoinPhase] = Phase(
    "preflight", "Run the checks before join", run=lambda ctx: ctx.bound.preflight(ctx), flags=_PREFLIGHT, argument=_ENDPOINT
)
PREPARE: Final[JoinPhase] = Phase(
    "control-plane-prepare",
    "Prepare this machine for a control plane",
    condition=_CONTROL_PLANES,
    children=(
        Phase("all", "Run all steps that prepare a control plane", flags=_PREPARE, argument=_ENDPOINT, every=True),
        Phase(
            "download-certs",
            "Download the certificates that the control planes share",
            run=f"{_HERE}.control_plane:download_certs",
            flags=_DOWNLOAD,
            argument=_ENDPOINT,
        ),
        Phase(
            "certs",
            "Generate this machine's certificates",
            run=f"{_HERE}.control_plane:certificates",
            flags=_CERTS,
            argument=_ENDPOINT,
        ),
        Phase(
            "kubeconfig",
            "Generate the kubeconfig files of a control plane",
            run=f"{_HERE}.control_plane:kubeconfigs",
            flags=_DOWNLOAD,
            argument=_ENDPOINT,
        ),
        Phase(
            "control-plane",
            "Generate the static pods of the control plane",
            run=f"{_HERE}.control_plane:manifests",
            flags=_STATIC_PODS,
        ),
    ),
)
CHECK_ETCD: Final[JoinPhase] = Phase(
    "check-etcd", "Check that etcd is healthy", hidden=True, condition=_CONTROL_PLANES, run=f"{_HERE}.etcd_member:check"
)
SERVING_APPROVER: Final[JoinPhase] = Phase(
    "serving-approver",
    "List this machine in the policy of serving certificates",
    hidden=True,
    condition=_CONTROL_PLANES,
    run=f"{_HERE}.serving_approver:run",
)
KUBELET_START: Final[JoinPhase] = Phase(
    "kubelet-start", "Write the kubelet's files and start it", run=f"{_HERE}.kubelet:start", flags=_KUBELET, argument=_ENDPOINT
)
ETCD_JOIN: Final[JoinPhase] = Phase(
    "etcd-join", "Add a member to the local etcd cluster", condition=_CONTROL_PLANES, run=f"{_HERE}.etcd_member:join", flags=_MEMBER
)
WAIT_BOOTSTRAP: Final[JoinPhase] = Phase(
    "kubelet-wait-bootstrap",
    "Wait for the kubelet to get its certificate",
    run=f"{_HERE}.kubelet:wait_bootstrap",
    flags="config cri-socket dry-run",
    argument=_TAKEN,
)
CONTROL_PLANE_JOIN: Final[JoinPhase] = Phase(
    "control-plane-join",
    "Make this machine a control plane",
    condition=_CONTROL_PLANES,
    children=(
        Phase("all", "Run all steps that make this machine a control plane", flags=_MEMBER, every=True),
        Phase(
            "mark-control-plane",
            "Label and taint the Node as a control plane",
            run=f"{_HERE}.control_plane:mark_control_plane",
            flags="config control-plane dry-run node-name",
        ),
    ),
)
WAIT: Final[JoinPhase] = Phase(
    "wait-control-plane", "Wait for the control plane", condition=_CONTROL_PLANES, run=f"{_HERE}.control_plane:wait", argument=_TAKEN
)

PHASES: Final[Phases[JoinContext]] = Phases(
    PREFLIGHT,
    PREPARE,
    CHECK_ETCD,
    SERVING_APPROVER,
    KUBELET_START,
    ETCD_JOIN,
    WAIT_BOOTSTRAP,
    CONTROL_PLANE_JOIN,
    WAIT,
)
