"""The rows of `certs`, `config`, `kubeconfig` and `token` (kubeadm v1.36: cmd/certs.go, cmd/config.go, cmd/token.go). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import (
    ALL_FORMATS,
    ANY,
    BOOL,
    CERT_DIR,
    CONFIG,
    DIFF,
    DOCUMENTS,
    DURATION,
    KUBEADM,
    LIST,
    PRINTED,
    Argument,
    Command,
    Flag,
)

_OWN_CERT_DIR = Flag("cert-dir", "directory of the certificates; if not given, that of the configuration", default="", metavar="dir")
_CERT_DIR = Flag("cert-dir", _OWN_CERT_DIR.summary, default=CERT_DIR.default, metavar="dir")
_ADMIN = Flag("kubeconfig", "kubeconfig to read the cluster's configuration with", default="/etc/kubernetes/admin.conf", metavar="file")


def renewals() -> list[Command]:
    """Return the commands below `certs renew`: one for each certificate that is renewed (kubeadm v1.36: phases/certs/renewal)."""
    from kubewright.lifecycle.certs import renewal

    return [_renewal("all", "Renew all certificates"), *(_renewal(row.name, f"Renew the {row.long_name}") for row in renewal.everything())]


def _renewal(name: str, text: str) -> Command:
    flags = (_CERT_DIR, CONFIG, _ADMIN, ALL_FORMATS)
    return Command(f"certs renew {name}", text, handler="kubewright.cli.handlers.certs:renew", flags=flags, exit_scheme=KUBEADM)


_CERTS = (
    Command("certs", summary("certs"), aliases=("certificates",), exit_scheme=KUBEADM),
    Command(
        "certs certificate-key",
        "Make a random key for uploading certificates and print it",
        handler="kubewright.cli.handlers.light_commands:certificate_key",
        flags=(ALL_FORMATS,),
        exit_scheme=KUBEADM,
    ),
    Command(
        "certs check-expiration",
        "Show when certificates and authorities end",
        handler="kubewright.cli.handlers.certs:check_expiration",
        flags=(
            _CERT_DIR,
            CONFIG,
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
        handler="kubewright.cli.handlers.certs:generate_csr",
        flags=(
            _OWN_CERT_DIR,
            CONFIG,
            Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
            ALL_FORMATS,
        ),
        exit_scheme=KUBEADM,
    ),
    Command("certs renew", "Renew certificates", exit_scheme=KUBEADM, makes=f"{__name__}:renewals"),
)


_FILE = Flag("config", "kubeadm configuration file", default="", metavar="file")
_KUBECONFIG = Flag("kubeconfig", "taken and not used, as in kubeadm", default="/etc/kubernetes/admin.conf", metavar="file")
_CLUSTER = Flag(
    "kubeconfig",
    "kubeconfig to read the cluster with; if not given, those in $KUBECONFIG (or ~/.kube/config) come before the default",
    default="/etc/kubernetes/admin.conf",
    metavar="file",
)
_EXPERIMENTAL = Flag("allow-experimental-api", "take API versions that are not released yet; there are none now", kind=BOOL, default=False)
_IMAGES = (
    _FILE,
    Flag("feature-gates", "kubeadm feature gates, name=true or name=false", default="", metavar="gates"),
    Flag("image-repository", "where the control plane images come from", default="registry.k8s.io", metavar="repository"),
    Flag("kubernetes-version", "version of the control plane, or a label", default="stable-1", metavar="version"),
)


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
        description="Values that belong to one machine, and the token, are placeholders.",
    ),
    _row("print join-defaults", "Print the defaults of join", "config:print_join", DOCUMENTS),
    _row("print reset-defaults", "Print the defaults of reset", "config:print_reset", DOCUMENTS),
    _row("print upgrade-defaults", "Print the defaults of the upgrade commands", "config:print_upgrade", DOCUMENTS),
    _row(
        "validate",
        "Check a configuration file",
        "config:validate",
        _FILE,
        Flag("allow-deprecated-api", "take deprecated API versions without a warning", kind=BOOL, default=False),
        _EXPERIMENTAL,
        ALL_FORMATS,
        description="Every document of the file is checked as the command that reads it would, and everything that is wrong is told at once.",
    ),
    _row(
        "migrate",
        "Rewrite a configuration file in the newest version of its API",
        "config:migrate",
        Flag("old-config", "file to read", default="", metavar="file"),
        Flag("new-config", "file to write; empty: stdout", default="", metavar="file"),
        _EXPERIMENTAL,
        DOCUMENTS,
        description="The result holds what the configuration means on this machine: defaults, its name and address, resolved versions."
        " Documents of components are left out.",
    ),
    Command(
        "config explain",
        "Explain a field of the configuration kinds: type, default, since when, meaning",
        handler="kubewright.cli.handlers.config:explain",
        argument=Argument("field", "a field such as etcd.local.dataDir, or a kind", shown="FIELD", least=1),
        flags=(ALL_FORMATS, _KUBECONFIG),
        examples=("config explain etcd.local.dataDir", "config explain JoinConfiguration", "config explain timeouts"),
        exit_scheme=KUBEADM,
    ),
    Command(
        "config diff",
        "Show how a configuration file differs from what a cluster keeps",
        handler="kubewright.cli.handlers.config:diff",
        flags=(_FILE, _CLUSTER, ALL_FORMATS),
        description="Compares the file with the ConfigMaps kubeadm-config, kubelet-config and kube-proxy, after defaults were filled in on both"
        " sides. Exits 0 where nothing differs, 1 where something does, 2 or more where that cannot be told.",
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
        Flag("cri-socket", "socket of the container runtime; empty: detect", default="", metavar="socket"),
        ALL_FORMATS,
        description="The container runtime of this machine is asked for every image, also for those that it has.",
    ),
)


_HELP = (
    "token to use instead of a certificate; - reads it from standard input."
    " What stands on a command line is visible to other users while the command runs."
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

_TOKEN = (
    Command("token", summary("token"), flags=_TOKEN_FLAGS, exit_scheme=KUBEADM),
    Command(
        "token create",
        "Make a bootstrap token in the cluster",
        handler="kubewright.cli.handlers.tokens:create",
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
        handler="kubewright.cli.handlers.tokens:delete",
        argument=Argument("token", "ids of tokens, or whole tokens", shown="[token-value] ...", most=ANY),
        flags=(ALL_FORMATS, *_TOKEN_FLAGS),
        exit_scheme=KUBEADM,
        description=_TOKEN_HELP,
        flags_in_usage=False,
    ),
    Command(
        "token generate",
        "Make a random bootstrap token and print it",
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
