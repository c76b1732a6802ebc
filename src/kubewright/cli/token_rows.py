"""The rows of `token` (spec/kubeadm.md 1.9). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import ANY, BOOL, DURATION, KUBEADM, LIST, Argument, Command, Flag
from kubewright.cli.printer_flags import PRINTED
from kubewright.cli.shared_flags import ALL_FORMATS, CONFIG
from kubewright.cli.toplevel import summary

_VISIBLE = " What stands on a command line is visible to other users while the command runs."
_TOKEN_FLAGS = (
    Flag("dry-run", "send nothing; say what would be sent", kind=BOOL, default=False),
    Flag(
        "kubeconfig",
        "kubeconfig to talk to the cluster with; if not given, those in $KUBECONFIG (or ~/.kube/config) come before the default",
        default="/etc/kubernetes/admin.conf",
        metavar="file",
    ),
)
_TOKEN_HELP = f"A token may be given as it is, as - for standard input, or as the path of a file (with a /).{_VISIBLE}"

ROWS = (
    Command("token", summary("token"), flags=_TOKEN_FLAGS, exit_scheme=KUBEADM),
    Command(
        "token create",
        "Make a bootstrap token in the cluster",
        handler="kubewright.cli.tokens:create",
        argument=Argument("token", "token; none: a random one", shown="[token]", most=ANY),
        flags=(
            Flag(
                "certificate-key",
                f"with --print-join-command: for further control planes, the key of the uploaded certificates.{_VISIBLE}",
                default="",
                metavar="hex",
            ),
            CONFIG,
            Flag("description", "what the token is for", default="", metavar="text"),
            Flag(
                "groups",
                "groups of whoever holds it",
                kind=LIST,
                default=("system:bootstrappers:kubeadm:default-node-token",),
                metavar="names",
            ),
            Flag("print-bootstrap-kubeconfig", "print the kubeconfig that a kubelet starts with", kind=BOOL, default=False),
            Flag("print-join-command", "print the whole command that joins with it", kind=BOOL, default=False),
            Flag("ttl", "how long the token lives; 0 for ever", kind=DURATION, default="24h0m0s"),
            Flag(
                "usages",
                "what the token is good for: signing, authentication",
                kind=LIST,
                default=("signing", "authentication"),
                metavar="names",
            ),
            ALL_FORMATS,
            *_TOKEN_FLAGS,
        ),
        exit_scheme=KUBEADM,
        description=_TOKEN_HELP,
        examples=("token create --print-join-command", "token create --ttl 1h - < token.txt"),
        flags_in_usage=False,
    ),
    Command(
        "token delete",
        "Delete bootstrap tokens",
        handler="kubewright.cli.tokens:delete",
        argument=Argument("token", "ids of tokens, or whole tokens", shown="[token-value] ...", most=ANY),
        flags=(ALL_FORMATS, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
        description=_TOKEN_HELP,
        flags_in_usage=False,
    ),
    Command(
        "token generate",
        "Make a random bootstrap token and print it",
        handler="kubewright.cli.token:generate",
        flags=(ALL_FORMATS, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
    ),
    Command(
        "token list",
        "List the bootstrap tokens of the cluster",
        handler="kubewright.cli.tokens:list_tokens",
        flags=(*PRINTED, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
    ),
)
