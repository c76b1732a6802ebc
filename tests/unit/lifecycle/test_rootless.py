"""The feature gate RootlessControlPlane: users, owners of files, manifests, and the output of dry runs and plans."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from init_kit import Box, asked

from kubewright.apis.kubeadm.overrides import InitOverrides
from kubewright.base import yaml
from kubewright.base.errors import HostError

GATE = "featureGates: {RootlessControlPlane: true}\n"
FILES = ("certs", "kubeconfig", "etcd", "control-plane")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/bash\nmail:x:100:100::/:/bin/false\n")
    (tmp_path / "etc" / "group").write_text("root:x:0:\n")
    return made


def securities(box, read):
    found = {}
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        spec = yaml.load(read(box.layout.manifest(name)))["spec"]
        found[name] = (
            {k: v for k, v in spec["securityContext"].items() if k != "seccompProfile"},
            spec["containers"][0]["securityContext"],
        )
    return found


DROPPED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
WANTED = {
    "etcd": ({"runAsUser": 101, "runAsGroup": 100}, DROPPED),
    "kube-apiserver": (
        {"runAsUser": 102, "runAsGroup": 101, "supplementalGroups": [104]},
        {"capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]}},
    ),
    "kube-controller-manager": ({"runAsUser": 103, "runAsGroup": 102, "supplementalGroups": [104]}, DROPPED),
    "kube-scheduler": ({"runAsUser": 104, "runAsGroup": 103}, DROPPED),
}


def test_a_plan_shows_users_owners_and_manifests(box):
    done = box.planned(asked(cluster=GATE, only=FILES))
    plan = done.plan
    assert [change.target for change in plan.changes if change.target.startswith("users")] == [
        "users kubeadm-etcd, kubeadm-kas, kubeadm-kcm, kubeadm-ks"
    ]
    assert len([change for change in plan.changes if change.target.startswith("owner of")]) == 3 + 6 + 2 + 1
    assert "runAsUser: 101" in plan.text()
    assert "kubeadm" not in (Path(box.root) / "etc" / "passwd").read_text()


@needs_root
def test_users_own_the_files_that_they_read(box):
    box.run(asked(cluster=GATE, only=FILES))
    assert securities(box, lambda path: Path(path).read_bytes()) == WANTED
    pki, conf = Path(box.layout.pki), box.layout.kubeconfig
    owners = {
        (101, 100, 0o600): [pki / "etcd/server.key", pki / "etcd/peer.key"],
        (101, 100, 0o700): [Path(box.layout.etcd_data)],
        (102, 101, 0o600): [
            pki / name
            for name in ("sa.pub", "apiserver.key", "apiserver-kubelet-client.key", "front-proxy-client.key", "apiserver-etcd-client.key")
        ],
        (103, 102, 0o600): [Path(conf("controller-manager")), pki / "ca.key"],
        (104, 103, 0o600): [Path(conf("scheduler"))],
        (0, 104, 0o640): [pki / "sa.key"],
        (0, 0, 0o600): [pki / "etcd/ca.key", pki / "front-proxy-ca.key", Path(conf("admin"))],
    }
    for wanted, paths in owners.items():
        assert {(path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) for path in paths} == {wanted}, paths
    again = [change.target for change in box.run(asked(cluster=GATE, only=FILES)) if change]
    assert again == []


@needs_root
def test_only_existing_files_change_owners(box):
    external = "etcd: {external: {endpoints: ['http://192.0.2.1:2379']}}\n"
    box.run(asked(cluster=external, only=("certs", "kubeconfig")))
    (Path(box.layout.pki) / "ca.key").unlink()
    owned = [change.target for change in box.run(asked(cluster=GATE + external, only=("control-plane",))) if "owner of" in change.target]
    assert [target for target in owned if target.endswith(("etcd-client.key", "/ca.key"))] == []
    assert len(owned) == 5 + 2 + 1


def test_a_component_without_its_files_cannot_change_owners(box):
    with pytest.raises(HostError, match=r"(sa\.pub|scheduler\.conf) is not there"):
        box.run(asked(cluster=GATE, only=("control-plane",)))
    assert not Path(box.layout.manifest("kube-apiserver")).exists()


def test_a_rootless_dry_run_prints_what_kubeadm_prints(box, tmp_path):
    box.dry_run(asked(cluster=GATE, overrides=InitOverrides(dry_run=True), only=FILES), box.layout.run / "dry")
    told = box.lines("dryrun")
    users = "kubeadm-etcd kubeadm-kas kubeadm-kcm kubeadm-ks kubeadm-sa-key-readers"
    assert told.count(f"Would create the users and groups [{users}] unless they exist") == 4
    assert box.lines("etcd")[-1] == 'Would update the static pod manifest of "etcd" to run as non-root'
    assert len([line for line in box.lines("control-plane") if line.startswith("Would update")]) == 3
    dry = Path(box.layout.run) / "dry"
    assert "runAs" not in (dry / "etcd.yaml").read_text() + (dry / "kube-apiserver.yaml").read_text()
    assert "kubeadm" not in (Path(box.root) / "etc" / "passwd").read_text()
