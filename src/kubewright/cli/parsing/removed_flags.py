"""Flags and commands that kubeadm once had: the release that removed them, and the replacement.

Imported only for an unknown flag or word. Sources: the changelogs of Kubernetes; docs/compat/classic.md shows the same
tables to users.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubewright.base.level import KUBERNETES
from kubewright.base.versions import Version
from kubewright.manifests.extra_arguments import flags_of

_LOGS: Final = "shell redirection: the log goes to stderr, and -v sets its verbosity"
_FILE: Final = "a configuration file, --config: {}"

# Command that had the flag ("" for any), its name without dashes, the release that removed it, the replacement.
FLAGS: Final = (
    ("", "experimental-kustomize", "v1.20", "--patches"),
    ("", "k", "v1.20", "--patches"),
    ("", "experimental-patches", "v1.23", "--patches"),
    ("", "experimental-upload-certs", "v1.16", "--upload-certs"),
    ("", "experimental-control-plane", "v1.16", "--control-plane"),
    ("", "experimental-output", "v1.32", "--output"),
    ("", "skip-preflight-checks", "v1.12", "--ignore-preflight-errors=all"),
    ("init phase certs", "csr-only", "v1.22", "`certs generate-csr`"),
    ("init phase certs", "csr-dir", "v1.22", "`certs generate-csr --cert-dir`"),
    ("certs renew", "csr-only", "v1.23", "`certs generate-csr`"),
    ("certs renew", "csr-dir", "v1.23", "`certs generate-csr --cert-dir`"),
    ("certs renew", "use-api", "v1.19", "nothing: certificates are signed with the CA's key on this machine"),
    ("upgrade apply", "image-pull-timeout", "v1.22", "nothing: images are pulled without a limit of time"),
    ("upgrade apply", "feature-gates", "v1.32", "nothing: the gates of the cluster stay; edit the ConfigMap kubeadm-config"),
    ("upgrade diff", "api-server-manifest", "v1.32", "nothing: the manifests are found below /etc/kubernetes/manifests"),
    ("upgrade diff", "controller-manager-manifest", "v1.32", "nothing: the manifests are found below /etc/kubernetes/manifests"),
    ("upgrade diff", "scheduler-manifest", "v1.32", "nothing: the manifests are found below /etc/kubernetes/manifests"),
    ("upgrade node", "kubelet-version", "v1.19", "nothing: the version of the cluster is used"),
    ("init", "api-advertise-addresses", "v1.6", "--apiserver-advertise-address"),
    ("init", "api-port", "v1.6", "--apiserver-bind-port"),
    ("init", "api-external-dns-names", "v1.6", "--apiserver-cert-extra-sans"),
    ("init", "use-kubernetes-version", "v1.6", "--kubernetes-version"),
    ("init", "cloud-provider", "v1.6", "a cloud controller manager of the provider's"),
    ("init", "external-etcd-endpoints", "v1.6", _FILE.format("etcd.external.endpoints")),
    ("init", "external-etcd-cafile", "v1.6", _FILE.format("etcd.external.caFile")),
    ("init", "external-etcd-certfile", "v1.6", _FILE.format("etcd.external.certFile")),
    ("init", "external-etcd-keyfile", "v1.6", _FILE.format("etcd.external.keyFile")),
    ("init", "discovery", "v1.6", "--token"),
    ("join", "discovery", "v1.6", "--discovery-token or --discovery-file"),
    *(
        ("", name, "v1.26", _LOGS)
        for name in (
            "add-dir-header",
            "alsologtostderr",
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "logtostderr",
            "one-output",
            "skip-headers",
            "skip-log-headers",
            "stderrthreshold",
        )
    ),
)

COMMANDS: Final = (
    ("alpha phase", "v1.14", "`init phase`"),
    ("alpha preflight", "v1.14", "`init phase preflight`"),
    ("alpha certs", "v1.21", "`certs`"),
    ("alpha kubeconfig", "v1.22", "`kubeconfig`"),
    ("alpha kubelet", "v1.20", "a KubeletConfiguration document in the configuration file"),
    ("alpha selfhosting", "v1.21", "nothing: control planes run as static pods"),
    ("config view", "v1.22", "`kubectl get configmap -n kube-system kubeadm-config -o yaml`"),
    ("config upload", "v1.19", "`init phase upload-config`"),
    ("config print-default", "v1.14", "`config print init-defaults` and `config print join-defaults`"),
    ("config print-defaults", "v1.14", "`config print init-defaults` and `config print join-defaults`"),
    ("upgrade node config", "v1.19", "`upgrade node`"),
    ("upgrade node experimental-control-plane", "v1.19", "`upgrade node`"),
    ("init phase mark-master", "v1.14", "`init phase mark-control-plane`"),
    ("init phase addon kube-dns", "v1.21", "`init phase addon coredns`"),
    ("init phase selfhosting", "v1.21", "nothing: control planes run as static pods"),
    ("join phase control-plane-join update-status", "v1.31", "nothing: ClusterStatus no longer exists"),
    ("join phase control-plane-join etcd", "v1.36", "`join phase etcd-join`"),
    ("reset phase update-cluster-status", "v1.31", "nothing: ClusterStatus no longer exists"),
)


def flag_hint(command: Sequence[str], flag: str) -> str:
    """Explain a removed flag of a command, or return ''. `flag` may include its dashes, and a value after `=`."""
    name, words = flag.lstrip("-").partition("=")[0], " ".join(command)
    for owner, known, since, instead in FLAGS:
        if name == known and (not owner or words == owner or words.startswith(f"{owner} ")):
            return _said(f"--{name}" if len(name) > 1 else f"-{name}", since, instead)
    return _of_controller_manager(name) if words == "controllers run" else ""


def _of_controller_manager(name: str) -> str:
    """Explain that a flag of kube-controller-manager is for controllers that we do not have, or return ''."""
    known = flags_of("kube-controller-manager", Version.parse(KUBERNETES).line)
    if known is None or name not in known.flags:
        return ""
    return f"--{name} is for controllers that only kube-controller-manager has: leave it out here, and set it there"


def command_hint(words: Sequence[str]) -> str:
    """Explain a removed command, given all words before flags, or return ''."""
    typed = " ".join(words)
    for known, since, instead in COMMANDS:
        if typed == known or typed.startswith(f"{known} "):
            return _said(f"`{known}`", since, instead)
    return ""


def _said(what: str, since: str, instead: str) -> str:
    if instead.startswith("nothing"):
        return f"{what} was removed in {since}; leave it out{instead.removeprefix('nothing')}"
    return f"{what} was removed in {since}; use {instead}"
