"""Flags that several commands have. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import BOOL, INT32, LIST, Flag


def output(*formats: str) -> Flag:
    """Return an `-o` with these forms, the first of which is the default."""
    return Flag("output", f"form of the result: {', '.join(formats)}", default=formats[0], short="o", choices=formats, metavar="format")


ALL_FORMATS = output("text", "json", "yaml")
DOCUMENTS = output("yaml", "json")
"""For commands whose text is YAML documents."""

CONFIG = Flag("config", "kubeadm configuration file", default="", metavar="file")
KUBECONFIG = Flag("kubeconfig", "kubeconfig to talk to the cluster with", default="/etc/kubernetes/admin.conf", metavar="file")
CERT_DIR = Flag("cert-dir", "directory of the certificates", default="/etc/kubernetes/pki", metavar="dir")

ADOPT = Flag("adopt", "take over a machine that something else made a part of a cluster", kind=BOOL, default=False)

MACHINE_FLAGS = (
    CONFIG,
    KUBECONFIG,
    CERT_DIR,
    Flag(
        "apiserver-advertise-address",
        "IP address that this API server is reached by; empty: from the default route",
        default="",
        metavar="ip",
    ),
    Flag("apiserver-bind-port", "port of the API server", kind=INT32, default=6443, metavar="port"),
    Flag(
        "certificate-key", "key that seals the certificates for upload, 64 hexadecimal digits; or -, or a path", default="", metavar="hex"
    ),
    Flag("cri-socket", "socket of the container runtime; empty: detect", default="", metavar="socket"),
    Flag("dry-run", "write nothing to the machine; say what would be done", kind=BOOL, default=False),
    Flag("ignore-preflight-errors", "checks whose errors become warnings, or all", kind=LIST, metavar="names"),
    Flag("node-name", "name of this node", default="", metavar="name"),
    Flag("patches", "directory of patches", default="", metavar="dir"),
    Flag("skip-phases", "phases to leave out", kind=LIST, metavar="phases"),
)
"""What init, join, reset and upgrade have in common."""


def by_name(*flags: Flag) -> dict[str, Flag]:
    """Return the common flags of the machine commands and these by name; one of these replaces a common one."""
    return {flag.name: flag for flag in (*MACHINE_FLAGS, *flags)}
