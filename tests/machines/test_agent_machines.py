"""`agent run` beside the real kubelet, with the same flags and files: on one machine one after the other, and on two at the same time.

What differs is a row of docs/compat/kubelet.md; what is listed here has one.
"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from machine_kit import CONFIG, ENVIRONMENT, INIT, SHARED, eventually, kubectl, kubewright, write
from testbed.bed import Bed, Parts
from testbed.machine import Machine
from testbed.sharing import PYTHON

from kubewright.agent.status.setters import find
from kubewright.pki import csr

ADMIN = {"KUBECONFIG": "/etc/kubernetes/admin.conf"}
IGNORED = "--ignore-preflight-errors=SystemVerification"  # these machines have cgroup v1
UNIT = "kubewright-agent"
PAGE = (Path(__file__).parents[2] / "docs" / "compat" / "kubelet.md").read_text()
MOVES: Final = re.compile(
    r"metadata\.(?:uid|resourceVersion|creationTimestamp|managedFields)(?:$|\.|\[)"
    r"|metadata\.ownerReferences$|spec\.podCIDRs?$|.*\.(?:lastHeartbeatTime|lastTransitionTime|renewTime)$"
)
"""Fields that differ between two runs of the same program. Owners are compared apart."""
MADE: Final = {"spec.taints", "status.declaredFeatures"}
"""What differs in a Node that the agent makes."""
TAKEN: Final = {"status.declaredFeatures"}
"""What differs in a Node that it takes over: it may change no taints."""
SOFT: Final = {"memory.available": "8Ti", "nodefs.available": "8Pi", "pid.available": "9M"}
EXTRA: Final = (
    *("--node-labels=example.com/kind=press,topology.kubernetes.io/zone=z1", "--register-with-taints=example.com/own=x:NoSchedule"),
    *("--system-reserved=cpu=150m,memory=64Mi,ephemeral-storage=1Gi", "--kube-reserved=cpu=50m,memory=32Mi", "--max-pods=33"),
    *("--eviction-hard=memory.available<5%", "--node-status-max-images=2", "--provider-id=test://two"),
    f"--eviction-soft={','.join(f'{signal}<{most}' for signal, most in SOFT.items())}",
    f"--eviction-soft-grace-period={','.join(f'{signal}=8h' for signal in SOFT)}",
)
"""Flags of a second run, under which everything is scarce: soft thresholds count at once, and evict nothing for hours."""


class Worker:
    """A machine that has joined, and on which kubelet and agent run by turns. `flags` are what its kubelet was started with."""

    def __init__(self, one: Machine, machine: Machine) -> None:
        self.one, self.machine, self.name = one, machine, machine.name
        line = machine.run("sh", "-c", "tr '\\0' '\\n' < /proc/$(systemctl show -P MainPID kubelet)/cmdline").out
        self.flags = line.split("\n")[1:-1]

    def kubelet(self, *extra: str) -> None:
        write(self.machine, "/etc/default/kubelet", f"KUBELET_EXTRA_ARGS='{' '.join(extra)}'\n")
        self.machine.run("systemctl", "start", "kubelet")

    def agent(self, *extra: str) -> None:
        settings = [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
        run = (f"--unit={UNIT}", "--property=Type=notify", *settings, PYTHON, "-m", "kubewright", "agent", "run", *self.flags, *extra)
        self.machine.run("systemd-run", *run)

    def end(self) -> None:
        """End whichever of them runs."""
        self.machine.run("systemctl", "stop", "kubelet", f"{UNIT}.service", check=False)

    def get(self, kind: str) -> dict[str, Any]:
        where = ("-n", "kube-node-lease") if kind == "lease" else ()
        return kubectl(self.one, *where, "get", kind, self.name)

    def objects(self) -> dict[str, Any]:
        found = {kind: self.get(kind) for kind in ("node", "lease", "csinode")}
        assert all(found.values()), found
        return found

    def forget(self) -> None:
        """Delete what a kubelet makes, while none runs."""
        self.one.run("kubectl", "delete", "node", self.name, env=ADMIN)
        self.one.run("kubectl", "-n", "kube-node-lease", "delete", "lease", self.name, "--ignore-not-found", env=ADMIN)
        eventually(lambda: not self.get("csinode"), "the CSINode to go with its Node")

    def condition(self, kind: str) -> dict[str, Any]:
        return find(self.get("node").get("status", {}).get("conditions", ()), kind) or {}

    def ready(self, *, since: str = "", status: str = "True") -> None:
        """Wait until the Node is ready, or is not, by a heartbeat after a moment, and has its other objects."""

        def is_so() -> bool:
            row = self.condition("Ready")
            return row.get("status") == status and row["lastHeartbeatTime"] > since

        eventually(is_so, f"Ready to be {status} on {self.name}: {self.said()}")
        eventually(lambda: bool(self.get("lease") and self.get("csinode")), "its Lease and CSINode")

    def said(self) -> str:
        return self.machine.run("journalctl", "-u", UNIT, "-n", "30", "--no-pager", check=False).out


@pytest.fixture(scope="module")
def workers(parts: Parts) -> Iterator[tuple[Worker, Worker]]:
    with Bed("one", "two", "three", bed="agents", parts=parts, shared=SHARED) as bed:
        one = bed["one"]
        write(one, CONFIG, INIT.format(address=one.address))
        kubewright(one, "init", "--config", CONFIG)
        words = kubewright(one, "token", "create", "--print-join-command").out.split()[2:]
        found = []
        for name in ("two", "three"):
            kubewright(bed[name], "join", *words, IGNORED)
            found.append(Worker(one, bed[name]))
        for worker in found:
            worker.ready()
        yield found[0], found[1]


def differences(left: Any, right: Any, path: str = "") -> set[str]:
    """Return the paths that differ; entries of lists of conditions and addresses by their type."""
    if MOVES.match(path):
        return set()
    if isinstance(left, list) and isinstance(right, list) and all(isinstance(row, dict) and "type" in row for row in (*left, *right)):
        left, right = ({f"{row['type']}:{row.get('address', '')}": row for row in rows} for rows in (left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        below = (differences(left.get(name), right.get(name), f"{path}.{name}" if path else name) for name in {*left, *right})
        return set().union(*below)
    return set() if left == right else {path}


def all_differences(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, set[str]]:
    return {kind: found for kind in left if (found := differences(left[kind], right[kind]))}


def owned(objects: Mapping[str, Any]) -> list[dict[str, str]]:
    """The owners of Lease and CSINode, which have to be this Node."""
    expected = {"apiVersion": "v1", "kind": "Node", "name": "two", "uid": objects["node"]["metadata"]["uid"]}
    rows = [owner for kind in ("lease", "csinode") for owner in objects[kind]["metadata"]["ownerReferences"]]
    assert rows == [expected] * 2
    return rows


def test_every_difference_is_written_down() -> None:
    table = PAGE.partition("## agent run: different, on purpose")[2]
    for path in MADE | TAKEN:
        assert f"`{path}`" in table, path


def test_a_node_is_taken_over_and_given_back(workers: tuple[Worker, Worker]) -> None:
    two, _ = workers
    kubelets, moved = two.objects(), two.condition("Ready")["lastHeartbeatTime"]
    two.end()
    two.agent()
    two.ready(since=moved)
    taken, moved = two.objects(), two.condition("Ready")["lastHeartbeatTime"]
    assert taken["node"]["metadata"]["uid"] == kubelets["node"]["metadata"]["uid"]
    assert all_differences(kubelets, taken) == {"node": TAKEN}
    assert two.machine.run(PYTHON, "-m", "kubewright", "agent", "status", env=ENVIRONMENT).out.count("kubewright.dev/no-pods") == 1
    two.end()
    two.kubelet()
    two.ready(since=moved)
    assert all_differences(kubelets, two.objects()) == {}


@pytest.mark.parametrize("extra", [(), EXTRA], ids=["same-flags", "scarce"])
def test_a_node_that_the_agent_makes_is_the_kubelets(workers: tuple[Worker, Worker], extra: tuple[str, ...]) -> None:
    two, _ = workers
    found = []
    for start in (two.agent, two.kubelet):
        two.end()
        two.forget()
        start(*extra)
        two.ready()
        if extra:
            eventually(lambda: all(two.condition(kind).get("status") == "True" for kind in PRESSURES), f"pressure: {two.said()}")
        found.append(two.objects())
    assert all_differences(found[1], found[0]) == {"node": MADE}
    for objects in found:
        owned(objects)
    if extra:
        node = found[0]["node"]
        assert (node["spec"]["providerID"], node["status"]["capacity"]["pods"], len(node["status"]["images"])) == ("test://two", "33", 2)
        assert {taint["key"] for taint in node["spec"]["taints"]} >= {"example.com/own", "kubewright.dev/no-pods"}


PRESSURES = ("MemoryPressure", "DiskPressure", "PIDPressure")


def test_a_runtime_that_is_stopped_and_started_shows_alike_at_the_same_time(workers: tuple[Worker, Worker]) -> None:
    two, three = workers
    two.end()
    two.kubelet()
    three.end()
    three.agent()
    for worker in workers:
        worker.ready()
    for worker in workers:
        worker.machine.run("systemctl", "stop", "containerd")
    seconds: dict[str, float] = {}
    begun = time.monotonic()

    def all_are(status: str) -> Callable[[], bool]:
        def look() -> bool:
            for worker in workers:
                if worker.condition("Ready").get("status") == status:
                    seconds.setdefault(f"{worker.name} {status}", time.monotonic() - begun)
            return all(f"{worker.name} {status}" in seconds for worker in workers)

        return look

    eventually(all_are("False"), "both to be not ready")
    assert [worker.condition("Ready")["message"] for worker in workers] == ["container runtime is down"] * 2
    for worker in workers:
        worker.machine.run("systemctl", "start", "containerd")
    eventually(all_are("True"), "both to be ready")
    assert seconds["three False"] < seconds["two False"] + 12  # a round of the kubelet's
    assert seconds["three True"] < seconds["two True"] + 12


def test_the_agent_is_a_service_until_the_machine_leaves(workers: tuple[Worker, Worker]) -> None:
    _, three = workers
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
    moved = three.condition("Ready")["lastHeartbeatTime"]
    assert kubewright(machine, "agent", "install", *three.flags).out == "update service kubewright-agent (reload, enable, start)\n"
    three.ready(since=moved)
    assert kubewright(machine, "agent", "install", *three.flags).out == ""
    pid = machine.run("systemctl", "show", "-P", "MainPID", UNIT).out
    machine.run("systemctl", "reload", UNIT)
    eventually(lambda: "is reloaded" in three.said(), "the reload")
    assert machine.run("systemctl", "show", "-P", "MainPID", UNIT).out == pid
    assert "Ready" in machine.run("systemctl", "show", "-P", "StatusText", UNIT).out
    machine.run("rm", "-r", f"/etc/systemd/system/{UNIT}.service.d")
    left = kubewright(machine, "agent", "leave", "-o", "json")
    assert "kubectl delete node three" in left.err
    assert (three.get("lease"), three.get("csinode")) == ({}, {})
    assert machine.run("systemctl", "is-enabled", UNIT, check=False).code != 0
    assert machine.run("sh", "-c", "ls /var/lib/kubelet/pki/kubelet-client* /etc/kubernetes/kubelet.conf", check=False).out == ""


def serving_requests(one: Machine, name: str) -> list[dict[str, Any]]:
    rows = json.loads(one.run("kubectl", "get", "csr", "-o", "json", env=ADMIN).out)["items"]
    mine = [row for row in rows if row["spec"]["username"] == f"system:node:{name}"]
    return [row for row in mine if row["spec"]["signerName"] == csr.SERVING_SIGNER]


def test_both_ask_for_the_same_serving_certificate_and_answer_the_api_server_with_it(workers: tuple[Worker, Worker]) -> None:
    two, _ = workers
    asked = []
    for start in (two.kubelet, two.agent):
        two.end()
        two.machine.run("sh", "-c", "rm -f /var/lib/kubelet/pki/kubelet-server*")
        two.one.run("kubectl", "delete", "csr", "--all", env=ADMIN)
        moved = two.condition("Ready")["lastHeartbeatTime"]
        start("--rotate-server-certificates")
        two.ready(since=moved)
        eventually(lambda: bool(serving_requests(two.one, "two")), f"its request: {two.said()}")
        [request] = serving_requests(two.one, "two")
        found = csr.parse(base64.b64decode(request["spec"].pop("request")))
        asked.append((request["spec"], found.subject, found.names))
        two.one.run("kubectl", "certificate", "approve", request["metadata"]["name"], env=ADMIN)
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
