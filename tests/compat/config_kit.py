"""Generated configuration files for the differential tests: mostly valid ones, and some that were broken on purpose."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

from kubewright.base import yaml

V1BETA4 = "kubeadm.k8s.io/v1beta4"
V1BETA3 = "kubeadm.k8s.io/v1beta3"
TOKEN = "abcdef.0123456789abcdef"
KEY = "00" * 32


def maybe(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with some of these fields."""
    return st.fixed_dictionaries({}, optional=fields)


def of(*values: object) -> st.SearchStrategy[Any]:
    """One of these values, the first two more often than the others: they are valid, so that whole files are valid often enough."""
    return st.sampled_from((*values[:2] * 4, *values))


_TEXT = of("a", "b-c", "v", "", "x y", "ü", "1", "true", "null")
_NAMES = of("node1", "node1", "node1", "Node-A", "a.b.c", "-bad", "", "a_b")
_PATHS = of("/etc/kubernetes/pki", "/opt/x", "/opt/x", "/", "relative", "", "./x")
_SOCKETS = of(
    "unix:///run/containerd/containerd.sock", "unix:///x", "/run/crio.sock", "/x", "npipe://x", "unix://", "tcp://h:1", "unix:///%zz", "a b"
)
_DURATIONS = of("4m", "4m0s", "1h", "90s", "0s", "1.5h", "-1m", "", "5", 5, None, "87601h", "9000h", "2562048h")
_ARGS = st.lists(st.fixed_dictionaries({"name": of("v", "v", "audit-log-path", "z", ""), "value": of("1", "", "a,b=c")}), max_size=3)
_OLD_ARGS = st.dictionaries(of("v", "z", "a-b", ""), of("1", "", "x"), max_size=3)
_VOLUMES = st.lists(
    st.fixed_dictionaries(
        {"name": of("n", ""), "hostPath": of("/h", "h"), "mountPath": of("/m", "")},
        optional={"readOnly": st.booleans(), "pathType": of("File", "", "Bogus")},
    ),
    max_size=2,
)
_ENVS = st.lists(
    st.fixed_dictionaries(
        {"name": of("A", "b", "")},
        optional={
            "value": of("x", ""),
            "valueFrom": of({"fieldRef": {"fieldPath": "status.podIP"}}, {"secretKeyRef": {"name": "s", "key": "k"}}, {}, None),
        },
    ),
    max_size=2,
)
_SANS = st.lists(
    of("a.example.com", "A.B", "10.0.0.1", "*.x.y", "fd00::1", "198.051.100.007", "FD00::0001", "1.2.3.0256", "a_b", "*"), max_size=3
)
_TAINTS = of(
    None, [], [{"key": "k", "effect": "NoSchedule"}], [{"key": "k", "value": "v", "effect": "x", "timeAdded": "2030-01-01T00:00:00Z"}]
)
_STRINGS = st.lists(of("Swap", "a", "all", "addon/kube-proxy"), max_size=3)
_POLICY = of("Always", "IfNotPresent", "Never", "", "never")
_ADDRESSES = of("10.98.0.11", "10.98.0.11", "fd00::11", "FD00::0:1", "010.1.1.1", "224.0.0.1", "1.2.3", "x")
_PORTS = of(6443, 1, 65535, 0, 6443.0, -1, 65536, "6443", 2**40)
_ENDPOINTS = of("a.example.com:6443", "10.0.0.1", "[fd00::1]:6443", "a.b", "a.b:", "A.b:1", "http://a:1", "a:99999", "a b:1", "")
_ENDPOINT = maybe(advertiseAddress=_ADDRESSES, bindPort=_PORTS)
_PATCHES = of({"directory": "/p"}, {"directory": "p"}, {}, None)
_KEYS = of(KEY, KEY, "", "00", "zz" * 32)
_TIMEOUTS = maybe(
    controlPlaneComponentHealthCheck=_DURATIONS,
    kubeletHealthCheck=_DURATIONS,
    kubernetesAPICall=_DURATIONS,
    discovery=_DURATIONS,
    tlsBootstrap=_DURATIONS,
)


def _registration(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"imagePullSerial": of(True, False, None)}
    return maybe(
        name=_NAMES,
        criSocket=_SOCKETS,
        taints=_TAINTS,
        kubeletExtraArgs=_OLD_ARGS if old else _ARGS,
        ignorePreflightErrors=_STRINGS,
        imagePullPolicy=_POLICY,
        **newer,
    )


def _token() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"token": of(TOKEN, TOKEN, TOKEN, "abcdef.123", TOKEN.upper())},
        optional={
            "ttl": _DURATIONS,
            "expires": of("2030-01-01T00:00:00Z", "2030-01-01T02:00:00+02:00", "tomorrow"),
            "description": _TEXT,
            "usages": of(["signing"], ["signing", "authentication"], [], ["x"]),
            "groups": of(["system:bootstrappers:a"], [], ["system:bootstrappers:"], ["x"]),
        },
    )


def _component(old: bool, **more: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"extraEnvs": _ENVS}
    return maybe(extraArgs=_OLD_ARGS if old else _ARGS, extraVolumes=_VOLUMES, **newer, **more)


def _init(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"timeouts": _TIMEOUTS, "dryRun": of(True, False, None)}
    return st.fixed_dictionaries(
        {"bootstrapTokens": st.lists(_token(), min_size=1, max_size=2), "localAPIEndpoint": _ENDPOINT},
        optional={
            "nodeRegistration": _registration(old),
            "certificateKey": _KEYS,
            "skipPhases": _STRINGS,
            "patches": _PATCHES,
            **newer,
        },
    )


_IMAGE = {"imageRepository": of("r.example.com/a", "localhost:5000", "", "Bad Repo", "a/B"), "imageTag": of("v1", "", "x y")}
_FILES = of("/etc/x.crt", "", "relative.crt")


def _etcd(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    newer = {} if old else {"extraEnvs": _ENVS}
    local = maybe(dataDir=_PATHS, extraArgs=_OLD_ARGS if old else _ARGS, serverCertSANs=_SANS, peerCertSANs=_SANS, **_IMAGE, **newer)
    urls = st.lists(of("https://10.0.0.1:2379", "https://10.0.0.1:2379", "http://a:1", "a:1", "10.0.0.1:1", "https://[::1", ""), max_size=3)
    http = {} if old else {"httpEndpoints": urls}
    external = maybe(endpoints=urls, caFile=_FILES, certFile=_FILES, keyFile=_FILES, **http)
    return st.one_of(maybe(local=local), maybe(local=local), maybe(external=external), maybe(local=local, external=external))


def _cluster(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    disabled = {} if old else {"disabled": st.booleans()}
    newer = (
        {}
        if old
        else {
            "encryptionAlgorithm": of("RSA-2048", "ECDSA-P256", "ECDSA-P384", "RSA-1024", ""),
            "certificateValidityPeriod": _DURATIONS,
            "caCertificateValidityPeriod": _DURATIONS,
            "proxy": maybe(disabled=st.booleans()),
        }
    )
    timeout = {"timeoutForControlPlane": _DURATIONS} if old else {}
    return st.fixed_dictionaries(
        {"kubernetesVersion": of("v1.36.2", "1.36.0", "v1.35.0", "v1.36.3", "v1.36.0-rc.1+b", "v1.34.9", "1.36", "x", "v1.99.0")},
        optional={
            "etcd": _etcd(old),
            "networking": maybe(
                serviceSubnet=of(
                    "10.96.0.0/12", "fd00::/112", "10.0.0.0/24,fd00::/112", "10.0.0.0/30", "10.0.0.0/8", "fd00::/64", "1.2.3.4", "a,b", ""
                ),
                podSubnet=of("10.244.0.0/16", "fd00:1::/56", "10.0.0.0/24,fd00:1::/64", "10.0.0.0/29", "fd00::/40", "fec0::/16", "x", ""),
                dnsDomain=of("cluster.local", "a.b", "", "A.b", "a..b"),
            ),
            "controlPlaneEndpoint": _ENDPOINTS,
            "apiServer": _component(old, certSANs=_SANS, **timeout),
            "controllerManager": _component(old),
            "scheduler": _component(old),
            "dns": maybe(**_IMAGE, **disabled),
            "certificatesDir": _PATHS,
            "imageRepository": _IMAGE["imageRepository"],
            "featureGates": st.dictionaries(
                of("PublicKeysECDSA", "RootlessControlPlane", "NodeLocalCRISocket", "IPv6DualStack", "Nope"), st.booleans(), max_size=2
            ),
            "clusterName": _TEXT,
            **newer,
        },
    )


def _join(old: bool) -> st.SearchStrategy[dict[str, Any]]:
    found = st.fixed_dictionaries(
        {"token": of(TOKEN, TOKEN, "bad", "")},
        optional={
            "apiServerEndpoint": of("a.b:6443", "a.b:6443", "[fd00::1]:6443", "a.b", "a:b:c", ""),
            "caCertHashes": of(["sha256:" + "0" * 64], ["x"], []),
            "unsafeSkipCAVerification": st.booleans(),
        },
    )
    file = st.fixed_dictionaries({"kubeConfigPath": of("/etc/hosts", "https://a/b", "http://a/b", "/none", "", "file:///etc/hosts", "%zz")})
    more: dict[str, Any] = {"tlsBootstrapToken": of(TOKEN, "", "bad")} | ({"timeout": _DURATIONS} if old else {})
    by_token = st.fixed_dictionaries({"bootstrapToken": found}, optional=more)
    discovery = st.one_of(by_token, by_token, st.fixed_dictionaries({"file": file}, optional=more), maybe(bootstrapToken=found, file=file))
    newer = {} if old else {"timeouts": _TIMEOUTS, "dryRun": st.booleans()}
    return st.fixed_dictionaries(
        {"discovery": discovery},
        optional={
            "nodeRegistration": _registration(old),
            "caCertPath": of("/etc/kubernetes/pki/ca.crt", "/x.crt", "/x", "x.crt", ""),
            "controlPlane": st.fixed_dictionaries({"localAPIEndpoint": _ENDPOINT}, optional={"certificateKey": _KEYS}),
            "skipPhases": _STRINGS,
            "patches": _PATCHES,
            **newer,
        },
    )


_RESET = maybe(
    cleanupTmpDir=st.booleans(),
    certificatesDir=_PATHS,
    criSocket=_SOCKETS,
    dryRun=of(True, None),
    force=st.booleans(),
    ignorePreflightErrors=_STRINGS,
    skipPhases=_STRINGS,
    unmountFlags=st.lists(of("MNT_FORCE", "MNT_DETACH", "UMOUNT_NOFOLLOW", "x"), max_size=2),
    timeouts=_TIMEOUTS,
)
_SWITCH = of(True, False, None)
_NODE = {
    "certificateRenewal": _SWITCH,
    "dryRun": _SWITCH,
    "etcdUpgrade": _SWITCH,
    "ignorePreflightErrors": _STRINGS,
    "skipPhases": _STRINGS,
    "patches": _PATCHES,
    "imagePullPolicy": _POLICY,
    "imagePullSerial": _SWITCH,
}
_UPGRADE = maybe(
    apply=maybe(kubernetesVersion=_TEXT, allowRCUpgrades=_SWITCH, forceUpgrade=_SWITCH, printConfig=_SWITCH, **_NODE),
    node=maybe(**_NODE),
    plan=maybe(kubernetesVersion=_TEXT, allowExperimentalUpgrades=_SWITCH, etcdUpgrade=_SWITCH),
    diff=maybe(kubernetesVersion=_TEXT, contextLines=of(0, 3, -1, "3")),
    timeouts=_TIMEOUTS,
)
_KUBELET = maybe(
    maxPods=of(110, "110"), cgroupDriver=of("systemd", "cgroupfs"), evictionHard=of({"memory.available": "100Mi"}, None), maxPodz=of(1)
)
_PROXY = maybe(mode=of("ipvs", "nftables", 5), iptables=maybe(masqueradeBit=of(14, None)), clusterCIDR=of("10.244.0.0/16"))


def _head(api_version: str, kind: str, body: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, **body}


@st.composite
def configurations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Documents of one file. Init comes with Cluster, whose version is set, because labels would be looked up on the network."""
    documents = []
    kinds = draw(
        st.sampled_from(["init", "init", "init", "cluster", "join", "join", "reset", "upgrade", "init+join", "init+components", "all"])
    )
    if "init" in kinds or kinds in {"cluster", "all"}:
        if kinds != "cluster":
            old = draw(of(False, False, True))
            documents.append(_head(V1BETA3 if old else V1BETA4, "InitConfiguration", draw(_init(old))))
        old = draw(of(False, False, True))
        documents.append(_head(V1BETA3 if old else V1BETA4, "ClusterConfiguration", draw(_cluster(old))))
    if kinds in {"join", "init+join", "all"}:
        old = draw(of(False, False, True))
        documents.append(_head(V1BETA3 if old else V1BETA4, "JoinConfiguration", draw(_join(old))))
    if kinds in {"reset", "all"}:
        documents.append(_head(V1BETA4, "ResetConfiguration", draw(_RESET)))
    if kinds == "upgrade":
        documents.append(_head(V1BETA4, "UpgradeConfiguration", draw(_UPGRADE)))
    if kinds == "init+components":
        documents.append(_head("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", draw(_KUBELET)))
        documents.append(_head("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration", draw(_PROXY)))
    return documents


_ODD = st.sampled_from((None, True, 0, -1, 1.5, 10**30, "", "x", "yes", [], {}, [None], {"a": 1}, "2030-01-01", "\t", "ü€"))


@st.composite
def broken_files(draw: st.DrawFn, whole: st.SearchStrategy[list[dict[str, Any]]]) -> str:
    """Text of a file with one to three changes."""
    documents = copy.deepcopy(draw(whole))
    for _ in range(draw(st.integers(1, 2))):
        _break(draw, documents)
    text = yaml.dump_all(documents)
    if draw(st.integers(0, 3)) == 0:
        text = _break_text(draw, text)
    return text


def _break(draw: st.DrawFn, documents: list[dict[str, Any]]) -> None:
    """Replace, rename, remove or add an entry somewhere in one of the documents."""
    holders = [holder for document in documents for holder in _holders(document)]
    holder, key = draw(st.sampled_from(holders))
    if isinstance(holder, list):
        holder[key] = copy.deepcopy(draw(_ODD))
        return
    match draw(st.sampled_from(["replace", "replace", "rename", "remove", "add"])):
        case "replace":
            holder[key] = copy.deepcopy(draw(_ODD))
        case "rename":
            holder[draw(st.sampled_from([f"{key}s", key.upper(), key.lower(), "x"]))] = holder.pop(key)
        case "remove":
            del holder[key]
        case _:
            holder[draw(of("extra", "name", "kind", "disabled"))] = copy.deepcopy(draw(_ODD))


def _holders(value: Any) -> list[tuple[Any, Any]]:
    entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    return [pair for key, element in entries for pair in [(value, key), *_holders(element)]]


def _break_text(draw: st.DrawFn, text: str) -> str:
    lines = text.split("\n")
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(["double", "drop", "indent", "character", "cut", "separator"])):
        case "double":
            lines.insert(at, lines[at])
        case "drop":
            del lines[at]
        case "indent":
            lines[at] = f"  {lines[at]}"
        case "character":
            lines[at] += draw(of(":", "&a", "*a", "'", '"', "{", "]", "#", "\t", "!x", "|", "%"))
        case "cut":
            lines = lines[:at]
        case _:
            lines.insert(at, draw(of("---", "--- x", "...", "# c", "")))
    return "\n".join(lines)
