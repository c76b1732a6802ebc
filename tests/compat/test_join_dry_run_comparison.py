"""`join --dry-run` without a cluster: the files that real kubeadm makes from its placeholder data, compared with ours."""

from __future__ import annotations

import pytest
from accepted import DRY
from arena import Answer, Request, arena
from certs_comparison import find_kubeadm
from machine_files import between, describe

TOKEN, PIN = "abcdef.abcdef0123456789", "sha256:3b793efefe27a19f93b0fbe6e637e9c41d0dde8a377d6ab1c0f656bf1136dd8a"
WORKER = f"join 192.0.2.1:6443 --token {TOKEN} --discovery-token-ca-cert-hash {PIN} --dry-run --ignore-preflight-errors=all".split()
KEY = "e6a2eb8581237ab72a4f494f30285ec12a9694d750b9785706a83bfcbbbd2204"
CONTROL_PLANE = [*WORKER, "--control-plane", f"--certificate-key={KEY}", "--apiserver-advertise-address=10.0.0.9"]
SOCKET = "--cri-socket=unix:///run/containerd/containerd.sock"
CASES = {
    "worker": [*WORKER, SOCKET],
    "named": [*WORKER, SOCKET, "--node-name=other"],
    "control plane": [*CONTROL_PLANE, SOCKET, "--node-name=node1"],
}
NOWHERE = {"KUBEADM_JOIN_DRYRUN_DIR": DRY, "HTTPS_PROXY": "http://127.0.0.1:1"}
"""This proxy reaches no address and reports that at once; otherwise kubeadm waits for minutes."""
MADE_UP = {"sa.pub"}
"""Downloaded files, with another mode than kubeadm's, which creates them here because its placeholder for the uploaded certificates is empty."""


@pytest.fixture(scope="module")
def pair():
    with arena(find_kubeadm()) as made:
        yield made


def differences(theirs: Answer, ours: Answer) -> dict[str, tuple[object, object]]:
    one, other = describe(theirs.files), describe(ours.files)
    return {
        path.removeprefix(f"{DRY}/"): (one.files.get(path), other.files.get(path))
        for path in one.differences(other, within=between(theirs, ours))
        if path.startswith(f"{DRY}/") and path.removeprefix(f"{DRY}/") not in MADE_UP
    }


@pytest.mark.parametrize("name", CASES)
def test_the_same_files_are_created_as_by_kubeadm(pair, name):
    theirs, ours = pair.both(Request([CASES[name]], {}, NOWHERE))
    assert (theirs.code, ours.code) == (0, 0), ours.err
    assert f"{DRY}/bootstrap-kubelet.conf" in ours.files
    found = differences(theirs, ours)
    if name == "control plane":
        # kubeadm's placeholder of etcd has no members, with one the state of the cluster is written out; and our
        # kubelet requests its certificate from the cluster, kubeadm's from the API server of its own machine
        assert set(found) <= {"etcd.yaml", "bootstrap-kubelet.conf"}
    else:
        assert found == {}
