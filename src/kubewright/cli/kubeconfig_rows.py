"""The rows of `kubeconfig` (spec/kubeadm.md 1.9). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import DURATION, KUBEADM, LIST, Command, Flag
from kubewright.cli.shared_flags import CONFIG, DOCUMENTS
from kubewright.cli.toplevel import summary

_HELP = (
    "token to use instead of a certificate; - reads it from standard input."
    " What stands on a command line is visible to other users while the command runs."
)

ROWS = (
    Command("kubeconfig", summary("kubeconfig"), exit_scheme=KUBEADM, shows_help=True),
    Command(
        "kubeconfig user",
        "Print a kubeconfig for a user",
        handler="kubewright.cli.kubeconfig:user",
        flags=(
            Flag("client-name", "name of the user: the certificate's common name (required)", default="", metavar="name"),
            CONFIG,
            Flag("org", "groups of the user: the certificate's organisations", kind=LIST, metavar="names"),
            Flag("token", _HELP, default="", metavar="token"),
            Flag("token-file", "file with the token to use instead of a certificate", default="", metavar="file"),
            Flag("validity-period", "how long the certificate is valid", kind=DURATION, default="8760h0m0s"),
            DOCUMENTS,
        ),
        exit_scheme=KUBEADM,
        examples=("kubeconfig user --client-name ada --org developers --validity-period 24h",),
    ),
)
