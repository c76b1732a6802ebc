"""Machines of a cluster come and go: paused, without power, removed, stopped with their disks. Its images come from a registry of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from image_registry import Registry
from machine_kit import eventually
from whole_kit import Cluster, clusters, fetched, machine_changes, states, web

from kubewright.machines.cgroups import Cgroups
from kubewright.machines.parts import Parts

IMAGE = "registry.example/team/web:dev"
WORKLOAD = f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      tolerations:
        - {{key: node-role.kubernetes.io/control-plane, operator: Exists}}
        - {{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}}
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 1
              preference: {{matchExpressions: [{{key: node-role.kubernetes.io/control-plane, operator: DoesNotExist}}]}}
      containers:
        - name: web
          image: {IMAGE}
          command: [sh, -c, "mkdir /www; echo real > /www/index.html; echo said; exec httpd -f -p 8080 -h /www"]
---
apiVersion: v1
kind: Service
metadata: {{name: web}}
spec:
  type: NodePort
  selector: {{app: web}}
  ports: [{{port: 80, targetPort: 8080, nodePort: 30080}}]
---
apiVersion: v1
kind: Secret
metadata: {{name: canary}}
stringData: {{key: canary-of-a-secret}}
"""
CONFIG = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controllerManager:
  extraArgs: [{name: node-monitor-grace-period, value: 30s}]
"""
"""A Node counts as lost earlier than by default, so that its pods move earlier."""


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A cluster that does not exist yet."""
    with clusters("l") as (found,):
        yield found


def test_machines_are_added_killed_started_and_removed(cluster: Cluster, parts: Parts, tmp_path: Path) -> None:
    (tmp_path / "kubeadm.yaml").write_text(CONFIG)
    hosts = tmp_path / "certs.d" / "registry.example" / "hosts.toml"
    hosts.parent.mkdir(parents=True)
    cluster.environment["HTTP_PROXY"] = "http://user:canary-of-a-proxy@192.0.2.1:3128"
    with Registry(web(parts, tmp_path / "web.tar", reference=IMAGE)) as registry:
        hosts.write_text(f'[host."http://host.kubewright.internal:{registry.port}"]\n  capabilities = ["pull", "resolve"]\n')
        flags = ("--config", str(tmp_path / "kubeadm.yaml"), "--registry-config", str(tmp_path / "certs.d"))
        made = cluster.call("up", "--name", cluster.name, "--wait", "20m", "-o", "json", "--machines", "--nodes", "1", *flags)
        addresses = [machine["address"] for machine in json.loads(made.stdout)["machines"]]
        # the worker starts while `init` runs
        told = [json.loads(line) for line in made.stderr.splitlines() if line.startswith("{")]
        milestones = [(event.get("subject") or event.get("phase", ""), event.get("state", "")) for event in told]
        worker = milestones.index((f"{cluster.name}-worker-1", "Running"))
        assert milestones.index((f"{cluster.name}-worker-1", "Starting")) < milestones.index(
            (f"{cluster.name}-control-plane: preflight", "")
        )
        assert milestones.index((f"{cluster.name}-control-plane: preflight", "")) < worker
        cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
        cluster.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
        assert node_of_pod(cluster) == "worker-1"

        assert cluster.up("--wait", "19m")["changes"] == []  # another time-out changes nothing

        check_other_registries(cluster, hosts, tmp_path / "other")

        cluster.machine("pause", "worker-1")
        assert cluster.states() == {"control-plane": "Running", "worker-1": "Paused"}
        refused = cluster.inside("worker-1", "true", check=False)
        assert (refused.returncode, "is paused" in refused.stderr) == (1, True)
        cluster.machine("start", "worker-1")
        eventually(lambda: served(addresses[1]), "the Service after the machine continues")

        # the pods of a machine that lost power move, and are served by both machines when it is back
        cluster.inside("worker-1", "sh", "-c", "echo nameserver 192.0.2.1 > /etc/resolv.conf")  # those of another network
        cluster.machine("kill", "worker-1")
        assert cluster.states() == {"control-plane": "Running", "worker-1": "Stopped"}
        stopped = Cgroups(f"{cluster.group}_{cluster.name}-worker-1")
        assert [path for directory in stopped.directories for path in directory.glob("*/")] == []
        eventually(lambda: node_of_pod(cluster) == "control-plane", "the pod to move")
    check_report(cluster, tmp_path / "report")
    assert machine_changes(cluster.up()) == ["worker-1"]
    assert len({cluster.inside(machine, "cat", "/etc/resolv.conf").stdout for machine in ("worker-1", "control-plane")}) == 1
    for address in addresses:
        eventually(lambda address=address: served(address), f"the Service at {address} after the machine has come back")

    # any worker can be removed, and the others keep their names
    cluster.call("local", "machine", "add", "--name", cluster.name)
    cluster.machine("remove", "worker-1")
    assert cluster.states() == {"control-plane": "Running", "worker-2": "Running"}
    assert [name for name in cluster.kubectl("get", "nodes", "-o", "name").split() if name.endswith("worker-1")] == []

    cluster.machine("stop", "worker-2")  # an orderly shutdown
    assert cluster.states() == {"control-plane": "Running", "worker-2": "Stopped"}

    elsewhere = Cluster(cluster.name, tmp_path / "state", directory=cluster.paths.root.parent)
    for words in (("down", "--keep-data"), ("up",)):  # with another XDG_STATE_HOME
        refused = elsewhere.call(*words, "--name", cluster.name, check=False)
        assert (refused.returncode, f"are in {cluster.disks.parent}, not in" in refused.stderr) == (1, True), refused.stderr

    # disks outlive the machines
    former = leaders(cluster)
    assert len(former) == 2
    cluster.down("--keep-data")
    assert set(cluster.states().values()) == {"Stopped"}
    assert states(cluster.up("--nodes", "0")) == {"control-plane": "Running"}
    assert leaders(cluster) & former == set()
    assert cluster.kubectl("get", "deployment", "web", "-o", "name") == "deployment.apps/web\n"

    cluster.down()
    assert cluster.traces() == []


def check_other_registries(cluster: Cluster, hosts: Path, other: Path) -> None:
    """Let running machines use another directory of hosts files, which has those of one more registry."""
    for registry in (hosts.parent.name, "second.example"):
        (other / registry).mkdir(parents=True)
        (other / registry / "hosts.toml").write_text(hosts.read_text())
    changes = cluster.up("--registry-config", str(other))["changes"]
    machines = [f"mount /etc/containerd/certs.d of {cluster.name}-{name}" for name in ("control-plane", "worker-1")]
    assert [(change["target"], change["action"]) for change in changes] == [
        (target, action) for target in machines for action in ("delete", "create")
    ]
    cluster.kubectl("run", "second", "--image=second.example/web:dev", "--restart=Never", "--command", "--", "sh", "-c", "exit 0")
    phase = ("get", "pod", "second", "-o", "jsonpath={.status.phase}")
    eventually(lambda: cluster.kubectl(*phase) == "Succeeded", "a pod with an image of the other registry")


def leaders(cluster: Cluster) -> set[str]:
    """Return who holds the Leases of kube-controller-manager and kube-scheduler, '' for nobody."""
    names = ("kube-controller-manager", "kube-scheduler")
    return {cluster.kubectl("get", "lease", "-n", "kube-system", name, "-o", "jsonpath={.spec.holderIdentity}") for name in names}


def check_report(cluster: Cluster, directory: Path) -> None:
    """Export the cluster, one machine of which is stopped, and look for what must be there and what must not."""
    done = json.loads(cluster.call("local", "export", "--name", cluster.name, str(directory), "-o", "json").stdout)
    first = f"{cluster.name}-control-plane"
    assert {"status.json", "objects/pods.json", "objects/deployments.apps.json", f"{first}/journal.txt"} <= set(done["files"])
    assert done["problems"] == [f"{cluster.name}-worker-1: the machine does not run"]
    logs = [name for name in done["files"] if name.startswith(f"{first}/pods/default_web-")]
    assert [(directory / name).read_text().split()[-1] for name in logs] == ["said"]
    assert any(secret["metadata"]["name"] == "canary" for secret in json.loads((directory / "objects" / "secrets.json").read_text()))
    texts = b"".join((directory / name).read_bytes() for name in done["files"])
    assert [canary for canary in (b"canary-of-a-secret", b"Y2FuYXJ5LW9mLWEtc2VjcmV0", b"canary-of-a-proxy") if canary in texts] == []
    again = cluster.call("local", "export", "--name", cluster.name, str(directory), check=False)
    assert (again.returncode, "is not empty" in again.stderr) == (2, True)


def node_of_pod(cluster: Cluster) -> str:
    """Return the node on which the only running pod of the workload is ready, without the name of the cluster; '' if there is none."""
    pods = json.loads(cluster.kubectl("get", "pods", "-l", "app=web", "-o", "json"))["items"]
    found = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"] and _is_ready(pod)]
    return str(found[0]["spec"]["nodeName"]).removeprefix(f"{cluster.name}-") if len(found) == 1 else ""


def _is_ready(pod: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", []))


def served(address: str) -> bool:
    """Whether the Service answers at a machine."""
    return fetched(f"http://{address}:30080") == "real\n"
