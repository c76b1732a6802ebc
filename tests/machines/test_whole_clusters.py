"""`up --machines`: the first cluster of whole machines on a host that has a machine tree and nothing else: no debootstrap, no Go, no compiler,
an empty cache. Pods really run in it, and it leaves nothing on the host."""

from __future__ import annotations

import ipaddress
import json
import os
import signal
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from machine_kit import eventually
from whole_kit import Cluster, clusters, fetched, foreign, machine_changes, states, use_a_tree, web

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
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
        - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      containers:
        - name: web
          image: web:dev
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
    """A cluster that does not exist yet, and whose only source of parts is a machine tree."""
    with clusters("t") as (found,):
        use_a_tree(found, parts)
        yield found


def test_pods_run_survive_killed_machines_and_leave_nothing(cluster: Cluster, parts: Parts) -> None:
    cluster.call("preflight", "machines")
    published, shared = free_port(), cluster.paths.root.parent.parent / "shared"
    shared.mkdir(parents=True)
    (shared / "greeting").write_text("from the host\n")
    mounts = ("--mount", f"{shared}:/mnt/host:ro", "--mount", f"{shared}/greeting:/etc/greeting:ro")
    made = cluster.up("--machines", "--nodes", "2", "--publish", f"{published}:30080", *mounts)
    addresses = {machine["name"]: machine["address"] for machine in made["machines"]}
    assert (made["kind"], made["state"], made["nodes"]["ready"], len(addresses)) == ("machines", "Ready", 3, 3)
    assert {"create"} == {change["action"] for change in made["changes"] if change["target"].startswith("machine ")}
    assert len(cluster.traces()) > 10

    check_load(cluster, parts, list(addresses))
    run_workload(cluster, addresses)
    for name, address in addresses.items():  # through kube-proxy of each machine
        eventually(lambda address=address: fetched(f"http://{address}:30080") == "real\n", f"the Service at {name}")
    eventually(lambda: fetched(f"http://localhost:{published}") == "real\n", "the published port")
    eventually(lambda: cluster.balancer("balanced") != "", "an address of the LoadBalancer Service")
    balanced = cluster.balancer("balanced")
    eventually(lambda: fetched(f"http://{balanced}") == "real\n", "the LoadBalancer Service")
    gateway = Network(bridge="", ranges=(range_of(made["machines"][0]["address"]),)).gateway
    eventually(lambda: gateway in cluster.in_pod("store-0", "nslookup", HOST_NAME), "the host's name in pods")
    cluster.kubectl("exec", "store-0", "--", "sh", "-c", "echo kept > /data/file; sync")
    assert cluster.kubectl("exec", "deployment/web", "--", "cat", "/www/index.html") == "real\n"

    check_mounts(cluster, shared, list(addresses))
    check_ports(cluster, published, gateway)
    check_power_cuts(cluster, addresses, published, balanced)
    cluster.call("down", "--name", cluster.name)
    assert cluster.traces() == []


def check_load(cluster: Cluster, parts: Parts, machines: list[str]) -> None:
    """An image is loaded into all machines; archives that are cut off, or for another architecture, are refused."""
    loaded = json.loads(
        cluster.call("local", "load", "--name", cluster.name, str(web(parts, cluster.state / "web.tar")), "-o", "json").stdout
    )
    assert loaded == {"images": ["docker.io/library/web:dev"], "machines": machines}
    cut = cluster.state / "cut.tar"
    cut.write_bytes((cluster.state / "web.tar").read_bytes()[:3000])
    refused = cluster.call("local", "load", "--name", cluster.name, str(cut), check=False)
    assert (refused.returncode, "cannot be loaded into" in refused.stderr) == (1, True)

    other = foreign(cluster.state / "web.tar", cluster.state / "arm64.tar")
    refused = cluster.call("local", "load", "--name", cluster.name, str(other), check=False)
    assert (refused.returncode, "are for linux/arm64, the machines are linux/amd64" in refused.stderr) == (3, True), refused.stderr
    assert "arm64" not in cluster.inside("worker-1", "ctr", "-n", "k8s.io", "images", "ls", "-q").stdout


def run_workload(cluster: Cluster, machines: Iterable[str]) -> None:
    """Run the workload on all workers."""
    _, *workers = machines
    eventually(lambda: not cluster.has_uninitialized_nodes(), "pods to be allowed on all workers")
    cluster.kubectl("apply", "-f", "-", text=WORKLOAD)
    cluster.kubectl("rollout", "status", "deployment/web", "--timeout", "10m")
    assert cluster.places("app=web") == sorted(workers)
    cluster.kubectl("rollout", "status", "statefulset/store", "--timeout", "10m")


def check_mounts(cluster: Cluster, shared: Path, machines: list[str]) -> None:
    """Mounts are as they were asked for, and others replace them in running machines."""
    assert cluster.kubectl("exec", "store-0", "--", "cat", "/host/greeting") == "from the host\n"
    again = cluster.up()
    assert again["changes"] == []
    for path in ("/mnt/host/x", "/etc/greeting"):
        assert cluster.inside("worker-1", "touch", path, check=False).returncode != 0
    assert cluster.inside("worker-1", "cat", "/etc/greeting").stdout == "from the host\n"
    moved = cluster.up("--mount", f"{shared}:/mnt/moved", "--mount", f"{shared}/greeting:/mnt/host:ro")
    actions = (("/mnt/host", "delete"), ("/etc/greeting", "delete"), ("/mnt/moved", "create"), ("/mnt/host", "create"))
    changes = [(change["target"], change["action"]) for change in moved["changes"]]
    assert sorted(changes) == sorted((f"mount {path} of {name}", action) for path, action in actions for name in machines)
    assert cluster.inside("worker-1", "cat", "/mnt/host").stdout == "from the host\n"
    assert cluster.inside("worker-1", "sh", "-c", "echo x >> /mnt/host", check=False).returncode != 0
    assert (shared / "greeting").read_text() == "from the host\n"
    cluster.inside("worker-1", "sh", "-c", "echo from a machine > /mnt/moved/answer; ! test -e /mnt/host/greeting")
    assert (shared / "answer").read_text() == "from a machine\n"
    assert cluster.in_pod("store-0", "cat", "/host/greeting") == "from the host\n"  # until it ends


def check_ports(cluster: Cluster, published: int, gateway: str) -> None:
    """Ports are published and removed while the cluster runs; one that is in use is refused."""
    further = free_port()
    specs = (f"{further}:9090", f"{further}:30053/udp")
    changed = json.loads(cluster.call("local", "publish", "--name", cluster.name, *specs, "-o", "json").stdout)
    rows = [(row["port"], row["target"], row["protocol"], row["listens"]) for row in changed["ports"]]
    assert rows == [(published, 30080, "tcp", True), (further, 9090, "tcp", True), (further, 30053, "udp", True)]
    eventually(lambda: fetched(f"http://127.0.0.1:{further}") == "real\n", "the hostPort that the first machine does not have")
    eventually(lambda: ipaddress.ip_address(gateway).packed in looked_up(further, HOST_NAME), "an answer of the cluster's DNS")
    cluster.call("local", "publish", "--name", cluster.name, "--remove", str(further))  # both protocols
    assert fetched(f"http://127.0.0.1:{further}") == ""
    with socket.create_server(("127.0.0.1", further)):
        refused = cluster.call("local", "publish", "--name", cluster.name, f"{further}:30080", check=False)
    owner = f"in use by {Path('/proc/self/comm').read_text().strip()} (pid {os.getpid()})"
    assert (refused.returncode, owner in refused.stderr) == (1, True)


def check_power_cuts(cluster: Cluster, addresses: Mapping[str, str], published: int, balanced: str) -> None:
    """The address of a LoadBalancer Service moves from machine to machine. After a repair, all Services and volumes are there again."""
    control_plane, *workers = addresses
    names, killed = {address: name for name, address in addresses.items()}, list[str]()
    for _ in workers:  # a label excludes the control plane as long as there is a worker
        left = {addresses[name] for name in workers} - {addresses[name] for name in killed}
        eventually(lambda left=left: cluster.via(balanced) in left, "the address to be on a worker that runs")
        killed.append(names[cluster.via(balanced)])
        cluster.call("local", "machine", "kill", killed[-1])
    eventually(lambda: cluster.via(balanced) == addresses[control_plane], "the address to move to the machine that is left")
    assert cluster.states() == {"control-plane": "Running", "worker-1": "Stopped", "worker-2": "Stopped"}
    os.kill(cluster.status()["daemon"]["pid"], signal.SIGKILL)
    eventually(lambda: "its daemon, which forwards ports, is not running" in cluster.status()["problem"], "the daemon to end")
    repaired = cluster.up()
    assert sorted(machine_changes(repaired)) == ["worker-1", "worker-2"]
    assert states(repaired) == {"control-plane": "Running", "worker-1": "Running", "worker-2": "Running"}
    for name in workers:
        eventually(lambda name=name: fetched(f"http://{addresses[name]}:30080") == "real\n", f"the Service at {name}, which has come back")
    eventually(lambda: fetched(f"http://127.0.0.1:{published}") == "real\n", "the published port after the machines have come back")
    eventually(lambda: fetched(f"http://{balanced}") == "real\n", "the LoadBalancer Service after the machines have come back")
    eventually(lambda: cluster.in_pod("store-0", "cat", "/data/file") == "kept\n", "the volume after its machine has come back")
    machine = cluster.kubectl("get", "pod", "store-0", "-o", "jsonpath={.spec.nodeName}").removeprefix(f"{cluster.name}-")
    assert cluster.inside(machine, "ls", str(volumes.DIRECTORY)).stdout != ""
    cluster.kubectl("delete", "pod", "store-0", "--force")
    eventually(lambda: cluster.in_pod("store-0", "cat", "/data/file") == "kept\n", "another pod with the same volume")
    cluster.kubectl("delete", "statefulset/store", "persistentvolumeclaim/data-store-0")
    eventually(lambda: cluster.kubectl("get", "persistentvolumes", "-o", "name") == "", "the volume to be deleted with its claim")
    assert cluster.inside(machine, "ls", str(volumes.DIRECTORY)).stdout == ""
    cluster.kubectl("delete", "service", "balanced")
    eventually(lambda: cluster.via(balanced) == "", "the address of a deleted Service to be free")


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
