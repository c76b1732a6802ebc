"""The kubelet's files that an upgrade changes: they go back with `upgrade rollback`, and kills leave nothing half done."""

from __future__ import annotations

from pathlib import Path

import pytest
from init_kit import names
from upgrade_kit import NEW, OLD, PODS, ControlPlane, Killed, kill

from kubewright.base import yaml
from kubewright.base.errors import HostError, WaitTimeout
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import State
from kubewright.lifecycle.upgrade.context import report

ETCD = "3.6.8-0"
ROLLED_BACK = f"the upgrade to {NEW} has been rolled back already"


@pytest.fixture
def box(tmp_path):
    return ControlPlane(tmp_path)


def configure(box, **fields: object):
    """Change fields of the kubelets' configuration that the cluster stores."""
    config = box.kube.get(CONFIG_MAP, "kubelet-config", "kube-system")
    document = {**yaml.load(config["data"]["kubelet"], source="stored"), **fields}
    box.kube.update({**config, "data": {"kubelet": yaml.dump(document)}})


def kubelet_file(box):
    return Path(box.layout.kubelet_config)


def pods(box):
    """Whether the kubelet's configuration limits its pods to a number, and which."""
    return yaml.load(kubelet_file(box).read_text(), source="config.yaml").get("maxPods")


def checkpoints(box):
    return [(one.operation, one.state) for one in checkpoint.every(box.machine(box.layout))]


def upgraded(box, **fields: object):
    """Upgrade a machine whose kubelet's configuration changes with it, and return the earlier one."""
    configure(box, **(fields or {"maxPods": 17}))
    before = kubelet_file(box).read_text()
    box.upgrade()
    assert kubelet_file(box).read_text() != before
    box.clock.advance(1)
    return before


def test_rollback_restores_the_kubelets_configuration_after_the_static_pods_and_restarts_the_kubelet(box):
    manifests = box.manifests()
    before = upgraded(box)
    assert checkpoints(box) == [("upgrade", State.DONE), ("upgrade-kubelet-files", State.DONE)]
    box.services.done.clear()
    planned = box.rollback(mode=Mode.PLAN).plan.changes
    assert box.services.done == []
    result = box.rollback()
    files = [*(f"file {box.layout.manifest(name)}" for name in PODS[1:]), f"file {box.layout.kubelet_config}"]
    assert names(result.changes)[-4:] == files == [one.target for one in planned][-4:]
    assert (box.manifests(), kubelet_file(box).read_text(), box.services.done) == (manifests, before, [("restart", "kubelet")])
    assert report(result)["proofs"][-1] == {"what": "health of the kubelet", "where": "node1", "expected": "healthy", "found": "healthy"}
    assert f"\t{box.layout.kubelet_config}" in "\n".join(box.lines("upgrade/rollback"))
    with pytest.raises(HostError, match=ROLLED_BACK):
        box.rollback()
    box.upgrade()
    assert (box.tags(), pods(box)) == ([ETCD, NEW, NEW, NEW], 17)


def test_rollback_restores_the_kubelets_configuration_of_a_worker(box):
    box.become_worker(server=NEW)
    configure(box, maxPods=17)
    before = kubelet_file(box).read_text()
    box.upgrade(section="node")
    assert (pods(box), checkpoints(box)) == (17, [("upgrade-kubelet-files", State.DONE)])
    assert names(box.rollback().changes) == [f"file {box.layout.kubelet_config}"]
    assert kubelet_file(box).read_text() == before
    with pytest.raises(HostError, match="has been rolled back already"):
        box.rollback()


def test_an_upgrade_that_changes_no_file_of_the_kubelet_keeps_none(box):
    box.services.done.clear()
    box.upgrade()
    assert checkpoints(box) == [("upgrade", State.DONE)]
    box.rollback()
    assert box.services.done == []


def test_rollback_restores_all_files_of_the_kubelet_that_an_older_release_lacked(box):
    instance, flags = Path(box.layout.kubelet_instance_config), Path(box.layout.kubelet_flags)
    instance.unlink()
    text = 'KUBELET_KUBEADM_ARGS="--container-runtime-endpoint=unix:///run/x.sock --v=2"\n'
    flags.write_text(text)
    box.upgrade()
    assert (instance.exists(), flags.read_text()) == (True, 'KUBELET_KUBEADM_ARGS=" --v=2"\n')
    box.rollback()
    assert (instance.exists(), flags.read_text()) == (False, text)


def test_rollback_points_the_kubelet_to_the_earlier_server(box):
    path = Path(box.layout.kubeconfig("kubelet"))
    path.write_text(path.read_text().replace("https://10.98.0.11:6443", "https://cluster.test:6443"))
    before = path.read_text()
    config = box.kube.get(CONFIG_MAP, "kubeadm-config", "kube-system")
    text = "controlPlaneEndpoint: cluster.test:6443\n" + config["data"]["ClusterConfiguration"]
    box.kube.update({**config, "data": {"ClusterConfiguration": text}})
    box.services.done.clear()
    box.upgrade()
    assert ("server: https://10.98.0.11:6443\n" in path.read_text(), box.services.done) == (True, [("restart", "kubelet")])
    box.rollback()
    assert (path.read_text(), box.services.done) == (before, [("restart", "kubelet")] * 2)


def test_several_changes_of_the_same_upgrade_go_back_to_the_state_before_it(box):
    before = upgraded(box)
    configure(box, maxPods=18)
    box.upgrade(only=("kubelet-config",))
    box.clock.advance(1)
    assert (pods(box), len(checkpoints(box))) == (18, 3)
    box.rollback()
    assert (kubelet_file(box).read_text(), box.tags()) == (before, [ETCD, OLD, OLD, OLD])


def test_only_the_last_upgrade_goes_back(box):
    upgraded(box)
    first = kubelet_file(box).read_text()
    box.upgrade(version=OLD, force_upgrade=True)
    box.clock.advance(1)
    box.rollback()
    assert (kubelet_file(box).read_text(), box.tags()) == (first, [ETCD, NEW, NEW, NEW])


def test_rollback_refuses_a_configuration_of_the_kubelet_that_someone_has_changed(box):
    upgraded(box)
    path = kubelet_file(box)
    path.write_text(path.read_text() + "# by hand\n")
    with pytest.raises(HostError, match=r"files have been changed since upgrade-kubelet-files.*config\.yaml"):
        box.rollback()
    assert box.tags() == [ETCD, NEW, NEW, NEW]


def test_a_kubelet_that_is_not_healthy_with_its_earlier_files_is_reported_and_the_same_command_continues(box):
    before = upgraded(box)
    fails = box.runtime.fails
    box.runtime.fails = lambda name: name == "kubelet" or fails(name)
    with pytest.raises(WaitTimeout, match="the kubelet to be healthy"):
        box.rollback()
    assert checkpoints(box) == [("upgrade", State.ROLLED_BACK), ("upgrade-kubelet-files", State.IN_PROGRESS)]
    assert box.status().open == NEW
    box.runtime.fails = fails
    box.rollback()
    assert (kubelet_file(box).read_text(), box.tags()) == (before, [ETCD, OLD, OLD, OLD])
    assert checkpoints(box) == [("upgrade", State.ROLLED_BACK), ("upgrade-kubelet-files", State.ROLLED_BACK)]


@pytest.mark.parametrize("number", range(1, 17))
def test_a_rollback_that_is_killed_after_a_change_ends_as_an_undisturbed_one(box, number):
    manifests = box.manifests()
    before = upgraded(box)
    killed = box.killed(number, box.rollback)
    try:
        box.rollback()
    except HostError as error:
        assert (number >= 13, ROLLED_BACK in str(error)) == (True, True)
    assert (killed, box.manifests(), kubelet_file(box).read_text()) == (number < 16, manifests, before)
    assert {state for _, state in checkpoints(box)} == {State.ROLLED_BACK}


@pytest.mark.parametrize("verb", ["put_new", "finish"])
def test_a_replacement_of_the_files_that_was_killed_is_completed_by_the_same_command(box, monkeypatch, verb):
    box.upgrade()
    box.clock.advance(1)
    configure(box, maxPods=17)
    real = getattr(checkpoint, verb)
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, verb, lambda *arguments: kill(verb == "put_new" and real(*arguments)))
        patched.setattr(checkpoint, "put_old", kill)
        with pytest.raises(Killed):
            box.upgrade()
    assert checkpoints(box) == [("upgrade", State.DONE), ("upgrade-kubelet-files", State.IN_PROGRESS)]
    assert box.status().next() == [
        f"this machine is between two versions: run the same upgrade to {NEW} again, or `kubewright upgrade rollback`"
    ]
    box.upgrade()
    assert (pods(box), checkpoints(box)) == (17, [("upgrade", State.DONE), ("upgrade-kubelet-files", State.DONE)])
    assert names(box.upgrade().changes) == []
