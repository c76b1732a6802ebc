"""Generated command lines: flags of a command with good and odd values, and typical typing errors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arena import CONFIG
from hypothesis import strategies as st

ROWS = {
    row["command"].partition(" ")[2]: row
    for row in json.loads((Path(__file__).parents[1] / "data" / "reference" / "commands.json").read_text())
    if not row["subcommands"] or row["command"] == "kubeadm init"
}
"""Every command that does something, by its words."""

_ALONE = (
    "certs ",
    "config images list",
    "config migrate",
    "config validate",
    "config print ",
    "kubeconfig user",
    "token generate",
    "version",
)
_PHASES = ("certs", "kubeconfig", "control-plane", "etcd", "addon coredns", "addon kube-proxy")
COMMANDS = (*tuple(name for name in ROWS if name.startswith((*_ALONE, *(f"init phase {phase}" for phase in _PHASES)))), "init")
"""Those that need neither a service manager nor a cluster. `init` is run with --dry-run, add-ons with --print-manifest."""

FIXED = {
    "init": ("--dry-run", "--feature-gates=PublicKeysECDSA=true", "--ignore-preflight-errors=all"),
    "init phase addon": ("--print-manifest",),
}

_FILES = (CONFIG, CONFIG, "/none", "", "/etc")
_DIRECTORIES = ("/srv/a", "/srv/b/c", "/etc/kubernetes/pki", "/etc/kubernetes", "")
VALUES: dict[str, tuple[str, ...]] = {
    "config": _FILES,
    "old-config": _FILES,
    "new-config": ("/srv/new.yaml", "/srv/none/new.yaml", ""),
    "cert-dir": _DIRECTORIES,
    "kubeconfig-dir": _DIRECTORIES,
    "kubeconfig": ("/etc/kubernetes/admin.conf", "/none", ""),
    "apiserver-advertise-address": ("10.0.0.1", "fd00::1", "1.2.3", "x", "0.0.0.0", "127.0.0.1", ""),
    "apiserver-bind-port": ("6443", "1", "0", "65536", "-1", "abc", "0x10", "99999999999", ""),
    "apiserver-cert-extra-sans": ("a.example,10.0.0.9", "a_b", "", "*.x.y", "a,a"),
    "certificate-key": ("00" * 32, "zz", ""),
    "client-name": ("ada", "ada", "a b", ""),
    "control-plane-endpoint": ("cp.example.com", "cp.example.com:1", "a b", "[fd00::1]:6443", "x:y", ""),
    "cri-socket": ("unix:///run/containerd/containerd.sock", "/run/crio.sock", "a b", ""),
    "feature-gates": (
        "PublicKeysECDSA=true",
        "Nope=true",
        "PublicKeysECDSA=maybe",
        "PublicKeysECDSA",
        "",
        "NodeLocalCRISocket=true",
        "NodeLocalCRISocket=false",
    ),
    "ignore-preflight-errors": ("all", "Swap,all", "swap", ""),
    "image-repository": ("r.example.com/a", "Bad Repo", "localhost:5000", ""),
    "kubernetes-version": ("v1.36.3", "1.36.0", "v1.35.0", "v1.34.0", "1.36", "x", "v1.99.0", ""),
    "node-name": ("node1", "Node2", "-bad", "a.b", ""),
    "org": ("a,b", "a", ""),
    "output": ("text", "json", "yaml", "xml", "short", ""),
    "patches": ("/srv/patches", "/none", ""),
    "pod-network-cidr": ("10.244.0.0/16", "x", "10.244.0.0/16,fd00::/56", "10.0.0.0/30", ""),
    "service-cidr": ("10.96.0.0/12", "10.0.0.0/24", "fd00::/112", "x", "10.0.0.0/8", ""),
    "service-dns-domain": ("cluster.local", "A.b", "a..b", ""),
    "skip-phases": ("addon", "addon/kube-proxy,certs/ca", "nonsense", ""),
    "token": ("abcdef.0123456789abcdef", "x.y", ""),
    "token-ttl": ("1h", "0", "5", "-1h", "x", ""),
    "validity-period": ("48h", "0", "x", "-1h", "9000h"),
    "v": ("0", "4", "x"),
    "component-configs": ("KubeletConfiguration", "KubeProxyConfiguration,KubeletConfiguration", "x", ""),
    "apiserver-extra-args": ("v=1", "a=b,c=d", "x", ""),
    "controller-manager-extra-args": ("v=1", "x", "=y"),
    "scheduler-extra-args": ("v=1", "x"),
    "rootfs": ("",),
    "experimental-output": ("text", "json", "x"),
}
_BOOLEANS = ("", "", "=true", "=false", "=1", "=maybe", "=")
_UNKNOWN = ("--nonsense", "-x", "--dry_run", "--Config=x", "---", "--", "-", "extra", "--v", "--help", "-h", "--config", "--config=")


@dataclass(frozen=True)
class Line:
    """A command line; `files` exist in addition to the machine's own."""

    words: tuple[str, ...]
    files: tuple[tuple[str, str], ...] = ()


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, ...]:
    """Words of a command line."""
    name = draw(st.sampled_from(COMMANDS))
    flags = {flag["name"]: flag for flag in (*ROWS[name]["flags"], {"name": "v", "type": "int"})}
    fixed = next((words for start, words in FIXED.items() if name == start or (start != "init" and name.startswith(start))), ())
    chosen = draw(st.lists(st.sampled_from(sorted(flags)), max_size=3))
    if "config" in flags and draw(st.booleans()):
        chosen = ["config", *[flag for flag in chosen if draw(st.integers(0, 2)) == 0]]
    rest = [word for flag in chosen for word in draw(_written(flags[flag]))]
    if name == "kubeconfig user" and draw(st.integers(0, 4)):
        rest += ["--client-name", draw(st.sampled_from(VALUES["client-name"]))]
    if draw(st.integers(0, 5)) == 0:
        rest.insert(draw(st.integers(0, len(rest))), draw(st.sampled_from(_UNKNOWN)))
    return (*name.split(), *fixed, *rest)


@st.composite
def _written(draw: st.DrawFn, flag: dict[str, Any]) -> tuple[str, ...]:
    """One flag as a user may type it."""
    name = flag["name"]
    if flag["type"] == "bool":
        return (f"--{name}{draw(st.sampled_from(_BOOLEANS))}",)
    value = draw(st.sampled_from(VALUES.get(name, ("x", "", "1"))))
    short = flag.get("shorthand") or ("v" if name == "v" else "")
    forms = [(f"--{name}={value}",), (f"--{name}", value), *([(f"-{short}", value), (f"-{short}{value}",)] if short else [])]
    return draw(st.sampled_from(forms))


def named(error: str) -> str:
    """A usage error; if the words are our own, only the flags that it names, and for a bad value the value and its flag."""
    if value := re.match(r'error: invalid argument ".*" for "[^"]*" flag: ', error):
        return value[0]
    own_words = re.match(
        r"error: (?:can not mix '--config' with arguments \[|--config cannot be combined with |required flag\(s\) |the flag )(.*?)"
        r"(?:\]| not set| is required|)$",
        error,
    )
    return " ".join(re.findall(r"\w[\w-]+", own_words[1])) if own_words else error


def first_error(text: str) -> str:
    return next((line for line in text.splitlines() if line.startswith("error: ")), "")
