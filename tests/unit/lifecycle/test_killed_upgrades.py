"""Upgrades that are killed: the same command ends as if it had not been, wherever that was."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from init_kit import asked, names
from upgrade_kit import NEW, OLD, Answers, ControlPlane, Etcd, Killed, kill, stored

from kubewright.base.errors import HostError, Unreachable
from kubewright.http.messages import Response
from kubewright.kube.resources import LEASE, NODE
from kubewright.lifecycle import machine_record
from kubewright.lifecycle.steps import checkpoint

ETCD = "3.6.8-0"
PAIRS = ("apiserver", "apiserver-kubelet-client", "front-proxy-client", "apiserver-etcd-client", "etcd/server", "etcd/peer")
ROLLED_BACK = "has been rolled back already"


@pytest.fixture
def box(tmp_path):
    return ControlPlane(tmp_path)


@pytest.fixture
def unit(box):
    """The unit that completes pairs at boot."""
    return Path(box.layout.units, "kubewright-recover.service")


def fits(box, base):
    """Whether a certificate is that of the key beside it."""
    certificate = x509.load_pem_x509_certificate(Path(box.layout.certificate(base)).read_bytes())
    return certificate.public_key() == load_pem_private_key(Path(box.layout.key(base)).read_bytes(), None).public_key()


def require_settled(box, unit):
    """Require that nothing is left to complete, and that all certificates fit their keys."""
    assert checkpoint.unfinished(checkpoint.every(box.machine(box.layout))) is None
    assert (unit.exists(), box.kube.get(LEASE, "kubewright-operation", "kube-system")["spec"]["holderIdentity"]) == (False, "")
    assert {base: fits(box, base) for base in PAIRS} == dict.fromkeys(PAIRS, True)


@pytest.mark.parametrize(("first", "boots"), [(35, False), (40, True)])
def test_an_upgrade_that_is_killed_again_and_again_ends_as_an_undisturbed_one(box, unit, first, boots):
    """Each run comes one change further than the one before it; most of the first 35 changes prepare. `boots`: the machine does between two runs."""
    killed = 0
    while box.killed(first + killed, box.upgrade):
        killed += 1
        if boots:
            box.recover()
            assert {base: fits(box, base) for base in PAIRS} == dict.fromkeys(PAIRS, True)
    assert killed > 2
    assert box.tags() == [ETCD, NEW, NEW, NEW]
    assert stored(box)["kubernetesVersion"] == NEW
    require_settled(box, unit)
    assert names(box.upgrade().changes) == []


@pytest.mark.parametrize("number", range(1, 12))
def test_a_rollback_that_is_killed_after_a_change_ends_as_an_undisturbed_one(box, unit, number):
    before = box.manifests()
    box.upgrade()
    assert box.killed(number, box.rollback)
    try:
        box.rollback()
    except HostError as error:
        assert (number in (10, 11), ROLLED_BACK in str(error)) == (True, True)
    assert (box.manifests(), stored(box)["kubernetesVersion"]) == (before, OLD)
    require_settled(box, unit)


@pytest.mark.parametrize("fails", ["etcd", "API server"])
def test_a_rollback_continues_when_what_an_earlier_run_has_replaced_ends_after_it_said_that_it_is_ready(box, monkeypatch, fails):
    path = Path(box.layout.manifest("etcd"))
    path.write_text(path.read_text().replace(ETCD, "3.6.6-0"))
    before, failed = box.manifests(), []
    box.upgrade()

    def refusing(answer, wanted):
        def call(asked, *arguments: object):
            if len(failed) < 2 and wanted(*arguments):
                failed.append(fails)
                raise Unreachable("connection refused")
            return answer(asked, *arguments)

        return call

    if fails == "etcd":
        monkeypatch.setattr(Etcd, "alarms", refusing(Etcd.alarms, lambda: True))
    else:
        monkeypatch.setattr(Answers, "send", refusing(Answers.send, lambda request: request.resource.plural == "pods"))
    box.rollback()
    assert (failed, box.manifests()) == ([fails] * 2, before)


def test_a_rollback_waits_for_an_api_server_that_has_just_been_started(box, monkeypatch):
    """After a power cut, it answers for seconds before it is ready."""
    before, seen, exchange = box.manifests(), [], Answers.exchange
    box.upgrade()

    def starting(asked, request, /):
        if request.target == "/readyz" and len(seen) < 3:
            seen.append(request.target)
            return Response(status=500, headers={}, body=b"[-]poststarthook/start-apiextensions-controllers failed: reason withheld\n")
        return exchange(asked, request)

    monkeypatch.setattr(Answers, "exchange", starting)
    box.rollback()
    assert (len(seen), box.manifests(), stored(box)["kubernetesVersion"]) == (3, before, OLD)


def test_a_rollback_that_is_killed_at_its_end_has_left_nothing_to_do(box, monkeypatch):
    """The same command does nothing afterwards."""
    wanted = box.call(asked())
    machine_record.save(wanted.host, machine_record.replace(wanted.record(), finished=True))
    box.upgrade()
    unit, finish = Path(box.layout.units, "kubewright-recover.service"), checkpoint.finish
    unit.write_text("[Unit]\n")  # left by a run that was killed at its end
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "finish", lambda *arguments: kill(finish(*arguments)))
        with pytest.raises(Killed):
            box.rollback()
    with pytest.raises(HostError, match=f"the upgrade to {NEW} has been rolled back already"):
        box.rollback()
    assert (unit.exists(), box.call(asked()).warnings) == (False, [])


def test_a_unit_that_a_run_has_left_that_was_killed_at_its_end_is_removed_by_the_same_command(box):
    box.upgrade()
    unit = Path(box.layout.units, "kubewright-recover.service")
    unit.write_text("[Unit]\n")
    assert (names(box.upgrade().changes), unit.exists()) == ([], False)


@pytest.mark.parametrize("worker", [False, True])
def test_a_replacement_of_the_kubelet_that_was_killed_is_finished_by_the_same_command(box, tmp_path, monkeypatch, worker):
    box.kubelet(OLD)
    box.upgrade()
    if worker:
        box.become_worker(server=NEW)
    options = {"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet"), "drain": True}
    with monkeypatch.context() as patched:
        patched.setattr(box, "kubelet_started", kill)
        patched.setattr(checkpoint, "put_old", kill)
        with pytest.raises(Killed):
            box.upgrade(section="node", options=options)
    host = box.machine(box.layout)
    assert (box.status().open, checkpoint.unfinished(checkpoint.every(host)).operation) == (NEW, "kubelet")
    assert box.kube.get(NODE, "node1")["spec"]["unschedulable"] is True
    changes = names(box.upgrade(section="node", options=options).changes)
    assert changes == ["service kubelet", "node node1"]
    node = box.kube.get(NODE, "node1")
    assert (node["status"]["nodeInfo"]["kubeletVersion"], node["spec"].get("unschedulable")) == (NEW, None)
    assert [one.operation for one in checkpoint.every(host)] == ["upgrade"]
    assert names(box.upgrade(section="node", options=options).changes) == []


def test_an_interrupted_replacement_of_the_kubelet_is_rolled_back_before_the_static_pods(box, tmp_path, monkeypatch):
    box.kubelet(OLD)
    box.upgrade()
    box.clock.advance(1)
    with monkeypatch.context() as patched:
        patched.setattr(box, "kubelet_started", kill)
        patched.setattr(checkpoint, "put_old", kill)
        with pytest.raises(Killed):
            box.upgrade(options={"kubelet": box.kubelet(NEW, path=tmp_path / "new-kubelet")})
    with pytest.raises(HostError, match=f"an operation on this machine was interrupted: kubelet to {NEW}"):
        box.upgrade()
    box.rollback()
    assert (Path(box.root / "bin/kubelet").read_text().split()[-1], box.tags()) == (OLD, [ETCD, NEW, NEW, NEW])
    box.rollback()
    assert box.tags() == [ETCD, OLD, OLD, OLD]
