"""Generated control planes for the differential tests: configurations that are almost always valid, and that affect every file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from component_kit import TEXTS, kubelets, proxies
from config_kit import KEY, TOKEN, V1BETA3, V1BETA4, maybe
from hypothesis import strategies as st

FOUR, SIX = "10.98.0.11", "fd00:98::11"

_ZEROS = st.sampled_from(("", "", "0", "00", "000000"))


@st.composite
def sloppy_addresses(draw: st.DrawFn) -> str:
    """Addresses for an API server, some with leading zeros, which Go once accepted and Kubernetes still does."""

    def zeroed(*numbers: str) -> list[str]:
        return [draw(_ZEROS) + number for number in numbers]

    four = ".".join(zeroed("198", "51", "100", str(draw(st.integers(1, 254)))))
    if draw(st.booleans()):
        return draw(st.sampled_from(("", "::ffff:", "::0ffff:", "0:0:0:0:0:FFFF:"))) + four
    end = draw(st.sampled_from(("::", ":0:00:000::", ":1:2:3:4:5:6:")))
    return ":".join(zeroed("fd00")) + end + ":".join(zeroed(format(draw(st.integers(1, 0xFFFF)), draw(st.sampled_from("xX")))))


_FLAGS = st.sampled_from(
    ("v", "z", "audit-log-path", "authorization-mode", "feature-gates", "bind-address", "advertise-address", "data-dir")
)
_NAMES = _FLAGS | st.from_regex(r"[a-z][a-z0-9-]{0,12}", fullmatch=True)
_PATHS = st.sampled_from(("/etc/kubernetes/extra", "/opt/x", "/var/log/audit.log", "/etc/ssl/certs", "/a b", "/etc/kubernetes/pki"))
_TYPES = st.sampled_from(("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"))
_IMAGES = {
    "imageRepository": st.sampled_from(("r.example.com/a", "localhost:5000", "a/b/c")),
    "imageTag": st.sampled_from(("v1", "3.6.0-0", "x_y")),
}
_HOSTS = st.sampled_from(
    ("a.example.com", "b", "*.x.example", "10.0.0.9", "fd00::9", "FD00::0:9", "192.168.1.1", "198.051.100.007", "kubernetes", "localhost")
)
_SANS = st.lists(_HOSTS, max_size=4)
_LIVES = st.sampled_from(("9000h", "100h", "87600h", "24h0m1s", "8760h"))


@dataclass(frozen=True)
class Made:
    """A configuration file and the other files of the machine."""

    documents: list[dict[str, Any]]
    environment: dict[str, str]
    patches: dict[str, str]
    """By the path of their file."""


def arguments(old: bool) -> st.SearchStrategy[Any]:
    if old:
        return st.dictionaries(_NAMES, TEXTS, max_size=3)
    return st.lists(st.fixed_dictionaries({"name": _NAMES, "value": TEXTS}), max_size=4)


_VOLUMES = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(("n", "m-1", "k8s-certs", "x")), "hostPath": _PATHS, "mountPath": _PATHS},
        optional={"readOnly": st.booleans(), "pathType": _TYPES},
    ),
    max_size=3,
)
_FROM = st.sampled_from(
    (
        {"fieldRef": {"fieldPath": "status.podIP"}},
        {"secretKeyRef": {"name": "s", "key": "k"}},
        {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}},
        {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
    )
)
_ENVS = st.lists(
    st.sampled_from(("A", "B_C", "HTTP_PROXY")).flatmap(
        lambda name: (
            st.fixed_dictionaries({"name": st.just(name), "value": TEXTS})
            | st.fixed_dictionaries({"name": st.just(name), "valueFrom": _FROM})
        )
    ),
    max_size=3,
)


def component(old: bool, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"extraEnvs": _ENVS}
    return maybe(extraArgs=arguments(old), extraVolumes=_VOLUMES, **newer, **more)


def _etcd(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"extraEnvs": _ENVS}
    directory = st.sampled_from(("/var/lib/etcd", "/var/lib/other/etcd", "/srv/etcd"))
    local = maybe(dataDir=directory, extraArgs=arguments(old), serverCertSANs=_SANS, peerCertSANs=_SANS, **_IMAGES, **newer)
    urls = st.lists(st.sampled_from(("https://10.0.0.1:2379", "https://a.example:2379", "https://[fd00::5]:2379")), min_size=1, max_size=3)
    files = {"caFile": "/etc/etcd/ca.crt", "certFile": "/etc/etcd/c.crt", "keyFile": "/srv/keys/c.key"}
    external = st.builds(lambda found, secure: {"endpoints": found, **(files if secure else {})}, urls, st.booleans())
    return st.one_of(maybe(local=local), maybe(local=local), st.fixed_dictionaries({"external": external}))


@dataclass(frozen=True)
class _Family:
    """Subnets and addresses that fit together."""

    services: tuple[str, ...]
    pods: tuple[str, ...]
    addresses: tuple[str, ...]


_FAMILIES = (
    _Family(
        ("10.96.0.0/12", "172.30.0.0/16", "10.0.0.0/24", "192.168.7.0/28"), ("10.244.0.0/16", "10.32.0.0/12", "172.16.0.0/24"), (FOUR,)
    ),
    _Family(("fd00:96::/112", "fd00:96::/108"), ("fd00:244::/56", "fd00:244::/48"), (SIX,)),
    _Family(("10.96.0.0/16,fd00:96::/112", "fd00:96::/112,10.96.0.0/16"), ("10.244.0.0/16,fd00:244::/56",), (FOUR, SIX)),
)


def _networking(family: _Family) -> st.SearchStrategy[dict[str, Any]]:
    needed = {} if family is _FAMILIES[0] else {"serviceSubnet": st.sampled_from(family.services)}
    optional = {"podSubnet": st.sampled_from(family.pods), "dnsDomain": st.sampled_from(("cluster.local", "a.b", "x"))}
    return st.fixed_dictionaries(needed, optional=optional | ({} if needed else {"serviceSubnet": st.sampled_from(family.services)}))


_ENDPOINTS = st.sampled_from(
    ("cp.example.com:6443", "cp.example.com:7443", "10.0.0.5", "cp.example.com", "[fd00::5]:6443", "fd00::5", "10.0.0.5:1")
)


def _cluster(old: bool, family: _Family) -> st.SearchStrategy[dict[str, Any]]:
    newer = (
        {}
        if old
        else {
            "encryptionAlgorithm": st.sampled_from(("ECDSA-P256",) * 5 + ("ECDSA-P384",)),
            "certificateValidityPeriod": _LIVES,
            "caCertificateValidityPeriod": _LIVES,
            "proxy": maybe(disabled=st.booleans()),
        }
    )
    root = {"RootlessControlPlane": st.booleans()} if os.geteuid() == 0 else {}  # other users may not give files to nobody
    gates = st.fixed_dictionaries({"PublicKeysECDSA": st.just(True)} if old else {}, optional={**root, "NodeLocalCRISocket": st.booleans()})
    fast = {"featureGates": gates}
    timeout = {"timeoutForControlPlane": st.sampled_from(("4m0s", "5m"))} if old else {}
    needed = {
        "kubernetesVersion": st.sampled_from(("v1.36.3", "v1.36.3", "v1.36.0", "v1.35.0", "1.36.1", "v1.35.4")),
        "networking": _networking(family),
        **fast,
        **({"encryptionAlgorithm": newer.pop("encryptionAlgorithm")} if newer else {}),
    }
    return st.fixed_dictionaries(
        needed,
        optional={
            "etcd": _etcd(old),
            "controlPlaneEndpoint": _ENDPOINTS,
            "apiServer": component(old, certSANs=_SANS, **timeout),
            "controllerManager": component(old),
            "scheduler": component(old),
            "dns": maybe(**_IMAGES, **({} if old else {"disabled": st.booleans()})),
            "certificatesDir": st.sampled_from(("/etc/kubernetes/pki", "/etc/kubernetes/other", "/srv/pki")),
            "imageRepository": _IMAGES["imageRepository"],
            "clusterName": TEXTS,
            **newer,
        },
    )


_TAINTS = st.lists(
    st.fixed_dictionaries(
        {"key": st.sampled_from(("k", "a.example/b")), "effect": st.sampled_from(("NoSchedule", "NoExecute", "PreferNoSchedule"))},
        optional={"value": st.sampled_from(("v", "1", "true"))},
    ),
    max_size=2,
)


def _init(old: bool, family: _Family) -> st.SearchStrategy[dict[str, Any]]:
    newer: dict[str, Any] = {} if old else {"timeouts": maybe(kubeletHealthCheck=st.sampled_from(("1m", "4m0s")))}
    registration = maybe(
        name=st.sampled_from(("node1", "node-2.example.com", "NODE3")),
        criSocket=st.sampled_from(("unix:///run/containerd/containerd.sock", "unix:///var/run/crio/crio.sock", "/run/x.sock")),
        taints=_TAINTS,
        kubeletExtraArgs=arguments(old),
        imagePullPolicy=st.sampled_from(("Always", "Never")),
        ignorePreflightErrors=st.just(["Swap"]),
    )
    tokens = st.just([{"token": TOKEN, "ttl": "1h0m0s"}])
    return st.fixed_dictionaries(
        {
            "localAPIEndpoint": st.fixed_dictionaries(
                {"advertiseAddress": st.sampled_from(family.addresses)}, optional={"bindPort": st.sampled_from((6443, 7443, 1))}
            ),
            "nodeRegistration": registration,
            "bootstrapTokens": tokens,
        },
        optional={"certificateKey": st.just(KEY), **newer},
    )


_PROXY_VARIABLES = st.sampled_from(("HTTP_PROXY", "https_proxy", "NO_PROXY", "all_proxy", "FTP_PROXY", "No_Proxy"))
_ENVIRONMENTS = st.just({}) | st.dictionaries(
    _PROXY_VARIABLES, st.sampled_from(("http://p.example:3128", "10.0.0.0/8,.svc", "")), max_size=3
)


PATCHES = "/srv/patches"
_PODS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
_STRATEGIC = (
    "metadata: {annotations: {a: b}, labels: {x: '1'}}",
    "spec: {priorityClassName: null, dnsPolicy: Default}",
    "spec: {containers: [{name: etcd, resources: {requests: {cpu: '2', memory: 1Gi}}}]}",
    "spec: {containers: [{name: kube-apiserver, livenessProbe: null, env: [{name: A, value: b}]}, {name: more, image: m}]}",
    "spec: {containers: [{name: kube-scheduler, command: [a, b], volumeMounts: [{mountPath: /x, name: x}]}]}",
    "spec: {volumes: [{name: x, emptyDir: {}}, {$patch: delete, name: etcd-data}], tolerations: [{operator: Exists}]}",
    "spec: {securityContext: {$patch: replace, runAsUser: 5}}",
    "maxPods: 5",
    "",
)
_JSON = (
    '[{"op": "add", "path": "/metadata/annotations/x", "value": "y"}]',
    '[{"op": "replace", "path": "/spec/hostNetwork", "value": false}]',
    '[{"op": "remove", "path": "/spec/priority"}]',
    '[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--v=9"}]',
    '[{"op": "test", "path": "/spec/hostNetwork", "value": true}, {"op": "remove", "path": "/spec/hostNetwork"}]',
    '[{"op": "move", "from": "/spec/priorityClassName", "path": "/spec/schedulerName"}]',
    "- {op: remove, path: /spec/nothing}",
)
_MERGES = ("spec: {containers: []}", "spec: {volumes: null}", "metadata: {name: other}", "clusterDNS: [10.0.0.1]", "kind: Pod")
_KINDS = {"": _STRATEGIC, "+strategic": _STRATEGIC, "+json": _JSON, "+merge": _MERGES}


@st.composite
def _patch(draw: st.DrawFn) -> tuple[str, str]:
    target = draw(st.sampled_from((*_PODS, *_PODS, "kubeletconfiguration", "corednsdeployment")))
    kind = draw(st.sampled_from(tuple(_KINDS)))
    return f"{PATCHES}/{target}{draw(st.sampled_from(('', '0', '1-a')))}{kind}.yaml", draw(st.sampled_from(_KINDS[kind]))


@st.composite
def machines(draw: st.DrawFn) -> Made:
    """Configurations of `init` for a machine that is called node1."""
    family = draw(st.sampled_from((_FAMILIES[0], _FAMILIES[0], *_FAMILIES)))
    old, other = draw(st.sampled_from((False, False, False, True))), draw(st.sampled_from((False, False, False, True)))
    documents = [
        {"apiVersion": V1BETA3 if old else V1BETA4, "kind": "InitConfiguration", **draw(_init(old, family))},
        {"apiVersion": V1BETA3 if other else V1BETA4, "kind": "ClusterConfiguration", **draw(_cluster(other, family))},
    ]
    if draw(st.booleans()):
        documents.append(draw(kubelets()))
    if draw(st.booleans()):
        documents.append(draw(proxies()))
    patches = dict(draw(st.lists(_patch(), min_size=1, max_size=3))) if draw(st.integers(0, 3)) == 0 else {}
    if patches:
        documents[0]["patches"] = {"directory": PATCHES}
    return Made(documents, draw(_ENVIRONMENTS), patches)
