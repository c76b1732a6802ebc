"""A cluster whose first control plane kubeadm made, and whose second one and worker kubewright joined, is upgraded machine by machine."""

from __future__ import annotations

import json
from contextlib import closing

from cluster_kit import KUBEADM, KUBEWRIGHT, at_once
from interop_kit import FIRST, SECOND, WORKER, Mixed, members, nodes
from level_kit import COMPONENTS, IGNORED, NEXT, apply, content, running
from machine_kit import eventually, kubectl, kubewright, ready
from testbed import patch_level

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.machine import Ended, Machine
from kubewright.machines.parts import Parts

PROXY = ("-n", "kube-system", "get", "daemonset", "kube-proxy")


def image(machine: Machine) -> str:
    """Return the tag of kube-proxy's image."""
    spec = kubectl(machine, *PROXY).get("spec", {"template": {"spec": {"containers": [{"image": ""}]}}})
    return str(spec["template"]["spec"]["containers"][0]["image"]).rpartition(":")[2]


def node(machine: Machine, *more: str) -> Ended:
    return kubewright(machine, "upgrade", "node", IGNORED, *more)


def test_a_cluster_is_upgraded_machine_by_machine(parts: Parts) -> None:
    made = Mixed((KUBEADM, KUBEWRIGHT), parts=parts)
    bed = made.cluster.bed
    with closing(made):
        made.make()
        first, second, worker = (bed[name] for name in (FIRST, SECOND, WORKER))
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        at_once(*(lambda machine=machine: patch_level.give(machine, levels) for machine in (first, second, worker)))
        eventually(lambda: ready(first, "deployment", "coredns"), "CoreDNS: a Job is done first")
        etcd = content(second)["manifests/etcd.yaml"]
        apply(first)
        assert running(first) == dict.fromkeys(COMPONENTS, NEXT)
        assert (running(second), image(first)) == (dict.fromkeys(COMPONENTS, KUBERNETES), KUBERNETES)
        node(second)
        assert (running(second), image(first)) == (dict.fromkeys(COMPONENTS, NEXT), NEXT)
        node(worker)
        for machine, again in ((first, apply), (second, node), (worker, node)):
            before = content(machine)
            assert json.loads(again(machine, "-o", "json").out) == []
            assert content(machine) == before
        assert content(second)["manifests/etcd.yaml"] == etcd  # that of the first machine has another patience with its start
        assert members(first) == {FIRST: True, SECOND: True}
        assert {name: is_ready for name, (is_ready, _) in nodes(first).items()} == {FIRST: True, SECOND: True, WORKER: True}
        made.call(FIRST, KUBEADM, "certs", "check-expiration")
        made.call(SECOND, KUBEADM, "upgrade", "node", IGNORED)
