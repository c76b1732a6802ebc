"""`kubewright init` on a whole machine: systemd, containerd, the real kubelet."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from level_kit import COMPONENTS, NEXT, changes, content, require_running
from machine_kit import CONFIG, INIT, PATIENT, SHARED, eventually, kubectl, kubewright, ready, write
from testbed import patch_level
from testbed.bed import Bed

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts


@pytest.fixture(scope="module")
def bare(parts: Parts) -> Iterator[Machine]:
    """A machine without a control plane."""
    with Bed("one", bed="init", parts=parts, shared=SHARED) as bed:
        yield bed["one"]


@pytest.fixture(scope="module")
def machine(bare: Machine) -> Machine:
    """A control plane that kubewright made."""
    write(bare, CONFIG, INIT.format(address=bare.address))
    kubewright(bare, "init", "--config", CONFIG)
    return bare


def system_pods(machine: Machine) -> dict[str, str]:
    """The pods of kube-system by name, with their UIDs."""
    return {
        pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in kubectl(machine, "-n", "kube-system", "get", "pods").get("items", [])
    }


def test_an_unsuitable_machine_is_not_changed(bare: Machine) -> None:
    write(bare, CONFIG, INIT.format(address=bare.address).replace("ignorePreflightErrors: [SystemVerification]", "imagePullSerial: true"))
    bare.run("mkdir", "-p", "/var/lib/etcd/member")
    ended = kubewright(bare, "init", "--config", CONFIG, check=False)
    bare.run("rm", "-r", "/var/lib/etcd")
    assert ended.code == 1
    assert "[ERROR SystemVerification]" in ended.err
    assert "[ERROR DirAvailable--var-lib-etcd]" in ended.err
    assert bare.run("ls", "/etc/kubernetes", check=False).out == ""


def test_the_node_and_the_add_ons_become_ready(machine: Machine) -> None:
    def node_ready() -> bool:
        conditions = kubectl(machine, "get", "node", "one").get("status", {}).get("conditions", [])
        return any(row["type"] == "Ready" and row["status"] == "True" for row in conditions)

    eventually(node_ready, "the Node to be Ready")
    eventually(lambda: ready(machine, "daemonset", "kube-proxy"), "kube-proxy")
    eventually(lambda: ready(machine, "deployment", "coredns"), "CoreDNS")
    # The kubelet creates etcd's mirror pod with the next sync after the API server is up: its startup probe, every 10
    # s.
    static = {f"{name}-one" for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")}
    eventually(lambda: static <= system_pods(machine).keys(), "the mirror pods of all static pods")


def test_running_the_command_again_changes_nothing(machine: Machine) -> None:
    assert kubewright(machine, "init", "--plan", "--config", CONFIG).out == ""
    before = machine.run("sh", "-c", "cat /etc/kubernetes/manifests/* /etc/kubernetes/pki/*.crt /var/lib/kubelet/config.yaml").out
    pods = system_pods(machine)
    kubewright(machine, "init", "--config", CONFIG)
    assert machine.run("sh", "-c", "cat /etc/kubernetes/manifests/* /etc/kubernetes/pki/*.crt /var/lib/kubelet/config.yaml").out == before
    assert pods
    assert system_pods(machine) == pods


KUBECTL = "kubectl --kubeconfig /etc/kubernetes/admin.conf"
ROTATED = "/var/lib/kubelet/pki/kubelet-client-current.pem"


def created(*objects: str) -> tuple[str, str]:
    """Delete objects, given as namespace, kind and name; require them."""
    deletions = [f"{KUBECTL} -n {one.partition(' ')[0]} delete --ignore-not-found {one.partition(' ')[2]}" for one in objects]
    return "; ".join(deletions), " && ".join(f"{KUBECTL} -n {one.partition(' ')[0]} get {one.partition(' ')[2]}" for one in objects)


FINALIZED = (f"sed -i s,{ROTATED},/nowhere, /etc/kubernetes/kubelet.conf", f"grep {ROTATED} /etc/kubernetes/kubelet.conf")
LABEL = "node-role.kubernetes.io/control-plane"
PHASES = {
    "wait-control-plane": ("true", f"{KUBECTL} get --raw /readyz"),
    "upload-config kubeadm": created("kube-system configmap kubeadm-config"),
    "upload-config kubelet": created("kube-system configmap kubelet-config", "default clusterrolebinding kubeadm:cluster-admins"),
    "upload-config all": created("kube-system rolebinding kubeadm:nodes-kubeadm-config"),
    "upload-certs": created("kube-system secret kubeadm-certs"),
    "mark-control-plane": (f"{KUBECTL} label node one {LABEL}-", f"{KUBECTL} get node -l {LABEL} -o name | grep one"),
    "bootstrap-token": created("kube-public configmap cluster-info"),
    "kubelet-finalize enable-client-cert-rotation": FINALIZED,
    "kubelet-finalize all": FINALIZED,
    "addon coredns": created("default clusterrole system:coredns"),
    "addon kube-proxy": created("kube-system rolebinding kube-proxy"),
    "addon all": created("default clusterrolebinding system:coredns", "default clusterrolebinding kubeadm:node-proxier"),
}
"""The phases that use a cluster, in the order of init, each with the command that takes a result of it away, and one that succeeds if it is there.

The others are compared with kubeadm elsewhere.
"""


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_that_uses_the_cluster_can_run_alone(machine: Machine, phase: str) -> None:
    take_away, is_there = PHASES[phase]
    eventually(lambda: machine.run("sh", "-c", take_away, check=False).code == 0, "the deletion")
    given = {"upload-certs": ["--upload-certs", "--config", CONFIG], "wait-control-plane": []}.get(phase, ["--config", CONFIG])
    assert kubewright(machine, "init", "phase", *phase.split(), *given).code == 0
    eventually(lambda: machine.run("sh", "-c", is_there, check=False).code == 0, f"the result of {phase}")


def test_show_join_command_is_refused_as_a_single_phase(machine: Machine) -> None:
    """It prints what two other phases have made in the same run: kubeadm refuses it on its own as well."""
    ended = kubewright(machine, "init", "phase", "show-join-command", check=False)
    assert (ended.code, "unresolved dependencies" in ended.err) == (1, True)


def test_an_edited_manifest_is_shown_and_repaired(machine: Machine) -> None:
    manifest = "/etc/kubernetes/manifests/kube-scheduler.yaml"
    machine.run("sed", "-i", "s/--leader-elect=true/--leader-elect=false/", manifest)
    plan = kubewright(machine, "init", "--plan", "--config", CONFIG).out
    assert "+    - --leader-elect=true" in plan
    assert plan.count("update file") == 1
    kubewright(machine, "init", "--config", CONFIG)
    assert "--leader-elect=true" in machine.run("cat", manifest).out


def test_another_configuration_is_refused(machine: Machine) -> None:
    write(machine, "/root/other.yaml", INIT.format(address=machine.address).replace("10.244.0.0/16", "10.245.0.0/16"))
    ended = kubewright(machine, "init", "--config", "/root/other.yaml", check=False)
    assert ended.code == 1
    assert "created with another configuration" in ended.err
    assert "10.245.0.0/16" in ended.err


def test_kubeadm_works_on_a_machine_that_we_made(machine: Machine) -> None:
    environment = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
    for words in (("token", "list"), ("certs", "check-expiration"), ("certs", "renew", "apiserver")):
        assert machine.run("kubeadm", *words, env=environment).code == 0


UPGRADE = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: UpgradeConfiguration
apply:
  kubernetesVersion: {NEXT}
  forceUpgrade: true
  skipPhases: [preflight, addon]
{PATIENT.replace("tlsBootstrap", "upgradeManifests")}"""
"""Without the checks, which have the cluster run a Job, and without add-ons, which need an image more."""


def test_the_control_plane_is_upgraded_and_a_second_run_changes_nothing(parts: Parts, machine: Machine) -> None:
    images = [one for one in of_release(parts.base) if one.reference.rpartition("/")[2].partition(":")[0] in COMPONENTS]
    patch_level.give(machine, patch_level.images(images, KUBERNETES, NEXT))
    write(machine, "/root/upgrade.yaml", UPGRADE)
    upgrade = ("upgrade", "apply", "--config", "/root/upgrade.yaml", "-o", "json")
    made = changes(kubewright(machine, *upgrade))
    assert [f"file /etc/kubernetes/manifests/{name}.yaml" in made for name in ("etcd", *COMPONENTS)] == [False, True, True, True]
    require_running(machine, NEXT)
    before = content(machine)
    assert json.loads(kubewright(machine, *upgrade).out) == {"changes": [], "proofs": []}
    assert content(machine) == before
