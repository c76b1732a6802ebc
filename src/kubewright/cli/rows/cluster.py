"""The rows of `certs`, `config`, `kubeconfig` and `token` (kubeadm v1.36: cmd/certs.go, cmd/config.go, cmd/token.go).

Imports nothing heavy.
"""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import (
    ALL_FORMATS,
    ANY,
    BOOL,
    CERT_DIR,
    CONFIG,
    CRI_SOCKET,
    DIFF,
    DOCUMENTS,
    DURATION,
    FEATURE_GATES,
    IMAGE_REPOSITORY,
    KUBEADM,
    KUBERNETES_VERSION,
    LIST,
    PATH,
    PRINTED,
    Argument,
    Command,
    Flag,
    Workflow,
)

_OWN_CERT_DIR = Flag("cert-dir", "directory of the certificates; if not given, the one in the configuration", default="", metavar="dir")
_CERT_DIR = Flag("cert-dir", _OWN_CERT_DIR.summary, default=CERT_DIR.default, metavar="dir")
_ADMIN = Flag(
    "kubeconfig", "kubeconfig to read the cluster's configuration with", default="/etc/kubernetes/admin.conf", metavar="file", form=PATH
)


def renewals() -> list[Command]:
    """Return the commands below `certs renew`: one for each renewable certificate.

    That of a kubeconfig which kubeadm does not have is hidden; `all` renews it as well. Source: kubeadm v1.36: phases/certs/renewal.
    """
    from kubewright.lifecycle.steps import renewal

    every = (_renewal(row.name, f"Renew the {row.long_name}", hidden=row.optional) for row in renewal.everything())
    return [_renewal("all", "Renew all certificates"), *every]


_LINES = "kubewright.cli.printers.reporters:KubeadmText"
_RENEWING = Workflow(
    operation="kubewright.lifecycle.certs.renew:RENEW",
    request="kubewright.cli.handlers.certs:renew_request",
    text=_LINES,
)


def _renewal(name: str, text: str, *, hidden: bool = False) -> Command:
    plan = Flag("plan", "show which files would change; write nothing", kind=BOOL, default=False)
    flags = (_CERT_DIR, CONFIG, _ADMIN, plan, ALL_FORMATS)
    return Command(f"certs renew {name}", text, flags=flags, exit_scheme=KUBEADM, workflow=_RENEWING, hidden=hidden)


_CERTS = (
    Command("certs", summary("certs"), aliases=("certificates",), exit_scheme=KUBEADM),
    Command(
        "certs certificate-key",
        "Generate a random key for uploading certificates and print it",
        handler="kubewright.cli.handlers.light_commands:certificate_key",
        flags=(ALL_FORMATS,),
        exit_scheme=KUBEADM,
    ),
    Command(
        "certs check-expiration",
        "Show when certificates and CAs expire",
        handler="kubewright.cli.handlers.certs:check_expiration",
        flags=(
            _CERT_DIR,
            CONFIG,
            _ADMIN,
            Flag("fail-within", "exit with 4 if any of them expires within this time, such as 30d or 48h; for monitoring", metavar="time"),
            *PRINTED,
        ),
        exit_scheme=KUBEADM,
        description="Works on every machine: on a worker it shows the cluster's CA and the kubelet's certificate.",
        examples=("certs check-expiration", "certs check-expiration --fail-within 30d -o json"),
    ),
    Command(
        "certs generate-csr",
        "Generate keys and certificate requests for an external CA",
        flags=(
            _OWN_CERT_DIR,
            CONFIG,
            Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
            Flag("plan", "show which files would be written; write nothing", kind=BOOL, default=False),
            ALL_FORMATS,
        ),
        exit_scheme=KUBEADM,
        workflow=Workflow(
            operation="kubewright.lifecycle.certs.signing_requests:GENERATE_CSR",
            request="kubewright.cli.handlers.certs:signing_request",
            text=_LINES,
        ),
    ),
    Command("certs renew", "Renew certificates", exit_scheme=KUBEADM, makes=f"{__name__}:renewals"),
)


_KUBECONFIG = Flag("kubeconfig", "accepted and not used, as in kubeadm", default="/etc/kubernetes/admin.conf", metavar="file")
_CLUSTER = Flag(
    "kubeconfig",
    "kubeconfig to read the cluster with; if not given, those in $KUBECONFIG (or ~/.kube/config) are tried before the default",
    default="/etc/kubernetes/admin.conf",
    metavar="file",
)
_EXPERIMENTAL = Flag(
    "allow-experimental-api", "accept API versions that are not released yet; there are none now", kind=BOOL, default=False
)
_IMAGES = (CONFIG, FEATURE_GATES, IMAGE_REPOSITORY, KUBERNETES_VERSION)


def _row(path: str, summary: str, handler: str = "", *flags: Flag, description: str = "") -> Command:
    return Command(
        f"config {path}".rstrip(),
        summary,
        handler=f"kubewright.cli.handlers.{handler}" if handler else "",
        flags=(*flags, _KUBECONFIG),
        exit_scheme=KUBEADM,
        description=description,
    )


_CONFIG = (
    _row("", summary("config")),
    _row("print", "Print example configurations"),
    _row(
        "print init-defaults",
        "Print the defaults of init",
        "config:print_init",
        Flag("component-configs", "also KubeProxyConfiguration, KubeletConfiguration", kind=LIST, metavar="kinds"),
        DOCUMENTS,
        description="Machine-specific values and the token are placeholders.",
    ),
    _row("print join-defaults", "Print the defaults of join", "config:print_join", DOCUMENTS),
    _row("print reset-defaults", "Print the defaults of reset", "config:print_reset", DOCUMENTS),
    _row("print upgrade-defaults", "Print the defaults of the upgrade commands", "config:print_upgrade", DOCUMENTS),
    _row(
        "validate",
        "Check a configuration file",
        "config:validate",
        CONFIG,
        Flag("allow-deprecated-api", "accept deprecated API versions without a warning", kind=BOOL, default=False),
        _EXPERIMENTAL,
        ALL_FORMATS,
        description="Every document of the file is checked as by the command that reads it, and all errors are reported at once.",
    ),
    _row(
        "migrate",
        "Convert a configuration file to the newest version of its API",
        "config:migrate",
        Flag("old-config", "file to read", default="", metavar="file"),
        Flag("new-config", "file to write; empty: stdout", default="", metavar="file"),
        _EXPERIMENTAL,
        DOCUMENTS,
        description="The result contains everything that the configuration means on this machine: defaults, its name and address, resolved versions."
        " Component documents are left out.",
    ),
    Command(
        "config explain",
        "Explain a configuration field: type, default, first version, meaning",
        handler="kubewright.cli.handlers.config:explain",
        argument=Argument("field", "a field such as etcd.local.dataDir, or a kind", shown="FIELD", least=1),
        flags=(ALL_FORMATS, _KUBECONFIG),
        examples=("config explain etcd.local.dataDir", "config explain JoinConfiguration", "config explain timeouts"),
        exit_scheme=KUBEADM,
    ),
    Command(
        "config diff",
        "Show how a configuration file differs from the cluster's configuration",
        handler="kubewright.cli.handlers.config:diff",
        flags=(CONFIG, _CLUSTER, ALL_FORMATS),
        description="Compares the file with the ConfigMaps kubeadm-config, kubelet-config and kube-proxy, after applying defaults on both"
        " sides. Exits with 0 if there are no differences, 1 if there are some, 2 or more if they cannot be compared.",
        examples=("config diff --config kubeadm.yaml", "config diff --config kubeadm.yaml --kubeconfig admin.conf -o json"),
        exit_scheme=DIFF,
    ),
    _row("images", "List and pull the images of a control plane"),
    _row(
        "images list",
        "List the images of a control plane",
        "images:list_images",
        *_IMAGES,
        *PRINTED,
    ),
    _row(
        "images pull",
        "Pull the images of a control plane",
        "images:pull",
        *_IMAGES,
        CRI_SOCKET,
        ALL_FORMATS,
        description="The container runtime of this machine pulls every image, including those that it already has.",
    ),
)


_HELP = (
    "token to use instead of a certificate; - reads it from standard input. Other users can see the command line while the command runs."
)

_KUBECONFIG_ROWS = (
    Command("kubeconfig", summary("kubeconfig"), exit_scheme=KUBEADM, shows_help=True),
    Command(
        "kubeconfig user",
        "Print a kubeconfig for a user",
        handler="kubewright.cli.handlers.certs:user",
        flags=(
            Flag("client-name", "name of the user: the certificate's common name (required)", default="", metavar="name"),
            CONFIG,
            Flag("org", "groups of the user: the certificate's organizations", kind=LIST, metavar="names"),
            Flag("token", _HELP, default="", metavar="token"),
            Flag("token-file", "file with the token to use instead of a certificate", default="", metavar="file"),
            Flag("validity-period", "how long the certificate is valid", kind=DURATION, default="8760h0m0s"),
            DOCUMENTS,
        ),
        exit_scheme=KUBEADM,
        examples=("kubeconfig user --client-name ada --org developers --validity-period 24h",),
    ),
)


_VISIBLE = " Other users can see the command line while the command runs."
_TOKEN_FLAGS = (
    Flag("dry-run", "send nothing; show what would be sent", kind=BOOL, default=False),
    Flag(
        "kubeconfig",
        "kubeconfig for the cluster; if not given, those in $KUBECONFIG (or ~/.kube/config) are tried before the default",
        default="/etc/kubernetes/admin.conf",
        metavar="file",
    ),
)
_TOKEN_HELP = f"A token may be given literally, as - for standard input, or as the path of a file (with a /).{_VISIBLE}"

_TOKEN = (
    Command("token", summary("token"), flags=_TOKEN_FLAGS, exit_scheme=KUBEADM),
    Command(
        "token create",
        "Create a bootstrap token in the cluster",
        handler="kubewright.cli.handlers.tokens:create",
        argument=Argument("token", "token; none: a random one", shown="[token]", most=ANY),
        flags=(
            Flag(
                "certificate-key",
                f"with --print-join-command: key of the uploaded certificates, for joining control planes.{_VISIBLE}",
                default="",
                metavar="hex",
            ),
            CONFIG,
            Flag("description", "purpose of the token", default="", metavar="text"),
            Flag(
                "groups",
                "groups of users who authenticate with the token",
                kind=LIST,
                default=("system:bootstrappers:kubeadm:default-node-token",),
                metavar="names",
            ),
            Flag(
                "node",
                "the only node that the token is for, or a pattern with * and ?: written into the cluster's policy of certificates",
                default="",
                metavar="name",
            ),
            Flag("address", "with --node: addresses of the node", kind=LIST, metavar="ips"),
            Flag("name", "with --node: further DNS names of the node", kind=LIST, metavar="names"),
            Flag("print-bootstrap-kubeconfig", "print a bootstrap kubeconfig for a kubelet", kind=BOOL, default=False),
            Flag("print-join-command", "print the complete join command", kind=BOOL, default=False),
            Flag("ttl", "lifetime of the token; 0: it never expires", kind=DURATION, default="24h0m0s"),
            Flag(
                "usages",
                "allowed usages of the token: signing, authentication",
                kind=LIST,
                default=("signing", "authentication"),
                metavar="names",
            ),
            ALL_FORMATS,
            *_TOKEN_FLAGS,
        ),
        exit_scheme=KUBEADM,
        description=_TOKEN_HELP,
        examples=(
            "token create --print-join-command",
            "token create --node worker-1 --address 10.1.4.7 --print-join-command",
            "token create --ttl 1h - < token.txt",
        ),
        flags_in_usage=False,
    ),
    Command(
        "token delete",
        "Delete bootstrap tokens",
        handler="kubewright.cli.handlers.tokens:delete",
        argument=Argument("token", "ids of tokens, or complete tokens", shown="[token-value] ...", most=ANY),
        flags=(ALL_FORMATS, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
        description=_TOKEN_HELP,
        flags_in_usage=False,
    ),
    Command(
        "token generate",
        "Generate a random bootstrap token and print it",
        handler="kubewright.cli.handlers.light_commands:generate",
        flags=(ALL_FORMATS, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
    ),
    Command(
        "token list",
        "List the bootstrap tokens of the cluster",
        handler="kubewright.cli.handlers.tokens:list_tokens",
        flags=(*PRINTED, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
    ),
)

ROWS = (*_CERTS, *_CONFIG, *_KUBECONFIG_ROWS, *_TOKEN)
