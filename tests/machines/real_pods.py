"""What pods do in a cluster of machines as in any other: order of containers, logs, files, ports, limits; and what kubeadm's documents say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from machine_kit import eventually
from whole_kit import Cluster

_KUBECONFIG: Final = "/etc/kubernetes/admin.conf"
_PATCHES: Final = "/mnt/patches"
CONFIG: Final = f"""\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
patches: {{directory: {_PATCHES}}}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
nodeRegistration:
  kubeletExtraArgs: [{{name: node-labels, value: disk=ssd}}]
patches: {{directory: {_PATCHES}}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
featureGates: {{AllAlpha: false}}
maxPods: 50
"""
_PATCH_FILES: Final = {
    "kube-scheduler+merge.yaml": "metadata: {annotations: {patched: by the user}}\n",
    "kubeletconfiguration+merge.yaml": "maxPods: 40\n",
}
_MANIFEST: Final = """\
apiVersion: v1
kind: Pod
metadata: {name: course}
spec:
  terminationGracePeriodSeconds: 0
  volumes: [{name: shared, emptyDir: {}}]
  initContainers:
    - name: first
      image: docker.io/library/busybox:test
      command: [sh, -c, "echo first > /shared/order"]
      volumeMounts: &shared [{name: shared, mountPath: /shared}]
    - name: sidecar
      image: docker.io/library/busybox:test
      restartPolicy: Always
      command: [sh, -c, "echo sidecar >> /shared/order; echo > /shared/started; exec sleep 100000"]
      startupProbe: {exec: {command: [cat, /shared/started]}, periodSeconds: 1, failureThreshold: 600}
      volumeMounts: *shared
  containers:
    - name: main
      image: docker.io/library/busybox:test
      command:
        - sh
        - -c
        - |
          busybox ln -s busybox /bin/tar
          echo main >> /shared/order
          httpd -p 8080 -h /shared
          while echo tick; do sleep 1; done
      volumeMounts: *shared
---
apiVersion: v1
kind: Pod
metadata: {name: hungry}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: docker.io/library/busybox:test
      command: [sh, -c, "text=more; while true; do text=$text$text; done"]
      resources: {limits: {memory: 32Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: full}
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: docker.io/library/busybox:test
      command: [sh, -c, "busybox dd if=/dev/zero of=/file bs=1024 count=8192; exec sleep 100000"]
      resources: {limits: {ephemeral-storage: 1Mi}}
"""


def write_patches(directory: Path) -> str:
    """Write the patches that the documents name; returns the mount with which machines see them."""
    directory.mkdir()
    for name, text in _PATCH_FILES.items():
        (directory / name).write_text(text)
    return f"{directory}:{_PATCHES}:ro"


def check_documents(cluster: Cluster, workers: list[str]) -> None:
    """Labels, patches and feature gates of the user apply to all machines that they are for."""
    assert sorted(cluster.kubectl("get", "nodes", "-l", "disk=ssd", "-o", "jsonpath={.items[*].metadata.name}").split()) == sorted(workers)
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    assert [node["status"]["capacity"]["pods"] for node in nodes] == ["40"] * (1 + len(workers))
    chosen = ("-n", "kube-system", "-l", "component=kube-scheduler")
    patched = ("get", "pods", *chosen, "-o", "jsonpath={.items[*].metadata.annotations.patched}")
    eventually(lambda: cluster.kubectl(*patched) == "by the user", "the mirror pod of the scheduler, with its patch")
    for node in nodes:
        found = json.loads(cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node['metadata']['name']}/proxy/configz"))
        assert found["kubeletconfig"]["featureGates"] == {"AllAlpha": False}


def start_pods(cluster: Cluster) -> None:
    """Start the pods that `check_pods` checks: kubelets take a while to find the one that writes too much."""
    cluster.kubectl("apply", "-f", "-", text=_MANIFEST)


def check_pods(cluster: Cluster) -> None:
    """Containers start in order, and end where their limits are; logs are followed, files copied, ports forwarded."""
    cluster.kubectl("wait", "--for=condition=Ready", "pod/course", "--timeout", "10m")
    order = "first\nsidecar\nmain\n"
    eventually(lambda: cluster.in_pod("course", "cat", "/shared/order") == order, "the main container")

    assert _shell(cluster, "kubectl logs --follow course | head -n 3") == "tick\n" * 3
    there, back = "kubectl cp /etc/debian_version course:/copied", "kubectl cp course:/copied /root/back"
    copied = (
        f"({there} && {back}) >/dev/null; cmp /etc/debian_version /root/back && echo same"  # kubectl tells which container it has chosen
    )
    assert _shell(cluster, copied) == "same\n"
    fetched = "curl -sS --retry 600 --retry-connrefused --retry-delay 1 127.0.0.1:18080/order"
    assert _shell(cluster, f"kubectl port-forward pod/course 18080:8080 >/dev/null & {fetched}; kill $!") == order

    eventually(lambda: _ended(cluster, "hungry") == "OOMKilled", "the container that needs too much memory to be killed")
    eventually(
        lambda: cluster.kubectl("get", "pod", "full", "-o", "jsonpath={.status.phase} {.status.reason}") == "Failed Evicted",
        "the pod that writes too much to be evicted",
    )
    cluster.kubectl("delete", "pods", "course", "hungry", "full")


def _shell(cluster: Cluster, script: str) -> str:
    """Return the output of a script with kubectl in the first machine, which may fail."""
    return cluster.inside("control-plane", "sh", "-c", f"export KUBECONFIG={_KUBECONFIG}; {script}", check=False).stdout


def _ended(cluster: Cluster, pod: str) -> str:
    return cluster.kubectl("get", "pod", pod, "-o", "jsonpath={.status.containerStatuses[0].state.terminated.reason}")
