"""The rows of the `config` commands (spec/kubeadm.md 1.8). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import BOOL, DIFF, KUBEADM, LIST, Argument, Command, Flag
from kubewright.cli.printer_flags import PRINTED
from kubewright.cli.shared_flags import ALL_FORMATS, DOCUMENTS
from kubewright.cli.toplevel import summary

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
        handler=f"kubewright.cli.config:{handler}" if handler else "",
        flags=(*flags, _KUBECONFIG),
        exit_scheme=KUBEADM,
        description=description,
    )


ROWS = (
    _row("", summary("config")),
    _row("print", "Print example configurations"),
    _row(
        "print init-defaults",
        "Print the defaults of init",
        "print_init",
        Flag("component-configs", "also KubeProxyConfiguration, KubeletConfiguration", kind=LIST, metavar="kinds"),
        DOCUMENTS,
        description="Values that belong to one machine, and the token, are placeholders.",
    ),
    _row("print join-defaults", "Print the defaults of join", "print_join", DOCUMENTS),
    _row("print reset-defaults", "Print the defaults of reset", "print_reset", DOCUMENTS),
    _row("print upgrade-defaults", "Print the defaults of the upgrade commands", "print_upgrade", DOCUMENTS),
    _row(
        "validate",
        "Check a configuration file",
        "validate",
        _FILE,
        Flag("allow-deprecated-api", "take deprecated API versions without a warning", kind=BOOL, default=False),
        _EXPERIMENTAL,
        ALL_FORMATS,
        description="Every document of the file is checked as the command that reads it would, and everything that is wrong is told at once.",
    ),
    _row(
        "migrate",
        "Rewrite a configuration file in the newest version of its API",
        "migrate",
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
        handler="kubewright.cli.config:explain",
        argument=Argument("field", "a field such as etcd.local.dataDir, or a kind", shown="FIELD", least=1),
        flags=(ALL_FORMATS, _KUBECONFIG),
        examples=("config explain etcd.local.dataDir", "config explain JoinConfiguration", "config explain timeouts"),
        exit_scheme=KUBEADM,
    ),
    Command(
        "config diff",
        "Show how a configuration file differs from what a cluster keeps",
        handler="kubewright.cli.config_diff:diff",
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
        "images_list",
        *_IMAGES,
        *PRINTED,
    ),
    _row(
        "images pull",
        "Pull the images of a control plane",
        "images_pull",
        *_IMAGES,
        Flag("cri-socket", "socket of the container runtime; empty: detect", default="", metavar="socket"),
        ALL_FORMATS,
        description="The container runtime of this machine is asked for every image, also for those that it has.",
    ),
)
