"""`agent run` compared with the real kubelet, with the same flags and files: in turn on one machine, and at the same time on two.

Every difference is a row of docs/compat/kubelet.md, including those that are listed here.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from agent_bed import ADMIN, UNIT, Meddler, Scarcity, Wire, Worker, all_differences, spoken, unlike
from machine_kit import (
    CONFIG,
    ENVIRONMENT,
    INIT,
    SHARED,
    administer,
    eventually,
    join_command,
    kubectl,
    kubewright,
    patiently,
    used_by,
    write,
)
from testbed.bed import Bed
from testbed.sharing import PYTHON

import certificate_summaries as summaries
from kubewright.agent.status.setters import find
from kubewright.machines.machine import Machine
from kubewright.machines.parts import Parts
from kubewright.pki.requests import csr

CLUSTER = INIT.replace("networking:", "controllerManager: {{extraArgs: [{{name: node-monitor-grace-period, value: 10m}}]}}\nnetworking:")
"""kube-controller-manager takes no node for lost while another program is started on it."""
PAGE = (Path(__file__).parents[2] / "docs" / "compat" / "kubelet.md").read_text()
MADE: Final = {"spec.taints", "status.declaredFeatures"}
"""Differences of a Node that the agent creates."""
TAKEN: Final = {"status.declaredFeatures"}
"""Differences of a Node that it takes over: it may not change taints."""
SOFT: Final = {"memory.available": "8Ti", "nodefs.available": "8Pi", "pid.available": "9M"}
EXTRA: Final = (
    *("--node-labels=example.com/kind=press,topology.kubernetes.io/zone=z1", "--register-with-taints=example.com/own=x:NoSchedule"),
    *("--system-reserved=cpu=150m,memory=64Mi,ephemeral-storage=1Gi", "--kube-reserved=cpu=50m,memory=32Mi", "--max-pods=33"),
    *("--eviction-hard=memory.available<5%", "--node-status-max-images=2", "--provider-id=test://two"),
    f"--eviction-soft={','.join(f'{signal}<{most}' for signal, most in SOFT.items())}",
    f"--eviction-soft-grace-period={','.join(f'{signal}=8h' for signal in SOFT)}",
)
"""Flags of a second run in which all resources are scarce: soft thresholds count at once, and evict nothing for hours."""


@pytest.fixture(scope="module")
def bed(parts: Parts, request: pytest.FixtureRequest) -> Iterator[Bed]:
    """A control plane, and machines that have not joined: `three` only if a selected test uses it."""
    with Bed("one", "two", *used_by(request, "three"), bed="agents", parts=parts, shared=SHARED) as made:
        one = made["one"]
        write(one, CONFIG, CLUSTER.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        yield made


def joined(bed: Bed, name: str) -> Worker:
    kubewright(bed[name], *patiently(bed[name], join_command(bed["one"])))
    worker = Worker(bed["one"], bed[name])
    worker.ready()
    return worker


@pytest.fixture(scope="module")
def two(bed: Bed) -> Worker:
    return joined(bed, "two")


@pytest.fixture(scope="module")
def three(bed: Bed) -> Worker:
    return joined(bed, "three")


@pytest.fixture(scope="module")
def workers(two: Worker, three: Worker) -> tuple[Worker, Worker]:
    return two, three


def owned(objects: Mapping[str, Any]) -> list[dict[str, str]]:
    """The owners of Lease and CSINode, which must be this Node."""
    expected = {"apiVersion": "v1", "kind": "Node", "name": "two", "uid": objects["node"]["metadata"]["uid"]}
    rows = [owner for kind in ("lease", "csinode") for owner in objects[kind]["metadata"]["ownerReferences"]]
    assert rows == [expected] * 2
    return rows


def test_every_difference_from_the_kubelet_is_documented() -> None:
    table = PAGE.partition("## agent run: different, on purpose")[2]
    for path in MADE | TAKEN:
        assert f"`{path}`" in table, path
    wire = PAGE.partition("## agent run: on the wire")[2]
    for line in WIRE:
        assert f"`{line.rpartition(': ')[2]}`" in wire, line


def transition(objects: Mapping[str, Any]) -> str:
    """The time at which its Node became Ready."""
    row = find(objects["node"]["status"]["conditions"], "Ready")
    return str(row and row["lastTransitionTime"])


def test_a_node_is_taken_over_and_given_back(two: Worker) -> None:
    kubelets = two.objects()
    two.end()
    moved = two.heartbeat()
    two.agent()
    two.ready(since=moved)
    taken = two.objects()
    assert taken["node"]["metadata"]["uid"] == kubelets["node"]["metadata"]["uid"]
    assert all_differences(kubelets, taken) == {"node": TAKEN}
    assert transition(taken) == transition(kubelets)
    status = (PYTHON, "-m", "kubewright", "agent", "status")
    eventually(lambda: two.machine.run(*status, env=ENVIRONMENT, check=False).code == 0, "the agent to note that its node is ready")
    assert two.machine.run(*status, env=ENVIRONMENT).out.count("kubewright.dev/no-pods") == 1
    two.end()
    moved = two.heartbeat()
    two.kubelet()
    two.ready(since=moved)
    assert all_differences(kubelets, two.objects()) == {}


@pytest.fixture
def addressed(two: Worker) -> Iterator[None]:
    """The machine also has an IPv6 address, and some huge pages."""
    machine = two.machine
    machine.run("ip", "-6", "address", "add", f"{SIXTH}/64", "dev", "eth0", "nodad")
    before = machine.run("sysctl", "-n", "vm.nr_hugepages").out.strip()
    # of the whole host: 16 MiB, which the kernel may have to find first
    enough = ("sh", "-c", "sysctl -qw vm.nr_hugepages=8; sysctl -n vm.nr_hugepages")
    eventually(lambda: machine.run(*enough).out.strip() == "8", "huge pages of the host")
    yield
    machine.run("sysctl", "-qw", f"vm.nr_hugepages={before}")
    machine.run("ip", "-6", "address", "del", f"{SIXTH}/64", "dev", "eth0")


SIXTH: Final = "fd00:31::12"
CASES: Final = {
    "same-flags": (),
    "scarce": EXTRA,
    "dual-stack": (f"--node-ip={{own}},{SIXTH}",),
    "another-machines-address": ("--node-ip=fd00:31::99",),
    "unusual-forms": (
        *("--eviction-hard=memory.available<100%,nodefs.available<0%", "--kube-reserved=cpu=50m,pid=100", "--reserved-cpus=0,0"),
        *("--node-ip=fd00:31::99", f"--node-ip={SIXTH.upper()}"),
        *("--register-with-taints=example.com/first=x:NoSchedule", "--register-with-taints=example.com/second=x:NoSchedule"),
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.usefixtures("addressed")
def test_a_node_created_by_the_agent_equals_the_kubelets(two: Worker, case: str) -> None:
    extra = tuple(flag.format(own=two.machine.address) for flag in CASES[case])
    found = []
    for start in (two.agent, two.kubelet):
        two.end()
        two.forget()
        start(*extra)
        two.ready()
        if case == "scarce":
            eventually(lambda: all(two.condition(kind).get("status") == "True" for kind in PRESSURES), f"pressure: {two.said()}")
        found.append(two.objects())
    assert all_differences(found[1], found[0]) == {"node": MADE}
    for objects in found:
        owned(objects)
    node = found[0]["node"]
    assert node["status"]["capacity"]["hugepages-2Mi"] == "16Mi"
    told = [row["address"] for row in node["status"].get("addresses", ()) if row["type"] == "InternalIP"]
    own = two.machine.address
    assert told == {"dual-stack": [own, SIXTH], "another-machines-address": [], "unusual-forms": [SIXTH]}.get(case, [own])
    if case == "scarce":
        assert (node["spec"]["providerID"], node["status"]["capacity"]["pods"], len(node["status"]["images"])) == ("test://two", "33", 2)
        assert {taint["key"] for taint in node["spec"]["taints"]} >= {"example.com/own", "kubewright.dev/no-pods"}


PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


HEARTBEAT: Final = {"type", "lastHeartbeatTime"}
"""What the agent sends for unchanged conditions, even in its first status of a Node that it takes over."""
PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
WIRE: Final = {
    *(
        f"+ {what}: ?fieldManager"
        for what in ("POST /certificatesigningrequests", "POST /nodes", "PATCH /nodes/two/status", "POST /csinodes")
    ),
    *(f"+ {what}: ?fieldManager" for what in ("POST /namespaces/default/events", "POST /namespaces/kube-node-lease/leases")),
    "+ PUT /namespaces/kube-node-lease/leases/two: ?fieldManager",
    *(f"- {what}: ?timeout" for what in ("PATCH /nodes/two/status", "POST /namespaces/kube-node-lease/leases")),
    "- PUT /namespaces/kube-node-lease/leases/two: ?timeout",
    *(f"+ POST /nodes: spec.taints[].{key}" for key in ("key", "value", "effect")),
    *("- POST /nodes: spec", "- POST /nodes: status.declaredFeatures[]"),
    *("+ POST /certificatesigningrequests: metadata.name", "- POST /certificatesigningrequests: metadata.generateName"),
    "- POST /certificatesigningrequests: status",
    "- PATCH /nodes/two/status: status.$setElementOrder/conditions[].type",
    "- POST /namespaces/default/events: eventTime",
}
"""How the writes of a joining node differ, if both send JSON: `-` only the kubelet sends it, `+` only the agent."""


def test_a_node_sends_the_same_writes_as_a_kubelet(two: Worker) -> None:
    """From the certificate request to the second renewal of the lease, and then for a Node that a client has changed."""
    wire = Wire(two.one)
    said: list[dict[str, set[str]]] = []
    registrations: list[dict[str, Any]] = []

    kinds = {line[2:].rpartition(": ")[0] for line in WIRE}

    def is_whole() -> bool:
        found = spoken(wire.rows())
        reported = "status.conditions[].lastHeartbeatTime" in found.get("PATCH /nodes/two/status", ())
        return reported and kinds <= found.keys() and len(wire.node_patches()) > 1

    for start, flags in ((two.kubelet, ["--kube-api-content-type=application/json"]), (two.agent, [])):
        wire.bootstrap(two)
        start(*flags)
        two.ready()
        eventually(is_whole, f"a report and a renewal: {two.said()}")
        said.append(spoken(wire.rows()))
        joined = wire.node_patches()
        meddler = Meddler(two)
        two.end()
        meddler.change_while_ended()
        wire.forget()
        start(*flags)
        eventually(lambda meddler=meddler: meddler.found() == meddler.left(registered=True), "its corrections")
        registrations.append(wire.node_patches()[0])
        meddler.change()
        eventually(lambda meddler=meddler: meddler.found() == meddler.left(registered=False), "its corrections")
    assert registrations[0] == registrations[1]
    assert unlike(*said) == WIRE
    assert {tuple(patch.get("status", {})) for patch in joined[1:]} == {("conditions",)}  # the first one may have made a correction
    rows = [row for patch in wire.node_patches() for row in patch.get("status", {}).get("conditions", ())]
    assert {key for row in rows for key in row} == HEARTBEAT
    two.end()
    two.kubelet()
    eventually(lambda: any(row["type"] == PROTOBUF for row in wire.rows()), "a write in protobuf")
    wire.end(two)
    meddler.undo()


SMALL: Final = ("--root-dir=/var/lib/small", "--cert-dir=/var/lib/kubelet/pki", "--eviction-pressure-transition-period=5s")
TAKEN_AWAY: Final = {
    "DiskPressure": ("has disk pressure", "has no disk pressure"),
    "MemoryPressure": ("has insufficient memory available", "has sufficient memory available"),
    "PIDPressure": ("has insufficient PID available", "has sufficient PID available"),
}
"""What a node reports while it lacks a resource, and afterwards."""


def test_pressure_conditions_appear_and_disappear_as_with_the_kubelet(workers: tuple[Worker, Worker]) -> None:
    """A small file system that kubelet and agent treat as the node's; memory; and process IDs, which all machines of a host share."""
    for worker, start in zip(workers, (workers[0].kubelet, workers[1].agent), strict=True):
        worker.machine.run("sh", "-c", "mkdir -p /var/lib/small && mount -t tmpfs -o size=64m tmpfs /var/lib/small")
        worker.end()
        start(*SMALL, f"--eviction-hard=nodefs.available<10%,{Scarcity.thresholds(worker)}")
    for worker in workers:
        eventually(lambda worker=worker: worker.get("node")["status"]["capacity"]["ephemeral-storage"] == "64Mi", "the small disk")
        worker.ready()
        assert {worker.condition(kind)["status"] for kind in TAKEN_AWAY} == {"False"}
    scarcities = [Scarcity(worker, tasks=worker is workers[0]) for worker in workers]
    for index, status in enumerate(("True", "False")):
        for one in scarcities:
            one.take() if status == "True" else one.give_back()
        eventually(lambda status=status: shown(workers, TAKEN_AWAY) == {status}, f"all to be {status}")
        for kind, texts in TAKEN_AWAY.items():
            rows = [worker.condition(kind) for worker in workers]
            assert [row["message"] for row in rows] == [f"kubelet {texts[index]}"] * 2
            assert rows[0]["reason"] == rows[1]["reason"]
    first, second = (worker.get("node")["status"] for worker in workers)
    assert first["capacity"] == second["capacity"]
    assert {name for name, left in first["allocatable"].items() if left != second["allocatable"][name]} <= {"memory"}  # by its threshold
    for worker in workers:
        worker.end()
        worker.machine.run("sh", "-c", "umount -R /var/lib/small", check=False)


def shown(workers: Iterable[Worker], kinds: Iterable[str]) -> set[str]:
    """Return which statuses the conditions of some machines have."""
    return {worker.condition(kind).get("status", "") for kind in kinds for worker in workers}


def test_a_stopped_runtime_is_reported_as_by_the_kubelet(workers: tuple[Worker, Worker]) -> None:
    two, three = workers
    two.end()
    two.kubelet()
    three.end()
    three.agent()
    for worker in workers:
        worker.ready()
    for worker in workers:
        worker.machine.run("systemctl", "stop", "containerd")
    eventually(lambda: shown(workers, ["Ready"]) == {"False"}, "both to be not ready")
    assert [worker.condition("Ready")["message"] for worker in workers] == ["container runtime is down"] * 2
    for worker in workers:
        worker.machine.run("systemctl", "start", "containerd")
    eventually(lambda: shown(workers, ["Ready"]) == {"True"}, "both to be ready")


def test_the_agent_is_a_service_until_the_machine_leaves(three: Worker) -> None:
    machine = three.machine
    three.end()
    three.kubelet()
    refused = kubewright(machine, "agent", "install", *three.flags, check=False)
    assert (refused.code, "a kubelet runs on this machine" in refused.err) == (4, True)
    three.end()
    machine.run("systemctl", "disable", "kubelet")
    machine.run("mkdir", "-p", f"/etc/systemd/system/{UNIT}.service.d")
    settings = "".join(f"Environment={name}={value}\n" for name, value in ENVIRONMENT.items())
    write(machine, f"/etc/systemd/system/{UNIT}.service.d/test.conf", f"[Service]\n{settings}")
    moved = three.heartbeat()
    assert kubewright(machine, "agent", "install", *three.flags).out == "update service kubewright-agent (reload, enable, start)\n"
    three.ready(since=moved)
    assert kubewright(machine, "agent", "install", *three.flags).out == ""
    pid = machine.run("systemctl", "show", "-P", "MainPID", UNIT).out
    machine.run("systemctl", "reload", UNIT)
    eventually(lambda: "is reloaded" in three.said(), "the reload")
    assert machine.run("systemctl", "show", "-P", "MainPID", UNIT).out == pid
    eventually(lambda: machine.run("systemctl", "show", "-P", "StatusText", UNIT).out == "Ready\n", "Ready where systemd shows it")
    machine.run("rm", "-r", f"/etc/systemd/system/{UNIT}.service.d")
    left = kubewright(machine, "agent", "leave", "-o", "json")
    assert "kubectl delete node three" in left.err
    assert (three.get("lease"), three.get("csinode")) == ({}, {})
    assert machine.run("systemctl", "is-enabled", UNIT, check=False).code != 0
    assert machine.run("sh", "-c", "ls /var/lib/kubelet/pki/kubelet-client* /etc/kubernetes/kubelet.conf", check=False).out == ""


def serving_requests(one: Machine, name: str) -> list[dict[str, Any]]:
    rows = kubectl(one, "get", "csr")["items"]
    mine = [row for row in rows if row["spec"]["username"] == f"system:node:{name}"]
    return [row for row in mine if row["spec"]["signerName"] == csr.SERVING_SIGNER]


def test_agent_and_kubelet_request_the_same_serving_certificate_and_serve_with_it(two: Worker) -> None:
    asked = []
    for start in (two.kubelet, two.agent):
        two.end()
        two.machine.run("sh", "-c", "rm -f /var/lib/kubelet/pki/kubelet-server*")
        administer(two.one, "delete", "csr", "--all")
        moved = two.heartbeat()
        start("--rotate-server-certificates")
        two.ready(since=moved)
        eventually(lambda: bool(serving_requests(two.one, "two")), f"its request: {two.said()}")
        [request] = serving_requests(two.one, "two")
        found = summaries.of_request(base64.b64decode(request["spec"].pop("request")))
        asked.append((request["spec"], found.subject, found.names))
        administer(two.one, "certificate", "approve", request["metadata"]["name"])
        proxy = ("kubectl", "get", "--raw", "/api/v1/nodes/two/proxy/healthz")
        eventually(lambda proxy=proxy: two.one.run(*proxy, env=ADMIN, check=False).out == "ok", f"health: {two.said()}")
        issuer = ("openssl", "s_client", "-connect", f"{two.machine.address}:10250", "-CAfile", "/etc/kubernetes/pki/ca.crt", "-verify_ip")
        verified = two.machine.run(
            "sh", "-c", f"echo | {' '.join(issuer)} {two.machine.address} -verify_return_error 2>&1", check=False
        ).out
        assert "Verify return code: 0 (ok)" in verified, verified
        pki = two.machine.run("sh", "-c", "ls /var/lib/kubelet/pki | grep kubelet-server").out.split()
        assert [name for name in pki if name == "kubelet-server-current.pem"] != []
    assert asked[0] == asked[1]
    two.end()
    two.kubelet()


def test_a_shutdown_is_reported_before_the_machine_is_down(two: Worker) -> None:
    two.end()
    moved = two.heartbeat()
    two.agent()
    two.ready(since=moved)
    two.machine.run("systemctl", "poweroff", check=False)
    eventually(lambda: two.condition("Ready").get("status") == "False", "its last words")
    assert two.condition("Ready")["message"] == "node is shutting down"
    eventually(lambda: shut_down(two.one) == ["two"], "its event")


def shut_down(one: Machine) -> list[str]:
    """Return the nodes that have announced their shutdown by an event."""
    found = kubectl(one, "get", "events", "--field-selector=reason=Shutdown").get("items", [])
    return [row["involvedObject"]["name"] for row in found]
