"""Arguments of components are checked by the phases that use them, and by no others."""

from __future__ import annotations

import pytest
from init_kit import asked

from kubewright.base.errors import HostError
from kubewright.lifecycle.init import request
from kubewright.lifecycle.init.phases import PHASES as INIT

CLUSTER = """\
apiServer:
  extraArgs: [{name: nonsense, value: "1"}]
controllerManager:
  extraArgs: [{name: nonsense, value: "1"}]
scheduler:
  extraArgs: [{name: nonsense, value: "1"}]
etcd:
  local:
    extraArgs: [{name: nonsense, value: "1"}]
"""
NODE = "nodeRegistration:\n  kubeletExtraArgs: [{name: nonsense, value: '1'}]\n"


def unknown(box, *only: str, skip: str = ""):
    """The components about which a run of some phases says that they have no such flag."""
    init = NODE + (f"skipPhases: [{skip}]\n" if skip else "")
    box.call(asked(cluster=CLUSTER, init=init, only=only))
    return [text.partition(": ")[2].partition(" ")[0] for text in box.warnings() if "has no flag --nonsense" in text]


def test_a_full_run_checks_all_arguments(box):
    assert unknown(box) == ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd", "kubelet"]


@pytest.mark.parametrize(
    ("phase", "components"),
    [
        ("certs", []),
        ("addon", []),
        ("control-plane", ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]),
        ("control-plane/scheduler", ["kube-scheduler"]),
        ("etcd", ["etcd"]),
        ("kubelet-start", ["kubelet"]),
    ],
)
def test_a_phase_checks_the_arguments_that_it_uses(box, phase, components):
    assert unknown(box, phase) == components


def test_skipped_phases_check_no_arguments(box):
    assert unknown(box, skip="control-plane, etcd") == ["kubelet"]


def test_every_phase_of_the_table_exists():
    every = {node.name for node in INIT.select(only=(), skip=())}
    assert set(request._PHASES.values()) <= every


def test_a_file_that_cannot_be_checked_counts_as_existing(box, monkeypatch):
    cluster = (
        f"certificatesDir: {box.layout.pki}\napiServer:\n  extraArgs: [{{name: audit-policy-file, value: {box.layout.pki}/audit.yaml}}]\n"
    )
    box.call(asked(cluster=cluster))
    assert [text.partition(": ")[2].partition(": ")[2] for text in box.warnings()] == [
        f"{box.layout.pki}/audit.yaml does not exist on this machine"
    ]

    def hidden(_self, _path, /):
        raise HostError("hidden")

    monkeypatch.setattr("kubewright.host.real.RealHost.state", hidden)
    box.reporter.events.clear()
    box.call(asked(cluster=cluster))
    assert box.warnings() == []
