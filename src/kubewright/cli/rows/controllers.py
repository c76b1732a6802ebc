"""The rows of `controllers` and `csr`.

Those of `controllers run` are kube-controller-manager's flags. Imports nothing heavy.
"""

from __future__ import annotations

from kubewright.cli.rows.commands import summary
from kubewright.cli.rows.model import ALL_FORMATS, ANY, BOOL, DURATION, INT32, LIST, Argument, Command, Flag, electing, serving

SIGNERS = {
    "kubelet-client": "kubernetes.io/kube-apiserver-client-kubelet",
    "kubelet-serving": "kubernetes.io/kubelet-serving",
    "kube-apiserver-client": "kubernetes.io/kube-apiserver-client",
    "legacy-unknown": "kubernetes.io/legacy-unknown",
}
"""The words for signers in flags, and the signers' names."""

_KUBECONFIG = Flag("kubeconfig", "kubeconfig of the cluster", metavar="file")
_NODE_POLICY = Flag(
    "node-policy",
    "NodeApprovalPolicy for serving certificates, a file or configmap:NAMESPACE/NAME (default: the cluster's own, if it has one)",
    metavar="file",
)
_ALL_MATCHING = Flag("all-matching", "also all pending requests of nodes whose names match a pattern with * and ?", metavar="pattern")
_JOURNAL = Flag(
    "journal",
    "file to which the decisions are appended as lines of JSON; - for standard output (default: $XDG_STATE_HOME/kubewright/decisions.jsonl)",
    metavar="file",
)

RUN_FLAGS = (
    Flag("config", "file with the same settings (ControllersConfiguration); flags override it", metavar="file"),
    Flag("kubeconfig", "kubeconfig of the cluster; without one, the service account of the pod is used", metavar="file"),
    Flag(
        "controllers",
        "controllers to run: * for those that are on by default, names or aliases, -NAME to disable one",
        kind=LIST,
        default=("*",),
        metavar="strings",
    ),
    Flag("cluster-signing-cert-file", "CA certificate for all signers", metavar="file"),
    Flag("cluster-signing-key-file", "key of that CA", metavar="file"),
    *(
        flag
        for word, signer in SIGNERS.items()
        for flag in (
            Flag(f"cluster-signing-{word}-cert-file", f"CA certificate for {signer}", metavar="file"),
            Flag(f"cluster-signing-{word}-key-file", "key of that CA", metavar="file"),
        )
    ),
    Flag("cluster-signing-duration", "maximum lifetime of certificates", kind=DURATION, default="8760h0m0s"),
    Flag(
        "node-policy",
        "NodeApprovalPolicy for servingapproving, a file or configmap:NAMESPACE/NAME; it is read again when it changes",
        metavar="file",
    ),
    Flag("journal", "file to which decisions of servingapproving are appended as lines of JSON; - for standard output", metavar="file"),
    *electing(),
    Flag("leader-elect-resource-lock", "kind of the lock object", default="leases", choices=("leases",)),
    Flag("leader-elect-resource-name", "name of the lease", default="kubewright-controllers"),
    Flag("leader-elect-resource-namespace", "namespace of the lease", default="kube-system"),
    *serving(bind="0.0.0.0", port=10257),  # noqa: S104 (kube-controller-manager's default)
    Flag("kube-api-qps", "requests per second of each controller", default="20", metavar="float32"),
    Flag("kube-api-burst", "burst of requests of each controller", kind=INT32, default=30),
)

ROWS = (
    Command("controllers", summary("controllers")),
    Command(
        "controllers run",
        "Run the certificate and bootstrap controllers",
        handler="kubewright.cli.handlers.controllers.run:run",
        flags=RUN_FLAGS,
        description="Approves, signs and cleans up certificate requests, signs cluster-info and deletes expired bootstrap tokens, like the controllers of the"
        " same names in kube-controller-manager, and accepts their flags. If kube-controller-manager runs too, it needs"
        " --controllers=*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner. Runs until it is stopped by SIGTERM or Ctrl-C.",
        examples=("controllers run --kubeconfig controllers.conf --cluster-signing-cert-file ca.crt --cluster-signing-key-file ca.key",),
    ),
    Command(
        "controllers manifest",
        "Print manifests that run the controllers in a cluster",
        handler="kubewright.cli.handlers.controllers.manifest:manifest",
        argument=Argument(
            "form",
            "static-pod, deployment, or rbac (the permissions of the static pod's user)",
            shown="static-pod|deployment|rbac",
            least=1,
        ),
        flags=(
            Flag("image", "image with this program on its PATH", metavar="image"),
            Flag("replicas", "replicas of the Deployment", kind=INT32, default=2),
            Flag("ca-secret", "Secret in kube-system with the CA for the Deployment", default="kubewright-controllers-ca"),
            Flag("controllers", "controllers to run", kind=LIST, default=("*", "bootstrapsigner", "tokencleaner"), metavar="strings"),
            Flag("output", "yaml or json", short="o", default="yaml", choices=("yaml", "json")),
        ),
        description="Prints a static pod for /etc/kubernetes/manifests of a control plane, or a Deployment with everything that it needs except the Secret. Disable the same"
        " controllers in kube-controller-manager: --controllers=*,-csrapproving,-csrsigning,-csrcleaner,-bootstrapsigner,-tokencleaner."
        " With --controllers servingapproving it needs no Secret and no change of kube-controller-manager, but the policy:"
        " kubectl -n kube-system create configmap kubewright-node-policy --from-file=policy.yaml.",
        examples=(
            "controllers manifest deployment --image registry.example/kubewright:1 | kubectl apply -f -",
            "controllers manifest deployment --image registry.example/kubewright:1 --controllers servingapproving | kubectl apply -f -",
            "controllers manifest static-pod --image registry.example/kubewright:1 > /etc/kubernetes/manifests/kubewright-controllers.yaml",
        ),
    ),
    Command(
        "controllers audit",
        "Compare the serving certificates of kubelets with the policy",
        handler="kubewright.cli.handlers.controllers.audit:audit",
        flags=(
            _KUBECONFIG,
            _NODE_POLICY,
            Flag(
                "kubelet-certificate-authority", "CA that signs the certificates of kubelets (default: that of the cluster)", metavar="file"
            ),
            Flag("timeout", "how long to wait for each kubelet", kind=DURATION, default="5s"),
            ALL_FORMATS,
        ),
        description="Looks at the certificates of CertificateSigningRequests, and at those that the kubelets show at their addresses. The exit code"
        " is 4 if a certificate has names that are not its node's own, or was not signed by the cluster.",
        examples=(
            "controllers audit",
            "controllers audit --timeout 10s -o json",
        ),
    ),
    Command("csr", summary("csr")),
    Command(
        "csr list",
        "List certificate requests and what they ask for",
        handler="kubewright.cli.handlers.controllers.csr:list_requests",
        flags=(
            _KUBECONFIG,
            _NODE_POLICY,
            Flag("pending", "only requests without a decision", kind=BOOL, default=False),
            ALL_FORMATS,
        ),
        examples=(
            "csr list",
            "csr list --pending -o json",
        ),
    ),
    Command(
        "csr show",
        "Show all details of a certificate request",
        handler="kubewright.cli.handlers.controllers.csr:show",
        argument=Argument("name", "name of the request", shown="name", least=1),
        flags=(_KUBECONFIG, _NODE_POLICY, ALL_FORMATS),
        examples=("csr show csr-x7k2p",),
    ),
    Command(
        "csr approve",
        "Approve certificate requests that the rules of the cluster allow",
        handler="kubewright.cli.handlers.controllers.csr_decisions:approve",
        argument=Argument("name", "names of requests", shown="[name] ...", most=ANY),
        flags=(
            _KUBECONFIG,
            _NODE_POLICY,
            _ALL_MATCHING,
            Flag("override", "reason for approving requests that no rule allows; the journal keeps it", metavar="reason"),
            _JOURNAL,
            ALL_FORMATS,
        ),
        description="A request for a serving certificate must pass the checks of the node policy, one for a client certificate of a node those of"
        " csrapproving. Others are refused, unless --override gives a reason to approve them anyway.",
        examples=(
            "csr approve csr-x7k2p",
            "csr approve --all-matching 'worker-*'",
            "csr approve csr-x7k2p --override 'new address, ticket 4711'",
        ),
    ),
    Command(
        "csr deny",
        "Deny certificate requests",
        handler="kubewright.cli.handlers.controllers.csr_decisions:deny",
        argument=Argument("name", "names of requests", shown="[name] ...", most=ANY),
        flags=(
            _KUBECONFIG,
            _ALL_MATCHING,
            Flag("message", "reason, shown in the request's condition", metavar="text"),
            _JOURNAL,
            ALL_FORMATS,
        ),
        examples=("csr deny csr-x7k2p --message 'not our machine'",),
    ),
    Command(
        "csr explain",
        "Explain what each controller would do about a certificate request, and why",
        handler="kubewright.cli.handlers.controllers.csr:explain",
        argument=Argument(
            "name",
            "name of a request in the cluster, or a file with a request: PEM, or a CertificateSigningRequest",
            shown="name|file",
            least=1,
        ),
        flags=(
            _KUBECONFIG,
            Flag("signer", "signer of the request, for a PEM file", default=SIGNERS["kubelet-client"], choices=tuple(SIGNERS.values())),
            Flag("usages", "usages of the request, for a PEM file", kind=LIST, default=("digital signature", "client auth")),
            _NODE_POLICY,
            Flag("username", "user who would send the request, for a PEM file"),
            ALL_FORMATS,
        ),
        examples=(
            "csr explain csr-x7k2p",
            "csr explain request.pem --username system:node:worker-1",
        ),
    ),
)
