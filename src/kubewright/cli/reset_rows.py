"""The rows of `reset` and of its phases (spec/kubeadm.md 1.5). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.commands import summary
from kubewright.cli.model import ANY, BOOL, KUBEADM, Argument, Command, Flag, by_name, output
from kubewright.cli.phase_rows import PhaseRow, phase_commands

_FLAGS = by_name(
    Flag("cert-dir", "directory of the certificates, which is emptied", default="/etc/kubernetes/pki", metavar="dir"),
    Flag("cleanup-tmp-dir", "also empty /etc/kubernetes/tmp", kind=BOOL, default=False),
    Flag("force", "do not ask", kind=BOOL, default=False, short="f"),
    Flag("plan", "show what would be removed; write nothing", kind=BOOL, default=False),
    output("text", "json", "yaml"),
    Flag("cleanup-cni", "also remove the CNI configuration that is listed", kind=BOOL, default=False),
    Flag("cleanup-packet-filter", "also remove the rules of kube-proxy and CNI plugins", kind=BOOL, default=False),
    Flag("delete-node", "also delete the Node object of this machine, with the kubeconfig", kind=BOOL, default=False),
)
_RESET = "cert-dir cleanup-tmp-dir config cri-socket dry-run force ignore-preflight-errors kubeconfig skip-phases"
_OURS = "plan output"
_OPTIONS = "cleanup-cni cleanup-packet-filter delete-node"

# kubeadm takes arguments and does not look at them.
_IGNORED = Argument("ignored", "taken and ignored, as kubeadm does", shown="", most=ANY)

PHASES = (
    PhaseRow("preflight", "Run the checks before reset", "dry-run force ignore-preflight-errors", alias="pre-flight", argument=_IGNORED),
    PhaseRow("remove-etcd-member", "Remove this machine's member from the local etcd cluster", "dry-run kubeconfig", argument=_IGNORED),
    PhaseRow(
        "cleanup-node",
        "Stop the kubelet, unmount and delete what is on this machine",
        "cert-dir cleanup-tmp-dir cri-socket dry-run",
        alias="cleanupnode",
        argument=_IGNORED,
    ),
)

ROWS = (
    Command(
        "reset",
        summary("reset"),
        handler="kubewright.cli.operations:run",
        flags=tuple(_FLAGS[name] for name in f"{_RESET} {_OPTIONS} {_OURS}".split()),
        argument=_IGNORED,
        exit_scheme=KUBEADM,
        description="Lists what goes, asks, and tries every step: what fails is told at the end, and the same command again does what is left."
        " --plan shows all of it. etcd's data goes only where that etcd is this machine's own.",
    ),
    *phase_commands("reset", PHASES, flags=_FLAGS, handler="kubewright.cli.operations:run", ours=_OURS),
)
