"""A second patch level without a second build: real kubeadm upgrades a control plane of ours to it."""

from __future__ import annotations

import json

from machine_kit import CONFIG, INIT, SHARED, eventually, kubectl, kubewright, ready, write
from testbed import patch_level
from testbed.bed import Bed, Parts
from testbed.images import of_release
from testbed.machine import Machine

from kubewright.base.level import KUBERNETES

NEXT = "v1.36.4"
COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")


def running(machine: Machine) -> dict[str, str]:
    """What the programs that run now say of their version, each asked from the files of its own process."""
    script = 'for name in "$@"; do for pid in $(pidof "$name"); do "/proc/$pid/root/usr/local/bin/$name" --version | sed "s/.* /$name /"; done; done'
    said = machine.run("sh", "-c", script, "versions", *COMPONENTS, check=False).out
    return dict(line.split(maxsplit=1) for line in said.splitlines())


def test_kubeadm_upgrades_a_control_plane_of_ours_to_the_second_patch_level(parts: Parts) -> None:
    assert len(NEXT) == len(KUBERNETES)
    with Bed("one", bed="level", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        eventually(lambda: running(one) == dict.fromkeys(COMPONENTS, KUBERNETES), "the components to run")
        patch_level.give(one, patch_level.images(of_release(parts.base), KUBERNETES, NEXT))
        patch_level.install(one, "kubeadm", KUBERNETES, NEXT)
        eventually(lambda: ready(one, "deployment", "coredns"), "CoreDNS: kubeadm has a Job done first")
        ended = one.run("kubeadm", "upgrade", "apply", NEXT, "--yes", "--ignore-preflight-errors=SystemVerification")
        assert f'SUCCESS! A control plane node of your cluster was upgraded to "{NEXT}"' in ended.out
        # kubeadm calls a component upgraded when its pod is Running, whatever its container does
        eventually(lambda: running(one) == dict.fromkeys(COMPONENTS, NEXT), "the components to report the new version")
        assert (
            json.loads(one.run("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/version").out)["gitVersion"]
            == NEXT
        )
        stored = kubectl(one, "-n", "kube-system", "get", "configmap", "kubeadm-config")["data"]["ClusterConfiguration"]
        assert f"kubernetesVersion: {NEXT}" in stored
