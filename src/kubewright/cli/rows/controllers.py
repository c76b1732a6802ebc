"""The rows of `controllers` and `csr`. Those of `controllers run` are kube-controller-manager's flags. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, DURATION, INT32, LIST, Argument, Command, Flag, electing, serving

SIGNERS = {
    "kubelet-client": "kubernetes.io/kube-apiserver-client-kubelet",
    "kubelet-serving": "kubernetes.io/kubelet-serving",
    "kube-apiserver-client": "kubernetes.io/kube-apiserver-client",
    "legacy-unknown": "kubernetes.io/legacy-unknown",
}
"""The signers' words in flags, and their names."""

_KUBECONFIG = Flag("kubeconfig", "kubeconfig of the cluster", metavar="file")

RUN_FLAGS = (
    Flag("config", "file with the same settings: a ControllersConfiguration; flags count more", metavar="file"),
    Flag("kubeconfig", "kubeconfig of the cluster; in a pod its service account is used without one", metavar="file"),
    Flag(
        "controllers",
        "controllers to run: * for those that are on by default, names or aliases, -NAME for all but one",
        kind=LIST,
        default=("*",),
        metavar="strings",
    ),
    Flag("cluster-signing-cert-file", "certificate authority of all signers", metavar="file"),
    Flag("cluster-signing-key-file", "its key", metavar="file"),
    *(
        flag
        for word, signer in SIGNERS.items()
        for flag in (
            Flag(f"cluster-signing-{word}-cert-file", f"certificate authority of {signer}", metavar="file"),
            Flag(f"cluster-signing-{word}-key-file", "its key", metavar="file"),
        )
    ),
    Flag("cluster-signing-duration", "the longest life of a certificate", kind=DURATION, default="8760h0m0s"),
    *electing(),
    Flag("leader-elect-resource-lock", "kind of object that is the lock", default="leases", choices=("leases",)),
    Flag("leader-elect-resource-name", "name of the lease", default="kubewright-controllers"),
    Flag("leader-elect-resource-namespace", "namespace of the lease", default="kube-system"),
    *serving(bind="0.0.0.0", port=10257),  # noqa: S104 (kube-controller-manager's default)
    Flag("kube-api-qps", "requests a second of each controller", default="20", metavar="float32"),
    Flag("kube-api-burst", "requests at once of each controller", kind=INT32, default=30),
)

ROWS = (
    Command("controllers", summary("controllers")),
    Command(
        "controllers run",
        "Run them in kube-controller-manager's place",
        handler="kubewright.cli.handlers.controllers:run",
        flags=RUN_FLAGS,
        description="Approves, signs and cleans certificate requests, signs cluster-info and deletes expired bootstrap tokens, as the controllers of"
        " kube-controller-manager of the same names do, and takes their flags. Where both run, that one needs"
        " --controllers=*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner. Runs until it is stopped by SIGTERM or Ctrl-C.",
        examples=("controllers run --kubeconfig controllers.conf --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key",),
    ),
    Command(
        "controllers manifest",
        "Print what runs them in a cluster",
        handler="kubewright.cli.handlers.controllers_manifest:manifest",
        argument=Argument(
            "form", "static-pod, deployment, or rbac: the rights of the static pod's user", shown="static-pod|deployment|rbac", least=1
        ),
        flags=(
            Flag("image", "image that has this program on its PATH", metavar="image"),
            Flag("replicas", "replicas of the Deployment", kind=INT32, default=2),
            Flag("ca-secret", "Secret of kube-system with the Deployment's certificate authority", default="kubewright-controllers-ca"),
            Flag("controllers", "controllers to run", kind=LIST, default=("*", "bootstrapsigner", "tokencleaner"), metavar="strings"),
            Flag("output", "yaml or json", short="o", default="yaml", choices=("yaml", "json")),
        ),
        description="A static pod for /etc/kubernetes/manifests of a control plane, or a Deployment with all that it needs but the Secret. kube-controller-manager"
        " has to leave the same controllers alone: --controllers=*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner.",
        examples=(
            "controllers manifest deployment --image registry.example/kubewright:1 | kubectl apply -f -",
            "controllers manifest static-pod --image registry.example/kubewright:1 > /etc/kubernetes/manifests/kubewright-controllers.yaml",
        ),
    ),
    Command("csr", summary("csr")),
    Command(
        "csr list",
        "List them with what they ask for",
        handler="kubewright.cli.handlers.csr:list_requests",
        flags=(_KUBECONFIG, ALL_FORMATS),
    ),
    Command(
        "csr show",
        "Show everything that is in one",
        handler="kubewright.cli.handlers.csr:show",
        argument=Argument("name", "name of the request", shown="name", least=1),
        flags=(_KUBECONFIG, ALL_FORMATS),
    ),
    Command(
        "csr explain",
        "Say what each controller would decide about one, and why",
        handler="kubewright.cli.handlers.csr:explain",
        argument=Argument(
            "name",
            "name of a request, or a file with one that was never sent: PEM, or a CertificateSigningRequest",
            shown="name|file",
            least=1,
        ),
        flags=(
            _KUBECONFIG,
            Flag("signer", "signer to ask, for a file of PEM", default=SIGNERS["kubelet-client"], choices=tuple(SIGNERS.values())),
            Flag("usages", "usages to ask for, for a file of PEM", kind=LIST, default=("digital signature", "client auth")),
            Flag("username", "who would send it, for a file of PEM"),
            ALL_FORMATS,
        ),
    ),
)
