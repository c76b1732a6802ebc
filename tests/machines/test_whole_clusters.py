"""`up --machines`: a cluster of whole machines, in which pods really run, and which leaves nothing on the host."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters, fetched, foreign, web

from kubewright.local.whole.members import HOST_NAME
from kubewright.local.whole.services import volumes
from kubewright.machines import firewall, group
from kubewright.machines import network as networks
from kubewright.machines.firewall import Command
from kubewright.machines.network import Network, listed, range_of
from kubewright.machines.parts import Parts
from kubewright.machines.running import run
from loopback import free_port

WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: docker.io/library/busybox:test
          command: [sh, -c, "mkdir /www; echo real > /www/index.html; exec httpd -f -p 8080 -h /www"]
          ports: [{containerPort: 8080, hostPort: 9090}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec:
  type: LoadBalancer
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Service
metadata: {name: dns, namespace: kube-system}
spec:
  type: NodePort
  selector: {k8s-app: kube-dns}
  ports: [{port: 53, protocol: UDP, nodePort: 30053}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: store
          image: docker.io/library/busybox:test
          command: [sleep, "100000"]
          volumeMounts: [{name: data, mountPath: /data}, {name: host, mountPath: /host}]
      volumes: [{name: host, hostPath: {path: /mnt/host}}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
"""


@pytest.fixture
def cluster(parts: Parts) -> Iterator[Cluster]:
    """A cluster that does not exist yet."""
    with clusters("t") as (found,):
        yield found


def test_pods_run_survive_a_killed_machine_and_leave_nothing(cluster: Cluster, parts: Parts) -> None:
    published, shared = free_port(), cluster.paths.root.parent.parent / "shared"
    shared.mkdir(parents=True)
    (shared / "greeting").write_text("from the host\n")
    mounts = ("--mount", f"{shared}:/mnt/host:ro", "--mount", f"{shared}/greeting:/etc/greeting:ro")
    made = cluster.up("--machines", "--nodes", "1", "--publish", f"{published}:30080", *mounts)
    control_plane, worker = (machine["name"] for machine in made["machines"])
    assert (made["kind"], made["state"], made["nodes"]["ready"]) == ("machines", "Ready", 2)
    assert {"create"} == {change["action"] for change in made["changes"] if change["target"].startswith("machine ")}
    assert len(cluster.traces()) > 10

    loaded = json.loads(
        cluster.call("local", "load", "--name", cluster.name, str(web(parts, cluster.state / "web.tar")), "-o", "json").stdout
    )
    assert loaded == {"images": ["docker.io/library/web:dev"], "machines": [control_plane, worker]}
    cut = cluster.state / "cut.tar"
    cut.write_bytes((cluster.state / "web.tar").read_bytes()[:3000])
    refused = cluster.call("local", "load", "--name", cluster.name, str(cut), check=False)
    assert (refused.returncode, "cannot be loaded into" in refused.stderr) == (1, True)

    other = foreign(cluster.state / "web.tar", cluster.state / "arm64.tar")
    refused = cluster.call("local", "load", "--name", cluster.name, str(other), check=False)
    assert (refused.returncode, "are for linux/arm64, the machines are linux/amd64" in refused.stderr) == (3, True), refused.stderr
    assert "arm64" not in cluster.inside("worker-1", "ctr", "-n", "k8s.io", "images", "ls", "-q").stdout

    cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
    addresses = {machine["name"]: machine["address"] for machine in made["machines"]}
    for name, address in addresses.items():  # through kube-proxy of either machine
        eventually(lambda address=address: fetched(f"http://{address}:30080") == "real\n", f"the Service at {name}")
    eventually(lambda: fetched(f"http://127.0.0.1:{published}") == "real\n", "the published port")
    eventually(lambda: cluster.balancer("balanced") != "", "an address of the LoadBalancer Service")
    balanced = cluster.balancer("balanced")
    eventually(lambda: fetched(f"http://{balanced}") == "real\n", "the LoadBalancer Service")
    cluster.kubectl("rollout", "status", "statefulset/store", "--timeout", "10m")
    assert cluster.kubectl("exec", "store-0", "--", "cat", "/host/greeting") == "from the host\n"
    gateway = Network(bridge="", ranges=(range_of(addresses[control_plane]),)).gateway
    eventually(lambda: gateway in cluster.in_pod("store-0", "nslookup", HOST_NAME), "the host's name in pods")
    cluster.kubectl("exec", "store-0", "--", "sh", "-c", "echo kept > /data/file; sync")
    assert cluster.kubectl("exec", "deployment/web", "--", "cat", "/www/index.html") == "real\n"

    again = cluster.up()
    assert again["changes"] == []
    for path in ("/mnt/host/x", "/etc/greeting"):
        assert cluster.inside("worker-1", "touch", path, check=False).returncode != 0
    assert cluster.inside("worker-1", "cat", "/etc/greeting").stdout == "from the host\n"
    moved = cluster.up("--mount", f"{shared}:/mnt/moved", "--mount", f"{shared}/greeting:/mnt/host:ro")
    actions = (("/mnt/host", "delete"), ("/etc/greeting", "delete"), ("/mnt/moved", "create"), ("/mnt/host", "create"))
    changes = [(change["target"], change["action"]) for change in moved["changes"]]
    assert sorted(changes) == sorted((f"mount {path} of {name}", action) for path, action in actions for name in addresses)
    assert cluster.inside("worker-1", "cat", "/mnt/host").stdout == "from the host\n"
    assert cluster.inside("worker-1", "sh", "-c", "echo x >> /mnt/host", check=False).returncode != 0
    assert (shared / "greeting").read_text() == "from the host\n"
    cluster.inside("worker-1", "sh", "-c", "echo from a machine > /mnt/moved/answer; ! test -e /mnt/host/greeting")
    assert (shared / "answer").read_text() == "from a machine\n"
    assert cluster.in_pod("store-0", "cat", "/host/greeting") == "from the host\n"  # until it ends

    further = free_port()
    specs = (f"{further}:9090", f"{further}:30053/udp")
    changed = json.loads(cluster.call("local", "publish", "--name", cluster.name, *specs, "-o", "json").stdout)
    rows = [(row["port"], row["target"], row["protocol"], row["listens"]) for row in changed["ports"]]
    assert rows == [(published, 30080, "tcp", True), (further, 9090, "tcp", True), (further, 30053, "udp", True)]
    eventually(lambda: fetched(f"http://127.0.0.1:{further}") == "real\n", "the hostPort of one machine")
    eventually(lambda: ipaddress.ip_address(gateway).packed in looked_up(further, HOST_NAME), "an answer of the cluster's DNS")
    cluster.call("local", "publish", "--name", cluster.name, "--remove", str(further))  # both protocols
    assert fetched(f"http://127.0.0.1:{further}") == ""
    with socket.create_server(("127.0.0.1", further)):
        refused = cluster.call("local", "publish", "--name", cluster.name, f"{further}:30080", check=False)
    assert (refused.returncode, f"in use by {Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})" in refused.stderr) == (
        1,
        True,
    )

    eventually(lambda: cluster.via(balanced) == addresses[worker], "the address to be on the worker: a label excludes the control plane")
    cluster.call("local", "machine", "kill", worker)
    eventually(lambda: cluster.via(balanced) == addresses[control_plane], "the address to move to the machine that is left")
    assert states(cluster.status()) == {control_plane: "Running", worker: "Stopped"}
    os.kill(cluster.status()["daemon"]["pid"], signal.SIGKILL)
    eventually(lambda: "its daemon, which forwards ports, is not running" in cluster.status()["problem"], "the daemon to end")
    repaired = cluster.up()
    assert [change["target"] for change in repaired["changes"] if change["target"].startswith("machine ")] == [f"machine {worker}"]
    assert states(repaired) == {control_plane: "Running", worker: "Running"}
    eventually(lambda: fetched(f"http://{addresses[worker]}:30080") == "real\n", "the Service after the machine has come back")
    eventually(lambda: fetched(f"http://127.0.0.1:{published}") == "real\n", "the published port after the machine has come back")
    eventually(lambda: fetched(f"http://{balanced}") == "real\n", "the LoadBalancer Service after the machine has come back")
    eventually(lambda: cluster.in_pod("store-0", "cat", "/data/file") == "kept\n", "the volume after its machine has come back")
    cluster.kubectl("delete", "pod", "store-0", "--force")
    eventually(lambda: cluster.in_pod("store-0", "cat", "/data/file") == "kept\n", "another pod with the same volume")
    cluster.kubectl("delete", "statefulset/store", "persistentvolumeclaim/data-store-0")
    eventually(lambda: cluster.kubectl("get", "persistentvolumes", "-o", "name") == "", "the volume to be deleted with its claim")
    assert cluster.inside("worker-1", "ls", str(volumes.DIRECTORY)).stdout == ""
    cluster.kubectl("delete", "service", "balanced")
    eventually(lambda: cluster.via(balanced) == "", "the address of a deleted Service to be free")

    cluster.call("down", "--name", cluster.name)
    assert cluster.traces() == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--kubernetes-version", "v1.35.0"), 1, "kube-apiserver v1.35.0"),
        (("--kubernetes-version", "v1.30.0"), 2, "Kubernetes v1.30.0 is not supported"),
        (("--config", "old.yaml"), 2, "Kubernetes v1.30.0 is not supported"),
    ],
)
def test_versions_that_cannot_be_had_are_refused_before_anything_is_made(
    tmp_path: Path, words: tuple[str, str], code: int, said: str
) -> None:
    (tmp_path / "old.yaml").write_text("apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.30.0\n")
    refused = Cluster(f"v{os.getpid()}", tmp_path / "state")
    refused.environment |= {"KUBEWRIGHT_OFFLINE": "1", "KUBEWRIGHT_NO_BUILD": "1", "XDG_CACHE_HOME": str(tmp_path / "cache")}
    flags = [str(tmp_path / word) if word.endswith(".yaml") else word for word in words]
    ended = refused.call("up", "--machines", "--name", refused.name, *flags, check=False)
    assert (ended.returncode, said in ended.stderr, "hint: " in ended.stderr) == (code, True, True), ended.stderr
    made = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file() and path.name != "old.yaml"]
    assert [name for name in made if not name.endswith("lock")] == []


class Inside:
    """A network namespace as a host, with the programs of the machines' Debian tree."""

    def __init__(self, namespace: str, tree: Path) -> None:
        self._argv = ("ip", "netns", "exec", namespace, "chroot", str(tree))

    def has(self, program: str) -> bool:
        return program in {"nft", "iptables"}

    def run(self, command: Command) -> str:
        return run(*self._argv, *command.argv, text=command.text)


def test_firewalls_let_packets_of_the_bridge_pass_and_are_restored(parts: Parts) -> None:
    name, bridge = f"t{os.getpid()}-fw", "kw01234567"
    run("ip", "netns", "add", name)
    try:
        host = Inside(name, parts.base)
        host.run(Command(argv=("iptables", "-P", "FORWARD", "DROP")))  # as Docker does
        table = "table inet strict { chain forward { type filter hook forward priority 0; policy drop; }; }\n"
        host.run(Command(argv=("nft", "-f", "-"), text=table))
        before = host.run(Command(argv=("nft", "list", "ruleset")))
        assert firewall.ensure(bridge, host) == ["iptables", "nftables"]
        after = host.run(Command(argv=("nft", "list", "ruleset")))
        assert after.count(f'"{bridge}"') >= 4
        assert firewall.ensure(bridge, host) == []
        host.run(Command(argv=("iptables", "-F", "FORWARD")))  # a reload
        assert firewall.ensure(bridge, host) == ["iptables"]
        firewall.remove(bridge, host)
        assert host.run(Command(argv=("nft", "list", "ruleset"))) == before
    finally:
        run("ip", "netns", "delete", name)


def test_a_network_whose_creation_was_interrupted_is_completed(parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(networks, "_WIDE", ("10.201.77.0/24",))  # other tests might take a range whose bridge is deleted
    name = f"t{os.getpid()}-half"
    network = group.claim_network(name, tmp_path / name)
    try:
        run("ip", "link", "delete", network.bridge)
        run("ip", "link", "add", network.bridge, "type", "bridge")
        assert group.claim_network(name, tmp_path / name) == network
        (link,) = listed(run("ip", "-j", "address", "show", network.bridge))
        assert [row["local"] for row in link["addr_info"] if row["family"] == "inet"] == [network.gateway]
        assert "UP" in link["flags"]
    finally:
        network.remove()


def looked_up(port: int, name: str) -> bytes:
    """Return the answer of a name server on 127.0.0.1 to a question for an address (RFC 1035 section 4.1), b'' without one."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        sock.connect(("127.0.0.1", port))
        try:
            sock.send(b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01")
            return sock.recv(512)
        except OSError:
            return b""


def states(status: Mapping[str, Any]) -> dict[str, str]:
    return {machine["name"]: machine["state"] for machine in status["machines"]}
