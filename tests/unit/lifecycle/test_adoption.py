"""Machines that another tool made part of a cluster: recognised by their files, changed only on request."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base.change import Action, Change
from kubewright.base.errors import ConfigurationChanged, HostError
from kubewright.base.events import Line, RecordingReporter
from kubewright.host.real import RealHost
from kubewright.lifecycle import adoption, machine_record
from kubewright.lifecycle.machine_record import MachineRecord
from kubewright.workflow.runner import Plan

WORKER = ("kubernetes/kubelet.conf", "kubelet/config.yaml", "kubelet/instance-config.yaml")
CONTROL_PLANE = (*WORKER, "kubernetes/manifests/etcd.yaml", "kubernetes/manifests/kube-apiserver.yaml")
EMPTY = Plan(changes=())
MANIFEST = Change(target="file /etc/kubernetes/manifests/etcd.yaml", action=Action.UPDATE, diff="-a\n+b\n")


@pytest.fixture
def host(tmp_path):
    return RealHost(layout=Layout.below(PurePosixPath(tmp_path)), environment={})


def write(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")


def check(host, *, adopts, plan=EMPTY):
    reporter = RecordingReporter()
    taken = adoption.check(host, adopts=adopts, plan=lambda: plan, reporter=reporter)
    return taken, [event.text for event in reporter.events if isinstance(event, Line)]


def not_asked():
    raise AssertionError


@pytest.mark.parametrize(
    "names",
    [
        (),
        ("kubernetes/pki/ca.crt", "kubernetes/pki/ca.key"),
        ("kubernetes/kubelet.conf", "kubernetes/manifests/etcd.yaml"),  # single phases: no kubelet was started
        ("kubelet/config.yaml",),  # of a package
    ],
)
def test_a_machine_whose_kubelet_was_never_started_belongs_to_no_cluster(names, host, tmp_path):
    write(tmp_path, names)
    assert adoption.traces(host) == ()
    assert adoption.check(host, adopts=False, plan=not_asked, reporter=RecordingReporter()) is False


@pytest.mark.parametrize("names", [WORKER, CONTROL_PLANE])
def test_a_machine_of_a_cluster_is_recognised_and_not_changed(names, host, tmp_path):
    write(tmp_path, names)
    assert [str(path.relative_to(tmp_path)) for path in adoption.traces(host)] == list(names)
    with pytest.raises(HostError) as refused:
        adoption.check(host, adopts=False, plan=not_asked, reporter=RecordingReporter())
    assert refused.value.what == "this machine is part of a cluster, but kubewright did not set it up"
    assert all(str(tmp_path / name) in refused.value.detail for name in names)
    assert all(word in refused.value.remedy for word in ("--plan", "--adopt", "reset"))


def test_our_own_machine_is_not_adopted(host, tmp_path):
    write(tmp_path, WORKER)
    machine_record.save(host, MachineRecord(workflow="join", configuration=""))
    assert adoption.check(host, adopts=True, plan=not_asked, reporter=RecordingReporter()) is False


def test_changes_are_shown_before_a_machine_is_adopted(host, tmp_path):
    write(tmp_path, CONTROL_PLANE)
    taken, (text,) = check(host, adopts=True, plan=Plan(changes=(MANIFEST,)))
    assert taken is True
    assert text.splitlines()[1:4] == ["update file /etc/kubernetes/manifests/etcd.yaml", "  -a", "  +b"]


def test_a_matching_machine_is_adopted_with_a_message(host, tmp_path):
    write(tmp_path, CONTROL_PLANE)
    taken, (text,) = check(host, adopts=True)
    assert taken is True
    assert text.endswith("no changes: the configuration is that of this machine")


def test_a_cluster_with_another_configuration_is_refused(host, tmp_path):
    write(tmp_path, CONTROL_PLANE)
    stored = Change(target=adoption.STORED, action=Action.UPDATE, diff="-podSubnet: a\n+podSubnet: b\n")
    with pytest.raises(ConfigurationChanged) as refused:
        check(host, adopts=True, plan=Plan(changes=(MANIFEST, stored)))
    assert refused.value.detail == stored.diff
    assert not Path(machine_record.path(host)).exists()
