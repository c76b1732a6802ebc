"""The kubelets of two control planes and a worker: one waits for an older API server, and rollbacks restore their files and kubeconfigs.

The kubelet of the second control plane uses the cluster's endpoint at first, as in clusters from before v1.31.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import partial

import pytest
from cluster_kit import CERTIFICATE_KEY, KUBEWRIGHT, TOKEN, Cluster, at_once, begin
from level_kit import IGNORED, NEXT, PATCHES, apply, changes, patch, require_running
from machine_kit import SHARED, Running, eventually, kubectl, kubewright, patiently, ready
from testbed import patch_level
from testbed.bed import Bed

from kubewright.base.level import KUBERNETES
from kubewright.machines.images import of_release
from kubewright.machines.kit import programs
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts

FIRST, SECOND, WORKER = "first", "second", "worker"
JOIN = ("cluster.test:6443", "--token", TOKEN, "--discovery-token-unsafe-skip-ca-verification")
ENDPOINT = "https://cluster.test:6443"
KUBELET = "/opt/kubelet"
KUBELET_CONF = "/etc/kubernetes/kubelet.conf"
KUBELET_CONFIG = "/var/lib/kubelet/config.yaml"
FEWER_PODS = json.dumps([{"op": "add", "path": "/maxPods", "value": 90}])


@pytest.fixture(scope="module")
def bed(parts: Parts) -> Iterator[Bed]:
    with Bed(FIRST, SECOND, WORKER, bed="upgrade-kubelets", parts=parts, shared=SHARED) as made:
        begin(Cluster(KUBEWRIGHT, made))
        second, worker = made[SECOND], made[WORKER]
        kubewright(second, *patiently(second, (*JOIN, "--control-plane", "--certificate-key", CERTIFICATE_KEY)))
        kubewright(worker, *patiently(worker, JOIN))
        levels = patch_level.images(of_release(parts.base), KUBERNETES, NEXT)
        at_once(*(partial(patch_level.give, made[name], levels) for name in (FIRST, SECOND)))
        eventually(lambda: ready(made[FIRST], "deployment", "coredns"), "CoreDNS: a Job is done first")
        second.run("sed", "-i", f"s,server: .*,server: {ENDPOINT},", KUBELET_CONF)
        second.run("systemctl", "restart", "kubelet")
        yield made


def is_ready(bed: Bed, name: str) -> bool:
    status = kubectl(bed[FIRST], "get", "node", name).get("status", {})
    return any((one["type"], one["status"]) == ("Ready", "True") for one in status.get("conditions", ()))


def reported(bed: Bed, name: str) -> str:
    """Return the version that a kubelet reports."""
    return str(kubectl(bed[FIRST], "get", "node", name)["status"]["nodeInfo"]["kubeletVersion"])


def uses(machine: Machine, server: str) -> bool:
    return f"server: {server}\n" in machine.run("cat", KUBELET_CONF).out


def test_a_kubelet_waits_for_the_api_server_of_another_machine(bed: Bed) -> None:
    first, second = bed[FIRST], bed[SECOND]
    apply(first)
    shutil.copyfile(patch_level.program(programs(("kubelet",))["kubelet"].resolve(), KUBERNETES, NEXT), first.root / "opt/kubelet")
    first.run("chmod", "755", KUBELET)
    waiting = Running(first, "upgrade", "node", "--kubelet", KUBELET, IGNORED)
    waiting.says(f"Waiting until the API servers that are older than the kubelet {NEXT} are upgraded: {KUBERNETES} of {SECOND}")
    assert first.run("kubelet", "--version").out == f"Kubernetes {KUBERNETES}\n"
    kubewright(second, "upgrade", "node", IGNORED)
    ended = waiting.ended()
    assert (ended.code, first.run("kubelet", "--version").out) == (0, f"Kubernetes {NEXT}\n"), ended.err
    assert reported(bed, FIRST) == NEXT


def test_rollback_brings_the_endpoint_of_a_kubelet_back(bed: Bed) -> None:
    """Its own kubelet is older than the API servers."""
    second = bed[SECOND]
    assert uses(second, f"https://{second.address}:6443")
    done = changes(kubewright(second, "upgrade", "rollback", "--yes", "-o", "json"))
    assert f"file {KUBELET_CONF}" in done
    assert "configmap kube-system/kubeadm-config" not in done
    assert uses(second, ENDPOINT)
    require_running(second, KUBERNETES)
    eventually(lambda: is_ready(bed, SECOND), "the Node to be ready")


def test_rollback_brings_the_configuration_of_a_workers_kubelet_back(bed: Bed) -> None:
    worker = bed[WORKER]
    before = worker.run("cat", KUBELET_CONFIG).out
    patch(worker, "kubeletconfiguration", FEWER_PODS)
    kubewright(worker, "upgrade", "node", IGNORED, "--patches", PATCHES)
    assert "maxPods: 90\n" in worker.run("cat", KUBELET_CONFIG).out
    done = changes(kubewright(worker, "upgrade", "rollback", "--yes", "-o", "json"))
    assert (done, worker.run("cat", KUBELET_CONFIG).out) == ([f"file {KUBELET_CONFIG}"], before)
    eventually(lambda: is_ready(bed, WORKER), "the Node to be ready")
    again = kubewright(worker, "upgrade", "rollback", "--yes", check=False)
    assert (again.code, "has been rolled back already" in again.err) == (1, True), again.err
