"""The rows of `certs`, `kubeconfig` and `token` in the command table. Imports nothing heavy, as the table itself."""

from __future__ import annotations

from kubewright.cli.model import BOOL, DURATION, KUBEADM, LIST, Argument, Command, Flag
from kubewright.cli.printer_flags import PRINTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN_CERT_DIR = Flag("cert-dir", "directory of the certificates; if not given, that of the configuration", default="", metavar="dir")
_CERT_DIR = Flag("cert-dir", _OWN_CERT_DIR.summary, default="/etc/kubernetes/pki", metavar="dir")
_ADMIN = Flag("kubeconfig", "kubeconfig to read the cluster's configuration with", default="/etc/kubernetes/admin.conf", metavar="file")
_VISIBLE = " What stands on a command line is visible to other users while the command runs."

# What `certs renew` renews: names and long names, as pki's table has them (spec/kubeadm.md 10.1). A test compares the two.
_RENEWED = (
    ("admin.conf", "certificate embedded in the kubeconfig file for the admin to use and for kubeadm itself"),
    ("apiserver", "certificate for serving the Kubernetes API"),
    ("apiserver-etcd-client", "certificate the apiserver uses to access etcd"),
    ("apiserver-kubelet-client", "certificate for the API server to connect to kubelet"),
    ("controller-manager.conf", "certificate embedded in the kubeconfig file for the controller manager to use"),
    ("etcd-healthcheck-client", "certificate for liveness probes to healthcheck etcd"),
    ("etcd-peer", "certificate for etcd nodes to communicate with each other"),
    ("etcd-server", "certificate for serving etcd"),
    ("front-proxy-client", "certificate for the front proxy client"),
    ("scheduler.conf", "certificate embedded in the kubeconfig file for the scheduler manager to use"),
    ("super-admin.conf", "certificate embedded in the kubeconfig file for the super-admin"),
)


def _renew_command(name: str, summary: str, config: Flag, formats: Flag) -> Command:
    flags = (_CERT_DIR, config, _ADMIN, formats)
    return Command(f"certs renew {name}", summary, handler="kubewright.cli.certs:renew", flags=flags, exit_scheme=KUBEADM)


def certs(*, config: Flag, formats: Flag) -> tuple[Command, ...]:
    """Return the rows of `certs` and what is below it."""
    return (
        Command("certs", "Look after certificates", exit_scheme=KUBEADM),
        Command(
            "certs certificate-key",
            "Make a random key for uploading certificates and print it",
            handler="kubewright.cli.certificate_key:certificate_key",
            exit_scheme=KUBEADM,
        ),
        Command(
            "certs check-expiration",
            "Show when certificates and authorities end",
            handler="kubewright.cli.certs:check_expiration",
            flags=(
                _CERT_DIR,
                config,
                _ADMIN,
                Flag("fail-within", "exit 4 if any of them ends within this time, such as 30d or 48h; for monitoring", metavar="time"),
                *PRINTED,
            ),
            exit_scheme=KUBEADM,
            description="Works on every machine: on a worker it shows the cluster's CA and the kubelet's certificate.",
            examples=("certs check-expiration", "certs check-expiration --fail-within 30d -o json"),
        ),
        Command(
            "certs generate-csr",
            "Make keys and signing requests for an authority that is kept elsewhere",
            handler="kubewright.cli.certs:generate_csr",
            flags=(
                _OWN_CERT_DIR,
                config,
                Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
                formats,
            ),
            exit_scheme=KUBEADM,
        ),
        Command("certs renew", "Renew certificates", exit_scheme=KUBEADM),
        _renew_command("all", "Renew all certificates", config, formats),
        *(_renew_command(name, f"Renew the {long_name}", config, formats) for name, long_name in _RENEWED),
    )


def kubeconfig(*, config: Flag, formats: Flag) -> tuple[Command, ...]:
    """Return the rows of `kubeconfig` and what is below it."""
    return (
        Command("kubeconfig", "Make kubeconfig files", handler="kubewright.cli.groups:show", exit_scheme=KUBEADM),
        Command(
            "kubeconfig user",
            "Print a kubeconfig for a user",
            handler="kubewright.cli.kubeconfig:user",
            flags=(
                Flag("client-name", "name of the user: the certificate's common name (required)", default="", metavar="name"),
                config,
                Flag("org", "groups of the user: the certificate's organisations", kind=LIST, metavar="names"),
                Flag(
                    "token",
                    f"token to use instead of a certificate; - reads it from standard input.{_VISIBLE}",
                    default="",
                    metavar="token",
                ),
                Flag("token-file", "file with the token to use instead of a certificate", default="", metavar="file"),
                Flag("validity-period", "how long the certificate is valid", kind=DURATION, default="8760h0m0s"),
                formats,
            ),
            exit_scheme=KUBEADM,
            examples=("kubeconfig user --client-name ada --org developers --validity-period 24h",),
        ),
    )


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


def token(*, config: Flag, formats: Flag) -> tuple[Command, ...]:
    """Return the rows of `token` and what is below it."""
    return (
        Command("token", "Work with bootstrap tokens", flags=_TOKEN_FLAGS, exit_scheme=KUBEADM),
        Command(
            "token create",
            "Make a bootstrap token in the cluster",
            handler="kubewright.cli.tokens:create",
            arguments=(Argument("token", "token; none: a random one", optional=True, many=True),),
            flags=(
                Flag(
                    "certificate-key",
                    f"with --print-join-command: for further control planes, the key of the uploaded certificates.{_VISIBLE}",
                    default="",
                    metavar="hex",
                ),
                config,
                Flag("description", "what the token is for", default="", metavar="text"),
                Flag("groups", "groups of whoever holds it", kind=LIST, metavar="names"),
                Flag("print-bootstrap-kubeconfig", "print the kubeconfig that a kubelet starts with", kind=BOOL, default=False),
                Flag("print-join-command", "print the whole command that joins with it", kind=BOOL, default=False),
                Flag("ttl", "how long the token lives; 0 for ever", kind=DURATION, default="24h0m0s"),
                Flag("usages", "what the token is good for: signing, authentication", kind=LIST, metavar="names"),
                formats,
                *_TOKEN_FLAGS,
            ),
            exit_scheme=KUBEADM,
            description=_TOKEN_HELP,
            examples=("token create --print-join-command", "token create --ttl 1h - < token.txt"),
        ),
        Command(
            "token delete",
            "Delete bootstrap tokens",
            handler="kubewright.cli.tokens:delete",
            arguments=(Argument("token", "ids of tokens, or whole tokens", optional=True, many=True),),
            flags=(formats, *_TOKEN_FLAGS),
            exit_scheme=KUBEADM,
            description=_TOKEN_HELP,
        ),
        Command(
            "token generate",
            "Make a random bootstrap token and print it",
            handler="kubewright.cli.token:generate",
            flags=_TOKEN_FLAGS,
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


def aliased(rows: Sequence[Command], word: str, alias: str) -> tuple[Command, ...]:
    """Return the rows under another first word, which works and is not shown."""
    return tuple(
        Command(
            row.path.replace(word, alias, 1),
            row.summary,
            handler=row.handler,
            flags=row.flags,
            arguments=row.arguments,
            description=row.description,
            exit_scheme=row.exit_scheme,
            hidden=True,
        )
        for row in rows
    )
