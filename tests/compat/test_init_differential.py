"""`init` compared with real kubeadm on empty machines, for configurations that hypothesis generates: all files, images and add-ons.

KUBEWRIGHT_DIFFERENTIAL_EXAMPLES is the number of examples, KUBEWRIGHT_DIFFERENTIAL_SEED repeats a run. A difference
without a row in `accepted.MACHINES` fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from accepted import DRY, MACHINES, Found
from arena import CONFIG, Answer, File, Request, arena
from certs_comparison import find_kubeadm
from config_kit import TOKEN, V1BETA4
from fuzzing import SEED, Patience, examples
from hypothesis import given, note, seed
from hypothesis import strategies as st
from machine_files import between, describe
from machine_strategies import FOUR, machines, sloppy_addresses

from kubewright.base import yaml

_LATER = "wait-control-plane,upload-config,upload-certs,mark-control-plane,bootstrap-token,kubelet-finalize,addon,show-join-command"
_SHOWN = (
    ["config", "images", "list", "--config", CONFIG],
    ["init", "phase", "addon", "coredns", "--print-manifest", "--config", CONFIG],
    ["init", "phase", "addon", "kube-proxy", "--print-manifest", "--config", CONFIG],
)
KUBEADMS = (["init", "--config", CONFIG, f"--skip-phases=preflight,{_LATER}"], *_SHOWN)
OURS = (
    ["init", "phase", "kubelet-start", "--dry-run", "--config", CONFIG],
    *(
        ["init", "phase", *words.split(), "--config", CONFIG]
        for words in ("certs all", "kubeconfig all", "etcd local", "control-plane all")
    ),
    *_SHOWN,
)


@pytest.fixture(scope="module")
def pair():
    with arena(find_kubeadm()) as made:
        yield made


@pytest.fixture(scope="module")
def patience():
    return Patience()


@seed(SEED)
@examples(100)
@given(made=machines())
def test_generated_configurations_give_the_files_of_kubeadm(made, pair, patience):
    text = yaml.dump_all(made.documents)
    if patience.is_over(text):
        return
    note(f"{text}\n{made.patches} {made.environment}")
    files = {CONFIG: text, **made.patches}
    theirs, ours = pair.both(
        Request(KUBEADMS, files, made.environment), Request(OURS, files, {**made.environment, "KUBEADM_INIT_DRYRUN_DIR": DRY})
    )
    found = [one for one in differences(text, theirs, ours) if not MACHINES.accept(one)]
    for one in found:
        patience.keep(text)
        note(str(one))
    assert not found


INIT = {
    "apiVersion": V1BETA4,
    "kind": "InitConfiguration",
    "nodeRegistration": {"name": "node1"},
    "bootstrapTokens": [{"token": TOKEN, "ttl": "1h0m0s"}],
}
CLUSTER = {"apiVersion": V1BETA4, "kind": "ClusterConfiguration", "kubernetesVersion": "v1.36.3", "encryptionAlgorithm": "ECDSA-P256"}


def both(pair, init: Mapping[str, Any], cluster: Mapping[str, Any]) -> tuple[Answer, Answer]:
    """Run both on a valid configuration, and require equal results."""
    text = yaml.dump_all([{**INIT, **init}, {**CLUSTER, **cluster}])
    theirs, ours = pair.both(Request(KUBEADMS, {CONFIG: text}), Request(OURS, {CONFIG: text}, {"KUBEADM_INIT_DRYRUN_DIR": DRY}))
    assert (theirs.code, ours.code) == (0, 0)
    assert [one for one in differences(text, theirs, ours) if not MACHINES.accept(one)] == []
    return theirs, ours


def test_a_generally_available_gate_is_switched_off_as_by_kubeadm(pair):
    endpoint = {"localAPIEndpoint": {"advertiseAddress": FOUR}}
    _, ours = both(pair, endpoint, {"featureGates": {"NodeLocalCRISocket": False}})
    flags = moved(ours.files)["/var/lib/kubelet/kubeadm-flags.env"].content
    assert flags.count(b"--container-runtime-endpoint=unix:///var/run/containerd/containerd.sock") == 1
    assert "/var/lib/kubelet/instance-config.yaml" not in moved(ours.files)


@seed(SEED)
@examples(6)
@given(text=sloppy_addresses(), other=sloppy_addresses(), port=st.sampled_from(("", ":6443", ":06443")))
def test_addresses_with_leading_zeros_are_read_as_by_kubeadm(text, other, port, pair):
    endpoint = f"[{other}]{port}" if ":" in other and port else f"{other}{port}"
    six = ":" in text and not text.lower().startswith("::ffff")
    cluster = {
        "controlPlaneEndpoint": endpoint,
        "apiServer": {"certSANs": [text, other, "a.example"]},
        "etcd": {"local": {"serverCertSANs": [other, text], "peerCertSANs": [text]}},
        "networking": {
            "serviceSubnet": "0fd00:96::/112" if six else "010.096.000.0/012",
            "podSubnet": "fd00:0244::/056" if six else "10.0244.0.0/16",
        },
    }
    note(f"{text} {endpoint}")
    _, ours = both(pair, {"localAPIEndpoint": {"advertiseAddress": text}}, cluster)
    assert len([path for path in ours.files if path.endswith(".crt")]) == 10


def differences(text: str, theirs: Answer, ours: Answer) -> list[Found]:
    """All differences: the verdict; otherwise files, images and add-ons."""
    if theirs.code or ours.code:
        return [] if theirs.code == ours.code == 1 else [Found("verdict", text, theirs.err, ours.err)]
    one, other = describe(theirs.files), describe(moved(ours.files))
    paths = one.differences(other, within=between(theirs, ours))
    found = [Found(path, text, str(one.files.get(path)), str(other.files.get(path))) for path in paths]
    for what, run, own in zip(("images", "coredns", "kube-proxy"), theirs.runs[-3:], ours.runs[-3:], strict=True):
        told = [run.out, own.out] if what == "images" else [objects(run.out), objects(own.out)]
        if told[0] != told[1]:
            found.append(Found(what, text, str(told[0]), str(told[1])))
    return found


def moved(files: Mapping[str, File]) -> dict[str, File]:
    """Move the files of the kubelet to their real paths: they come from a dry run, whose other files are the same again."""
    names = ("config.yaml", "instance-config.yaml", "kubeadm-flags.env")
    dry = {f"/var/lib/kubelet/{name}": files[f"{DRY}/{name}"] for name in names if f"{DRY}/{name}" in files}
    directory = {"/var/lib/kubelet": File("directory", 0o700, b"")} if dry else {}
    return {path: file for path, file in files.items() if not path.startswith(DRY)} | dry | directory


def objects(text: str) -> list[object]:
    """Return the documents of a manifest.

    kubeadm mixes lines about patches into them, and one separator lacks its line break: docs/compat/kubeadm.md
    documents this defect.
    """
    told = re.sub(r"^---(?=.)", "---\n", re.sub(r"\[patches\].*", "", text), flags=re.MULTILINE)
    return [without_empty(document.value) for document in yaml.load_all(told) if document.value is not None]


def without_empty(value: object) -> object:
    """Go leaves out some empty values; the meaning is the same."""
    if isinstance(value, dict):
        return {key: found for key, part in value.items() if (found := without_empty(part)) not in ({}, [], "", None, False)}
    return [without_empty(part) for part in value] if isinstance(value, list) else value
