"""Each row of the tables of hints matches the output of a real program, and no row before it does."""

from __future__ import annotations

import failure_examples as examples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.lifecycle.diagnosis import observation, remedies

TABLES = {
    "kubelet": (remedies.KUBELET, examples.KUBELET, observation.reasons),
    "component": (remedies.COMPONENT, examples.COMPONENT, observation.errors),
}
CELLS = [(table, text) for table, (rows, _, _) in TABLES.items() for text, _ in rows]


@pytest.mark.parametrize(("table", "text"), CELLS, ids=[" ".join(cell) for cell in CELLS])
def test_a_row_matches_its_log_and_is_not_hidden_by_another(table, text):
    rows, logs, selected = TABLES[table]
    assert remedies.match(rows, selected(logs[text])) == dict(rows)[text]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_an_example(table):
    rows, logs, _ = TABLES[table]
    assert [text for text, _ in rows if text not in logs] == []
    assert len(rows) == len(logs) == len(dict(rows)) == {"kubelet": 11, "component": 8}[table]


AGAIN = ", then run the same command again"
CORRECT = ": correct the configuration and run the command again; if it is refused, run `kubewright reset` first"
SPACE = f"free some space (`df -h` and `df -i` show its use){AGAIN}"
WRITABLE = f"remount the file system of that path for writing{AGAIN}"
TEXTS = {
    ("kubelet", "failed to parse kubelet flag"): (
        f"nodeRegistration.kubeletExtraArgs has an argument that the kubelet does not accept{CORRECT}"
    ),
    ("kubelet", "not run on a host using cgroup v1"): (
        "boot this machine with cgroup v2, or set failCgroupV1: false in the KubeletConfiguration: this kubelet refuses cgroup v1"
    ),
    ("kubelet", "failed to validate kubelet configuration"): f"the KubeletConfiguration is not valid for this kubelet{CORRECT}",
    ("kubelet", "failed to load kubelet config file"): f"the KubeletConfiguration is not valid for this kubelet{CORRECT}",
    ("kubelet", "running with swap on"): f"switch swap off (`swapoff -a`, and in /etc/fstab), or set failSwapOn: false{AGAIN}",
    ("kubelet", "exec format error"): f"install a kubelet that was built for this machine (`uname -m`){AGAIN}",
    ("kubelet", "failed at step exec"): f"install the kubelet at the path in its unit (`systemctl cat kubelet`){AGAIN}",
    ("kubelet", "validate service connection"): (
        f"start the container runtime (`systemctl status containerd` or `crio` shows why it stopped){AGAIN}"
    ),
    ("kubelet", "address already in use"): f"stop the process that uses the kubelet's port (`ss -ltnp` shows it){AGAIN}",
    ("kubelet", "no space left on device"): SPACE,
    ("kubelet", "read-only file system"): WRITABLE,
    ("component", "no space left on device"): SPACE,
    ("component", "read-only file system"): WRITABLE,
    ("component", "address already in use"): f"stop the process that uses the port (`ss -ltnp` shows it){AGAIN}",
    ("component", "unknown flag"): f"extraArgs has an argument that it does not know{CORRECT}",
    ("component", "flag provided but not defined"): f"extraArgs has an argument that it does not know{CORRECT}",
    ("component", "invalid argument"): f"extraArgs has a value that it does not accept{CORRECT}",
    ("component", "invalid value"): f"extraArgs has a value that it does not accept{CORRECT}",
    ("component", "permission denied"): f"correct the owner or the mode of the file that it names{AGAIN}",
}
"""The hint for the user, by table and row."""


def test_each_hint_is_the_expected_text():
    assert {(table, text): remedy for table, (rows, _, _) in TABLES.items() for text, remedy in rows} == TEXTS
    assert [remedies.of_kubelet([]), remedies.of_component([])] == [
        f"fix what the kubelet reports (`journalctl -u kubelet` has all of it){AGAIN}",
        f"fix what the component reports{AGAIN}",
    ]


def test_the_latest_line_decides():
    lines = [*examples.KUBELET["running with swap on"], *examples.KUBELET["not run on a host using cgroup v1"]]
    assert remedies.of_kubelet(lines) == dict(remedies.KUBELET)["not run on a host using cgroup v1"]


@given(st.lists(st.text()))
def test_any_log_has_a_hint(lines):
    assert remedies.of_kubelet(lines) in {*dict(remedies.KUBELET).values(), remedies.KUBELET_OTHERWISE}
    assert remedies.of_component(lines) in {*dict(remedies.COMPONENT).values(), remedies.COMPONENT_OTHERWISE}


REJECTED = (
    'E1124 04:41:10.402113     812 event.go:359] "Server rejected event (will not retry!)" err="etcdserver: request timed out"'
    ' event="&Event{Reason:CgroupV1,Message:cgroup v1 support is unsupported and will be removed in a future release,Type:Warning}"'
)


def test_an_event_about_cgroup_v1_is_no_refusal():
    """A kubelet on a host with cgroup v1 sends such an event; if etcd does not answer, it logs that event as an error."""
    assert observation.reasons([REJECTED]) == []
    assert remedies.match(remedies.KUBELET, [REJECTED]) == ""
