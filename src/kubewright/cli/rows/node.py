"""The rows of `node`. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, BOOL, DURATION, LIST, SECRET, Command, Flag, Workflow

_FLAGS = {
    flag.name: flag
    for flag in (
        Flag("nodename", "name of the node; empty: the name of this machine", default="", metavar="name", sets="node"),
        Flag("apiserver-endpoint", "URL of the API server of the cluster", metavar="url", sets="server"),
        Flag("apiserver-ca-cert-file", "file with the authority of the API server", metavar="file"),
        Flag(
            "join-token",
            "token of the hub; - is the next line of standard input, and what has a / the path of a file",
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
        Flag("extra-san", "further names and addresses that the kubelet is reached by", kind=LIST, metavar="names", sets="sans"),
        Flag(
            "join-key-fingerprint",
            "fingerprint of the hub's join key, sha256: and 64 hexadecimal digits",
            default="",
            metavar="pin",
            sets="fingerprint",
        ),
        Flag(
            "accept-kubelet-fields",
            "fields of the kubelet's configuration that the hub may set beside the usual ones, such as staticPodPath,authorization.mode",
            kind=LIST,
            metavar="fields",
            sets="accepted",
        ),
        Flag("skip-phases", "phases to leave out", kind=LIST, metavar="phases", sets="skip"),
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
        Flag("drain-timeout", "how long pods have to go", kind=DURATION, default="5m0s"),
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
        Flag("hub-key", "public key of the hub in the VPN, where the hub has another one now", default="", metavar="key"),
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
        description="Asks the hub of a cluster with a NodeJoinRequest, as oneinfra's nodes do, waits for the answer, checks it, installs the kubelet of"
        " the cluster's version and starts it. Killed anywhere, the same command goes on.",
        examples=("node join --apiserver-endpoint https://10.0.0.1:6443 --apiserver-ca-cert-file ca.crt --join-token ./token",),
    ),
    Command(
        "node leave",
        "Take this machine out of its cluster, and free its name",
        flags=tuple(_LEAVE_FLAGS.values()),
        workflow=_LEAVING,
        description="With --drain, evicts its pods. Stops the kubelet, asks the hub to forget the node and to delete its Node and its request, waits for that, and removes pods, keys"
        " and files as reset does. Without a hub that answers nothing is removed, unless the phase depart is left out.",
        examples=("node leave --drain",),
    ),
    Command(
        "node rotate-vpn-key",
        "Give this machine another key in the VPN of its hub",
        flags=tuple(_ROTATE_FLAGS.values()),
        workflow=_ROTATING,
        description="Makes a key, has the hub hear it, uses it, and waits until the hub has put it in the place of the old one. The tunnel stays up, and the old key is"
        " in force until the new one has been used. Killed anywhere, the same command goes on. Where the hub's own key has changed, --hub-key says which it is now.",
    ),
)
