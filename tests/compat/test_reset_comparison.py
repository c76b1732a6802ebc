"""`reset` and its dry run compared with real kubeadm, on machines that consist of files only: what both say they would do, and what both leave."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest
from arena import Answer, Arena, Request, arena
from certs_comparison import find_kubeadm

ETCD = """\
apiVersion: v1
kind: Pod
metadata: {name: etcd}
spec:
  containers:
  - name: etcd
    command: [etcd, --initial-advertise-peer-urls=https://10.0.0.1:2380, --listen-client-urls=https://127.0.0.1:2379]
  volumes:
  - {name: etcd-data, hostPath: {path: DATA}}
"""
RESET = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\n"
WORKER = {
    "/etc/kubernetes/kubelet.conf": "",
    "/etc/kubernetes/pki/ca.crt": "",
    "/var/lib/kubelet/config.yaml": "",
    "/var/lib/kubelet/a/b": "",
}
CONTROL_PLANE = {
    **WORKER,
    **{f"/etc/kubernetes/{name}.conf": "" for name in ("admin", "super-admin", "controller-manager", "scheduler", "mine")},
    **{f"/etc/kubernetes/pki/{name}": "" for name in ("ca.key", "etcd/server.crt", "sa.pub", "mine.pem")},
    "/etc/kubernetes/manifests/etcd.yaml": ETCD.replace("DATA", "/var/lib/etcd"),
    "/etc/kubernetes/manifests/mine.yaml": "",
    "/etc/kubernetes/tmp/backup/a": "",
    "/var/lib/etcd/member/wal/a": "",
    "/etc/cni/net.d/a.conflist": "",
}
MOVED = {**CONTROL_PLANE, "/etc/kubernetes/manifests/etcd.yaml": ETCD.replace("DATA", "/srv/etcd"), "/srv/etcd/member/a": ""}
MACHINES = {"an empty machine": {}, "a worker": WORKER, "a control plane": CONTROL_PLANE, "etcd elsewhere": MOVED}
CALLS = (
    ["reset", "--force"],
    ["reset", "--force", "--cleanup-tmp-dir"],
    ["reset", "--force", "--cert-dir", "/etc/kubernetes/other"],
    ["reset", "--force", "--skip-phases", "remove-etcd-member"],
    ["reset", "--force", "--skip-phases", "cleanup-node"],
    ["reset", "--config", "/srv/reset.yaml"],
    ["reset", "phase", "remove-etcd-member"],
    ["reset", "phase", "cleanup-node", "--cleanup-tmp-dir"],
)
FILES = {"/srv/reset.yaml": f"{RESET}force: true\ncleanupTmpDir: true\n", "/etc/kubernetes/other/x": ""}
MEMBER = "[dryrun] Would remove the etcd member on this node from the etcd cluster"
DATA = "[dryrun] Would delete contents of the etcd data directory: "
"""We print both if there is a manifest of etcd; kubeadm prints them only if a cluster answers, and then does the second anyway."""


@pytest.fixture(scope="module")
def machines() -> Iterator[Arena]:
    with arena(find_kubeadm()) as both:
        yield both


def both(machines: Arena, files: Mapping[str, str], *words: str, stdin: str = "") -> tuple[Answer, Answer]:
    return machines.both(Request([list(words)], {**FILES, **files}, stdin=stdin))


def told(answer: Answer, topic: str) -> list[str]:
    """The lines of a topic in the order of their texts: pods come before mounts here."""
    return sorted(line for line in answer.out.splitlines() if line.startswith(f"[{topic}]") and not line.startswith((MEMBER, DATA)))


def files(answer: Answer) -> list[tuple[str, str, int]]:
    return sorted((path, file.kind, file.mode) for path, file in answer.files.items())


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
@pytest.mark.parametrize("name", MACHINES)
def test_a_dry_run_prints_the_lines_of_kubeadm_and_changes_nothing(name: str, words: list[str], machines: Arena) -> None:
    theirs, ours = both(machines, MACHINES[name], *words, "--dry-run")
    assert (ours.code, theirs.code) == (0, 0)
    assert told(ours, "dryrun") == told(theirs, "dryrun")
    for line in (MEMBER, DATA):
        assert (line in ours.out) == ("etcd" in _phases(words) and "/etc/kubernetes/manifests/etcd.yaml" in MACHINES[name])
    assert files(ours) == files(theirs)
    assert set(MACHINES[name]) <= set(ours.files)


def _phases(words: list[str]) -> set[str]:
    named = {"remove-etcd-member": "etcd", "cleanup-node": "node"}
    if "phase" in words:
        return {named[words[2]]}
    return {"etcd", "node"} - ({named[words[-1]]} if "--skip-phases" in words else set())


@pytest.mark.parametrize("words", CALLS, ids=" ".join)
@pytest.mark.parametrize("name", MACHINES)
def test_the_same_files_are_left_as_by_kubeadm(name: str, words: list[str], machines: Arena) -> None:
    theirs, ours = both(machines, MACHINES[name], *words)
    assert (ours.code, theirs.code) == (0, 0)
    assert files(ours) == files(theirs)
    ignored = r"\[reset\] (This will be removed|There is nothing)"
    if "/etc/kubernetes/manifests/etcd.yaml" not in MACHINES[name]:  # kubeadm says so where there is no such directory
        ignored += r"|\[reset\] Deleted contents of the etcd data directory"
    assert said(ours, ignored) == what_was_there(said(theirs, ignored), {**FILES, **MACHINES[name]})


def said(answer: Answer, ignored: str) -> list[str]:
    return [line for line in told(answer, "reset") if not re.match(ignored, line)]


def what_was_there(lines: list[str], files: Mapping[str, str]) -> list[str]:
    """kubeadm's lines with those files and directories that had contents: kubeadm names all of them. Nothing was mounted."""
    found = []
    for line in lines:
        what, bracket, listed = line.partition(": [")
        there = [one for one in listed.rstrip("]").split() if any(path == one or path.startswith(f"{one}/") for path in files)]
        if bracket and there:
            found.append(f"{what}: [{' '.join(there)}]")
        elif not bracket and not line.startswith("[reset] Unmounting "):
            found.append(line)
    return found


@pytest.mark.parametrize("answer", ["y\n", "Y\n", "yes\n", "YES\n", "n\n", "", "yep\n", " y\n"])
def test_the_same_answers_confirm_as_in_kubeadm(answer: str, machines: Arena) -> None:
    theirs, ours = both(machines, CONTROL_PLANE, "reset", stdin=answer)
    assert ours.code == theirs.code
    assert files(ours) == files(theirs)
    question = "[reset] Are you sure you want to proceed? [y/N]: "
    assert (question in ours.out, question in theirs.out) == (True, True)


def test_data_of_a_foreign_etcd_stays(machines: Arena) -> None:
    """kubeadm deletes it: https://github.com/kubernetes/kubeadm/issues/3225."""
    theirs, ours = both(machines, {**WORKER, "/var/lib/etcd/theirs/db": ""}, "reset", "--force")
    assert (ours.code, theirs.code) == (0, 0)
    assert "/var/lib/etcd/theirs/db" in ours.files
    assert "/var/lib/etcd/theirs/db" not in theirs.files
