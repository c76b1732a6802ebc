"""The rows of `certs` (spec/kubeadm.md 1.7). Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import KUBEADM, Command, Flag
from kubewright.cli.printer_flags import PRINTED
from kubewright.cli.shared_flags import ALL_FORMATS, CERT_DIR, CONFIG
from kubewright.cli.toplevel import summary

_OWN_CERT_DIR = Flag("cert-dir", "directory of the certificates; if not given, that of the configuration", default="", metavar="dir")
_CERT_DIR = Flag("cert-dir", _OWN_CERT_DIR.summary, default=CERT_DIR.default, metavar="dir")
_ADMIN = Flag("kubeconfig", "kubeconfig to read the cluster's configuration with", default="/etc/kubernetes/admin.conf", metavar="file")

# What `certs renew` renews: names and long names, as pki's table has them (spec/kubeadm.md 10.1). A test compares the two.
RENEWED = (
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


def _renew_command(name: str, text: str) -> Command:
    flags = (_CERT_DIR, CONFIG, _ADMIN, ALL_FORMATS)
    return Command(f"certs renew {name}", text, handler="kubewright.cli.certs:renew", flags=flags, exit_scheme=KUBEADM)


ROWS = (
    Command("certs", summary("certs"), aliases=("certificates",), exit_scheme=KUBEADM),
    Command(
        "certs certificate-key",
        "Make a random key for uploading certificates and print it",
        handler="kubewright.cli.certificate_key:certificate_key",
        flags=(ALL_FORMATS,),
        exit_scheme=KUBEADM,
    ),
    Command(
        "certs check-expiration",
        "Show when certificates and authorities end",
        handler="kubewright.cli.certs:check_expiration",
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
        handler="kubewright.cli.certs:generate_csr",
        flags=(
            _OWN_CERT_DIR,
            CONFIG,
            Flag("kubeconfig-dir", "directory of the kubeconfig files", default="/etc/kubernetes", metavar="dir"),
            ALL_FORMATS,
        ),
        exit_scheme=KUBEADM,
    ),
    Command("certs renew", "Renew certificates", exit_scheme=KUBEADM),
    _renew_command("all", "Renew all certificates"),
    *(_renew_command(name, f"Renew the {long_name}") for name, long_name in RENEWED),
)
