"""The rows of `join` and of its phases (spec/kubeadm.md 1.4). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.commands import summary
from kubewright.cli.model import ADOPT, ALL_FORMATS, BOOL, KUBEADM, LIST, Argument, Command, Flag, by_name
from kubewright.cli.phase_rows import PhaseRow, phase_commands

_ELSEWHERE = " - is the next line of standard input, and what has a / the path of a file: command lines are visible to other users"

_FLAGS = by_name(
    Flag("certificate-key", f"key that opens the uploaded certificates, 64 hexadecimal digits.{_ELSEWHERE}", default="", metavar="hex"),
    Flag("control-plane", "make this machine a further control plane", kind=BOOL, default=False),
    Flag("discovery-file", "kubeconfig, a path or an https URL, that tells where the cluster is", default="", metavar="file"),
    Flag("discovery-token", f"bootstrap token that proves cluster-info.{_ELSEWHERE}", default="", metavar="token"),
    Flag("discovery-token-ca-cert-hash", "pins of the cluster's CA, sha256:HEX", kind=LIST, metavar="pins"),
    Flag("discovery-token-unsafe-skip-ca-verification", "trust cluster-info without a pin", kind=BOOL, default=False),
    Flag("tls-bootstrap-token", f"bootstrap token that asks for the node's certificate.{_ELSEWHERE}", default="", metavar="token"),
    Flag("token", f"bootstrap token for both, where they are not given.{_ELSEWHERE}", default="", metavar="token"),
    ADOPT,
    Flag("plan", "show what join would change, as diffs, and write nothing", kind=BOOL, default=False),
    ALL_FORMATS,
)

_ENDPOINT = Argument("api-server-endpoint", "host:port of the API server, for discovery by token", shown="[api-server-endpoint]")
# kubeadm takes it here as well, and does not show it.
_ENDPOINT_TAKEN = Argument("api-server-endpoint", _ENDPOINT.summary, shown="")
_DISCOVERY = (
    "discovery-file discovery-token discovery-token-ca-cert-hash discovery-token-unsafe-skip-ca-verification tls-bootstrap-token token"
)
_JOIN = (
    "apiserver-advertise-address apiserver-bind-port certificate-key config control-plane cri-socket"
    f" {_DISCOVERY} dry-run ignore-preflight-errors node-name patches skip-phases"
)
_OURS = "plan output"
_MEMBER = "apiserver-advertise-address config control-plane dry-run node-name patches"

PHASES = (
    PhaseRow(
        "preflight",
        "Run the checks before join",
        "apiserver-advertise-address apiserver-bind-port certificate-key config control-plane cri-socket dry-run ignore-preflight-errors"
        f" node-name {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow("control-plane-prepare", "Prepare this machine for a control plane"),
    PhaseRow(
        "control-plane-prepare all",
        "Prepare everything of a control plane",
        f"apiserver-advertise-address apiserver-bind-port certificate-key config control-plane dry-run node-name patches {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow(
        "control-plane-prepare download-certs",
        "Download the certificates that the control planes share",
        f"certificate-key config control-plane dry-run {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow(
        "control-plane-prepare certs",
        "Generate this machine's certificates",
        f"apiserver-advertise-address config control-plane dry-run node-name {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow(
        "control-plane-prepare kubeconfig",
        "Generate the kubeconfig files of a control plane",
        f"certificate-key config control-plane dry-run {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow(
        "control-plane-prepare control-plane",
        "Generate the static pods of the control plane",
        "apiserver-advertise-address apiserver-bind-port config control-plane dry-run patches",
    ),
    PhaseRow(
        "kubelet-start",
        "Write the kubelet's files and start it",
        f"config cri-socket dry-run node-name patches {_DISCOVERY}",
        argument=_ENDPOINT,
    ),
    PhaseRow("etcd-join", "Add a member to the local etcd cluster", _MEMBER),
    PhaseRow(
        "kubelet-wait-bootstrap", "Wait for the kubelet to get its certificate", "config cri-socket dry-run", argument=_ENDPOINT_TAKEN
    ),
    PhaseRow("control-plane-join", "Make this machine a control plane"),
    PhaseRow("control-plane-join all", "Take all steps that make this machine a control plane", _MEMBER),
    PhaseRow(
        "control-plane-join mark-control-plane",
        "Label and taint the Node as a control plane",
        "config control-plane dry-run node-name",
    ),
    PhaseRow("wait-control-plane", "Wait for the control plane", argument=_ENDPOINT_TAKEN),
)

ROWS = (
    Command(
        "join",
        summary("join"),
        handler="kubewright.cli.operations:run",
        flags=tuple(_FLAGS[name] for name in f"{_JOIN} {_OURS} adopt".split()),
        argument=_ENDPOINT,
        exit_scheme=KUBEADM,
        description="The same command again changes nothing, repairs what is broken, and finishes what was interrupted. --plan shows what it"
        " would change. A machine that is part of the cluster already needs no valid token for that.",
        examples=("join 10.0.0.1:6443 --token TOKEN --discovery-token-ca-cert-hash sha256:HEX", "join --config join.yaml"),
    ),
    *phase_commands("join", PHASES, flags=_FLAGS, handler="kubewright.cli.operations:run", ours=_OURS),
)
