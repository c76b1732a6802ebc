"""The rows of `node`. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, DURATION, LIST, SECRET, Command, Flag, Workflow

_FLAGS = {
    flag.name: flag
    for flag in (
        Flag("nodename", "name of the node; empty: the name of this machine", default="", metavar="name", sets="node"),
        Flag("apiserver-endpoint", "URL of the API server of the cluster", metavar="url", sets="server"),
        Flag("apiserver-ca-cert-file", "file with the CA certificate of the API server", metavar="file"),
        Flag(
            "join-token",
            "token of the hub; - reads the next line of standard input, a value with a / is the path of a file",
            metavar="token",
            sets="token",
            form=SECRET,
        ),
        Flag(
            "container-runtime-endpoint",
            "socket of the container runtime",
            default="unix:///run/containerd/containerd.sock",
            metavar="socket",
            sets="runtime_endpoint",
        ),
        Flag(
            "image-service-endpoint",
            "socket of the image service; empty: that of the container runtime",
            default="",
            metavar="socket",
            sets="image_endpoint",
        ),
        Flag("extra-san", "additional names and addresses for the kubelet's serving certificate", kind=LIST, metavar="names", sets="sans"),
        Flag(
            "join-key-fingerprint",
            "fingerprint of the hub's join key, sha256: and 64 hexadecimal digits",
            default="",
            metavar="pin",
            sets="fingerprint",
        ),
        Flag(
            "accept-kubelet-fields",
            "additional fields of the kubelet's configuration that the hub may set, such as staticPodPath,authorization.mode",
            kind=LIST,
            metavar="fields",
            sets="accepted",
        ),
        Flag("skip-phases", "phases to skip", kind=LIST, metavar="phases", sets="skip"),
        Flag("ignore-preflight-errors", "checks whose errors become warnings, or all", kind=LIST, metavar="names", sets="ignored"),
        Flag("plan", "show what the join would change, as diffs, and write nothing", kind=BOOL, default=False),
        ALL_FORMATS,
    )
}

_WORKFLOW = Workflow(
    "kubewright.enrollment.node.phases:PHASES",
    flags=_FLAGS,
    ours="plan output",
    operation="kubewright.enrollment.node.operation:NODE_JOIN",
    request="kubewright.cli.handlers.node_requests:join_request",
)

_LEAVE_FLAGS = {
    flag.name: flag
    for flag in (
        Flag("drain", "evict the pods of this node first", kind=BOOL, default=False),
        Flag("drain-timeout", "how long to wait for the pods to be evicted", kind=DURATION, default="5m0s"),
        _FLAGS["skip-phases"],
        Flag("plan", "show what would be removed, and remove nothing", kind=BOOL, default=False),
        ALL_FORMATS,
    )
}
_LEAVING = Workflow(
    "kubewright.enrollment.node.leaving:PHASES",
    flags=_LEAVE_FLAGS,
    ours="plan output",
    operation="kubewright.enrollment.node.leaving:NODE_LEAVE",
    request="kubewright.cli.handlers.node_requests:leave_request",
)

_ROTATE_FLAGS = {
    flag.name: flag
    for flag in (
        Flag("hub-key", "new public key of the hub in the VPN, if the hub's key has changed", default="", metavar="key"),
        _FLAGS["skip-phases"],
        Flag("plan", "show what would change, and change nothing", kind=BOOL, default=False),
        ALL_FORMATS,
    )
}
_ROTATING = Workflow(
    "kubewright.enrollment.node.rotating:PHASES",
    flags=_ROTATE_FLAGS,
    ours="plan output",
    operation="kubewright.enrollment.node.rotating:NODE_ROTATE",
    request="kubewright.cli.handlers.node_requests:rotate_request",
)

ROWS = (
    Command("node", summary("node")),
    Command(
        "node join",
        "Join this machine to a cluster through its hub",
        flags=tuple(_FLAGS.values()),
        workflow=_WORKFLOW,
        description="Sends a NodeJoinRequest to the hub of a cluster, as oneinfra's nodes do, waits for the answer, validates it, installs the kubelet of"
        " the cluster's version and starts it. If the command is killed, running it again continues the join.",
        examples=("node join --apiserver-endpoint https://10.0.0.1:6443 --apiserver-ca-cert-file ca.crt --join-token ./token",),
    ),
    Command(
        "node leave",
        "Remove this machine from its cluster, and free its name",
        flags=tuple(_LEAVE_FLAGS.values()),
        workflow=_LEAVING,
        description="Evicts the node's pods (with --drain), stops the kubelet, waits until the hub has freed the name and deleted the Node and its request, and then removes pods,"
        " keys and files as reset does. If no hub answers, nothing is removed, unless the phase depart is skipped.",
        examples=("node leave --drain",),
    ),
    Command(
        "node rotate-vpn-key",
        "Replace this machine's key in the VPN of its hub",
        flags=tuple(_ROTATE_FLAGS.values()),
        workflow=_ROTATING,
        description="Generates a key, offers it to the hub, uses it, and waits until the hub has replaced the old one. The tunnel stays up, and the old key stays valid until the new"
        " one has been used. If the command is killed, running it again continues. If the hub's own key has changed, pass it as --hub-key.",
        examples=(
            "node rotate-vpn-key",
            "node rotate-vpn-key --hub-key KEY",
        ),
    ),
)
