"""`upgrade --dry-run` on a machine without a cluster: the files that real kubeadm shows from its placeholder data, compared with ours."""

from __future__ import annotations

import re

import pytest
from accepted import DRY
from arena import Request, arena
from certs_comparison import find_kubeadm
from test_join_dry_run_comparison import CASES as JOINS
from test_join_dry_run_comparison import NOWHERE

FLAGS = ["--dry-run", "--ignore-preflight-errors=all"]
CASES = {
    "apply": ["upgrade", "apply", "v1.36.3", *FLAGS],
    "apply with a kubeconfig that does not exist": ["upgrade", "apply", "v1.36.3", "--kubeconfig=/nowhere.conf", *FLAGS],
    "control-plane": ["upgrade", "apply", "phase", "control-plane", "v1.36.3", "--dry-run"],
    "node": ["upgrade", "node", *FLAGS],
    "kubelet-config": ["upgrade", "node", "phase", "kubelet-config", "--dry-run"],
}
REFUSED = {
    "a minor release before that of the tool": ["upgrade", "apply", "v1.35.4", *FLAGS],
    "the next minor release": ["upgrade", "apply", "v1.37.0", "--force", *FLAGS],
    "no dry run": ["upgrade", "node"],
}
KUBECONFIG = "/etc/kubernetes/kubelet.conf"
NOBODY = """apiVersion: v1
kind: Config
clusters: [{name: dead, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: dead, context: {cluster: dead, user: dead}}]
current-context: dead
users: [{name: dead, user: {}}]
"""
IMPATIENT = """apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
node: {dryRun: true, ignorePreflightErrors: [all]}
timeouts: {kubernetesAPICall: 1s}
"""
SEQUENCE = [
    ["init", *FLAGS],
    JOINS["control plane"],
    JOINS["worker"],
    ["upgrade", "apply", "-f", "v1.36.3", *FLAGS],
    ["upgrade", "node", *FLAGS],
    ["reset", "--force", *FLAGS],
]
WRITTEN = re.compile(r'\[dryrun\] Would write file "(?P<path>[^"]+)" with content:\n(?P<text>(?:(?!\[|---\n).*\n)*)')


@pytest.fixture(scope="module")
def pair():
    with arena(find_kubeadm()) as made:
        yield made


def shown(out: str) -> dict[str, str]:
    """The files of the machine that a dry run prints. kubeadm writes the first line of one after other text."""
    return {found["path"]: found["text"].strip() for found in WRITTEN.finditer(out)}


@pytest.mark.parametrize("name", CASES)
def test_the_same_files_are_shown_as_by_kubeadm(pair, name):
    theirs, ours = pair.both(Request([CASES[name]], {}, {"KUBEADM_UPGRADE_DRYRUN_DIR": DRY}))
    assert (theirs.code, ours.code) == (0, 0), ours.err
    assert shown(ours.out) == shown(theirs.out)
    assert len(shown(ours.out)) == {"control-plane": 3, "node": 2, "kubelet-config": 2}.get(name, 5)


@pytest.mark.parametrize("name", REFUSED)
def test_the_same_commands_are_refused_as_by_kubeadm(pair, name):
    theirs, ours = pair.both(Request([REFUSED[name]], {}, {}))
    assert (theirs.code, ours.code) == (1, 1)
    assert ours.files == {}


def test_a_cluster_that_does_not_answer_is_not_replaced_by_placeholder_data(pair):
    theirs, ours = pair.both(
        Request([["upgrade", "node", "--config=/srv/kubeadm.yaml"]], {KUBECONFIG: NOBODY, "/srv/kubeadm.yaml": IMPATIENT}, {})
    )
    assert (theirs.code, ours.code) == (1, 1)
    assert [("Would write file" in one.out, "127.0.0.1:1" in one.err) for one in (theirs, ours)] == [(False, True)] * 2


def test_all_dry_runs_work_one_after_the_other_without_a_cluster(pair):
    theirs, ours = pair.both(Request(SEQUENCE, {}, NOWHERE))
    assert [run.code for run in theirs.runs] == [run.code for run in ours.runs] == [0] * len(SEQUENCE), ours.err
