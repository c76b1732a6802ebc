"""Nodes with a real control plane: joining, pods, the kubelet API, restarts, and the static pods of a machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_cluster import AgentCluster, agent_cluster, all_ready, stop_serving, views
from static_machine import machine

import kubewright
from kubewright.agent.server import KubeletServer
from kubewright.agent.status.facts import NodeFacts, simulated_machine
from kubewright.agent.view import NodePhase
from kubewright.base import errors
from kubewright.fleet.nodes import Fleet
from kubewright.kube import resources
from kubewright.kube.client import AsyncKubeClient

MACHINE = simulated_machine(kubelet_version="v1.36.3")
WITHIN = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentCluster]:
    with agent_cluster(tmp_path_factory.mktemp("agents"), audit=True, grace="10m") as running:  # no test is about silent nodes
        yield running


def fleet_of(cluster: AgentCluster, directory: Path, **changes: Any) -> Fleet:
    def facts(name: str) -> NodeFacts:
        return NodeFacts(name=name, profile=MACHINE.named(name), addresses=(cluster.address,))

    return Fleet(directory, facts=facts, **changes)


@asynccontextmanager
async def nodes(cluster: AgentCluster, directory: Path, *names: str, **changes: Any) -> AsyncIterator[Fleet]:
    """Nodes that are ready, with their kubelet API; they are removed from the cluster afterwards."""
    fleet, bootstrap = fleet_of(cluster, directory, **changes), cluster.bootstrap()
    kubelet = KubeletServer(fleet.agents, client_ca_pem=cluster.ca_pem)
    await kubelet.start(cluster.address, 10250)
    try:
        await fleet.add(*names, bootstrap=bootstrap)
        await all_ready(cluster, fleet)
        yield fleet
    finally:
        await fleet.stop()
        await bootstrap.close()
        await stop_serving(kubelet)
        await kubectl(cluster, "delete", "node", "--ignore-not-found", "--wait=false", *names)


async def kubectl(cluster: AgentCluster, *arguments: str, check: bool = True, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(cluster.kubectl, *arguments, check=check, stdin=stdin)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN):
        while not condition():
            await asyncio.sleep(0.05)


def entries(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def get(cluster: AgentCluster, *arguments: str) -> Any:
    return json.loads((await kubectl(cluster, "get", "-o", "json", *arguments)).stdout)


def deployment(name: str, replicas: int, **template: Any) -> str:
    labels = {"app": name}
    containers = [{"name": "app", "image": "example.org/app:1", "resources": {"requests": {"cpu": "10m"}}}]
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": containers, **template}},
            },
        }
    )


async def test_nodes_join_with_their_own_credentials(cluster: AgentCluster, tmp_path: Path):
    names = ["join-1", "join-2", "join-3"]
    async with nodes(cluster, tmp_path, *names) as fleet:
        assert [(view.name, view.phase, view.trouble) for view in views(fleet)] == [(name, NodePhase.READY, "") for name in names]
        found = {item["metadata"]["name"]: item for item in (await get(cluster, "nodes"))["items"]}
        assert {"join-1", "join-2", "join-3"} <= set(found)
        await kubectl(cluster, "wait", "--for=condition=Ready", "node", *names, "--timeout=600s")
        lease = ("lease/join-1", "--namespace=kube-node-lease", "--timeout=600s")
        await kubectl(cluster, "wait", "--for=create", *lease)
        await kubectl(cluster, "wait", "--for=jsonpath={.spec.holderIdentity}=join-1", *lease)
        async with asyncio.timeout(600):  # the node controller looks every five seconds
            while (await kubectl(cluster, "get", "node", *names, "-o", "jsonpath={.items[*].spec.taints}")).stdout:
                await asyncio.sleep(0.2)
    ranges = [found[name]["spec"]["podCIDR"] for name in names]
    assert len(set(ranges)) == 3
    assert found["join-1"]["metadata"]["annotations"]["kubewright.dev/simulated"] == "machine,pods"
    credentials: dict[str, set[str]] = {}
    for line in (cluster.place / "audit.log").read_text().rpartition("\n")[0].splitlines():  # the last line may be incomplete
        user = json.loads(line)["user"]
        if user["username"].startswith("system:node:join-"):
            credentials.setdefault(user["username"], set()).update(user["extra"]["authentication.kubernetes.io/credential-id"])
    assert sorted(credentials) == [f"system:node:{name}" for name in names]
    assert all(len(ids) == 1 for ids in credentials.values())
    assert len(set.union(*credentials.values())) == 3


async def test_a_deployment_becomes_available_and_is_removed(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "pods-1", "pods-2") as fleet:
        await kubectl(cluster, "apply", "-f", "-", stdin=deployment("ten", 10))
        await kubectl(cluster, "rollout", "status", "deployment/ten", "--timeout=600s")
        found = (await get(cluster, "pods", "-l", "app=ten"))["items"]
        assert len(found) == 10
        addresses = {pod["status"]["podIP"] for pod in found}
        assert len(addresses) == 10
        assert all(pod["status"]["phase"] == "Running" for pod in found)
        assert sum(view.pods for view in views(fleet)) == 10
        await kubectl(cluster, "set", "image", "deployment/ten", "app=example.org/app:2")
        await kubectl(cluster, "rollout", "status", "deployment/ten", "--timeout=600s")
        await kubectl(cluster, "delete", "deployment/ten", "--timeout=600s", "--cascade=foreground")
        await kubectl(cluster, "wait", "--for=delete", "pod", "-l", "app=ten", "--timeout=600s")
        assert (await get(cluster, "pods", "-l", "app=ten"))["items"] == []
        await until(lambda: not any(view.pods for view in views(fleet)))


async def test_the_api_server_keeps_pod_status_as_written(cluster: AgentCluster, tmp_path: Path):
    """A second check of a running pod writes nothing: neither side has to correct the other."""
    async with nodes(cluster, tmp_path, "still-1"):
        spec = {
            "initContainers": [{"name": "once", "image": "i"}, {"name": "side", "image": "i", "restartPolicy": "Always"}],
            "tolerations": [{"operator": "Exists"}],
        }
        await kubectl(cluster, "apply", "-f", "-", stdin=deployment("still", 1, **spec))
        await kubectl(cluster, "rollout", "status", "deployment/still", "--timeout=600s")
        (before,) = (await get(cluster, "pods", "-l", "app=still"))["items"]
        await kubectl(cluster, "label", "pod", before["metadata"]["name"], "touched=yes")
        await asyncio.sleep(0.5)
        (after,) = (await get(cluster, "pods", "-l", "app=still"))["items"]
        assert after["status"] == before["status"]
        assert int(after["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        await kubectl(cluster, "delete", "deployment/still", "--timeout=600s", "--cascade=foreground")


async def test_a_job_succeeds_and_a_deleted_pod_waits_for_its_finalizer(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "job-1"):
        await kubectl(cluster, "create", "job", "once", "--image=example.org/once")
        await kubectl(cluster, "wait", "--for=condition=Complete", "job/once", "--timeout=600s")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "held", "namespace": "default", "finalizers": ["example.org/hold"]},
            "spec": {"containers": [{"name": "app", "image": "i"}]},
        }
        await kubectl(cluster, "apply", "-f", "-", stdin=json.dumps(pod))
        await kubectl(cluster, "wait", "--for=condition=Ready", "pod/held", "--timeout=600s")
        await kubectl(cluster, "delete", "pod/held", "--wait=false")
        await kubectl(cluster, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/held", "--timeout=600s")
        held = await get(cluster, "pod", "held")
        assert held["metadata"]["deletionTimestamp"]
        await kubectl(cluster, "patch", "pod", "held", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
        await kubectl(cluster, "wait", "--for=delete", "pod/held", "--timeout=600s")


async def test_a_daemon_set_on_the_host_network_has_the_nodes_address(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "daemon-1", "daemon-2"):
        body = json.loads(deployment("every", 1, hostNetwork=True, tolerations=[{"operator": "Exists"}]))
        body["kind"] = "DaemonSet"
        del body["spec"]["replicas"]
        await kubectl(cluster, "apply", "-f", "-", stdin=json.dumps(body))
        available = "--for=jsonpath={.status.numberAvailable}=2"  # a rollout to the nodes that its controller knows is complete before
        await kubectl(cluster, "wait", available, "daemonset/every", "--timeout=600s")
        found = (await get(cluster, "pods", "-l", "app=every"))["items"]
        assert [pod["status"]["podIP"] for pod in found] == [cluster.address] * 2
        await kubectl(cluster, "delete", "daemonset/every", "--timeout=600s")


async def test_kubectl_shows_why_a_played_pod_has_no_logs(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "logs-1"):
        await kubectl(cluster, "run", "talker", "--image=example.org/app")
        await kubectl(cluster, "wait", "--for=condition=Ready", "pod/talker", "--timeout=600s")
        for command, words in (
            (("logs", "talker"), "is simulated by kubewright: nothing runs in it, so it has no logs"),
            (("exec", "talker", "--", "true"), "is simulated by kubewright: nothing runs in it, so exec is not possible"),
            (("attach", "talker"), "is simulated by kubewright: nothing runs in it, so attach is not possible"),
        ):
            done = await kubectl(cluster, *command, check=False)
            assert done.returncode != 0
            assert words in done.stderr, f"{command}: {done.stderr}"
        await kubectl(cluster, "delete", "pod/talker", "--timeout=600s")


async def test_restarted_nodes_do_not_join_again_and_their_pods_continue(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "again-1") as first:
        await kubectl(cluster, "apply", "-f", "-", stdin=deployment("stays", 3))
        await kubectl(cluster, "rollout", "status", "deployment/stays", "--timeout=600s")
        before = (await get(cluster, "pods", "-l", "app=stays"))["items"]
        requests = len((await get(cluster, "csr"))["items"])
        await first.stop()
        second = fleet_of(cluster, tmp_path)
        assert await second.without_certificates("again-1", "never-1") == ["never-1"]
        try:
            await second.add("again-1")
            await all_ready(cluster, second)
            await kubectl(cluster, "scale", "deployment/stays", "--replicas=5")
            await kubectl(cluster, "rollout", "status", "deployment/stays", "--timeout=600s")
            after = {pod["metadata"]["uid"]: pod for pod in (await get(cluster, "pods", "-l", "app=stays"))["items"]}
        finally:
            await second.stop()
        assert len((await get(cluster, "csr"))["items"]) == requests
        assert [after[pod["metadata"]["uid"]]["status"] for pod in before] == [pod["status"] for pod in before]
        assert len({pod["status"]["podIP"] for pod in after.values()}) == 5
    await kubectl(cluster, "delete", "deployment/stays", "--wait=false")


async def test_a_removed_node_leaves_nothing_behind(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "gone-1", "gone-2") as fleet:
        assert entries(tmp_path) == ["gone-1", "gone-2"]
        await fleet.remove("gone-1")
        assert entries(tmp_path) == ["gone-2"]
        assert [view.name for view in views(fleet)] == ["gone-2"]


async def test_a_node_cannot_change_another(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "own-1", "own-2") as fleet:
        client = fleet.agents()[0].client
        assert client is not None
        with pytest.raises(errors.Forbidden):
            await client.patch(resources.NODE, "own-2", {"metadata": {"labels": {"x": "y"}}}, subresource="status")
        with pytest.raises(errors.Forbidden):
            await client.list(resources.POD)


async def test_the_kubelet_api_serves_only_authorized_clients(cluster: AgentCluster, tmp_path: Path):
    async with nodes(cluster, tmp_path, "guard-1") as fleet:
        url = f"https://{cluster.address}:10250"
        answers = {}
        for name, groups in (
            ("kube-apiserver-kubelet-client", ("kubeadm:cluster-admins",)),
            ("kube-apiserver-kubelet-client", ()),
            ("system:node:guard-1", ("system:nodes",)),
            ("boss", ("system:masters",)),
        ):
            access = cluster.access(name, *groups)
            client = AsyncKubeClient(type(access)(server=url, identity=access.identity, verify=False), timeout=600)
            answers[name, *groups] = (await client.raw("GET", "/pods")).status
            await client.close()
        anonymous = AsyncKubeClient(type(access)(server=url, verify=False), timeout=600)
        answers["nobody",] = (await anonymous.raw("GET", "/pods")).status
        health = await anonymous.raw("GET", "/healthz")
        await anonymous.close()
        assert answers == {
            ("kube-apiserver-kubelet-client", "kubeadm:cluster-admins"): 200,
            ("kube-apiserver-kubelet-client",): 403,
            ("system:node:guard-1", "system:nodes"): 403,
            ("boss", "system:masters"): 200,
            ("nobody",): 401,
        }
        assert (health.status, health.body) == (401, b"Unauthorized\n")
        assert len(fleet.agents()) == 1


class Notes:
    """A provider that runs pods by recording them, and takes a moment for everything."""

    def __init__(self) -> None:
        self.running: dict[str, str] = {}
        self.ended: list[tuple[str, float]] = []
        self.changed: Callable[[str], None] = lambda _: None

    def begin(self, changed: Callable[[str], None], /) -> None:
        self.changed = changed

    def listed(self, pods: Any, /) -> None:
        self.running = {uid: name for uid, name in self.running.items() if uid in {pod["metadata"]["uid"] for pod in pods}}

    async def run(self, pod: Any, /) -> None:
        await asyncio.sleep(0.05)
        self.running[pod["metadata"]["uid"]] = pod["metadata"]["name"]

    def status(self, pod: Any, /) -> dict[str, Any] | None:
        if pod["metadata"]["uid"] not in self.running:
            return None
        conditions = [{"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")]
        return {"phase": "Running", "hostIP": "10.0.0.9", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "conditions": conditions}

    async def stop(self, pod: Any, /, *, grace: float) -> None:
        await asyncio.sleep(0.05)
        if self.running.pop(pod["metadata"]["uid"], None):
            self.ended.append((pod["metadata"]["name"], grace))


async def test_pods_of_a_custom_provider_run_and_are_deleted_when_it_has_stopped_them(cluster: AgentCluster, tmp_path: Path):
    notes: kubewright.PodProvider = Notes()
    assert isinstance(notes, Notes)
    admin = cluster.kubeconfig("kubernetes-admin")
    agent = kubewright.node_agent("own-1", directory=tmp_path, bootstrap=admin, pods=notes, address="10.0.0.9", labels={"kind": "own"})
    running = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(WITHIN):
            await agent.ready.wait()
        labels = (await get(cluster, "node", "own-1"))["metadata"]["labels"]
        assert labels["kind"] == "own"
        wanted = json.loads(deployment("owned", 2))
        wanted["spec"]["template"]["spec"]["nodeSelector"] = {"kind": "own"}
        await kubectl(cluster, "apply", "-f", "-", stdin=json.dumps(wanted))
        await kubectl(cluster, "rollout", "status", "deployment/owned", "--timeout=600s")
        pods = (await get(cluster, "pods", "-l", "app=owned"))["items"]
        assert {pod["spec"]["nodeName"] for pod in pods} == {"own-1"}
        assert sorted(notes.running.values()) == sorted(pod["metadata"]["name"] for pod in pods)
        assert {pod["status"]["podIP"] for pod in pods} == {"10.1.2.3"}
        await kubectl(cluster, "delete", "deployment", "owned", "--wait=false")
        await kubectl(cluster, "wait", "--for=delete", "pod", "-l", "app=owned", "--timeout=600s")
        assert notes.running == {}
        assert sorted(name for name, _ in notes.ended) == sorted(pod["metadata"]["name"] for pod in pods)
        assert {grace for _, grace in notes.ended} == {30.0}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kubectl(cluster, "delete", "node", "own-1", "--ignore-not-found", "--wait=false")


async def system_pods(cluster: AgentCluster, *arguments: str) -> str:
    """Return the output of kubectl for the namespace of static pods."""
    done = await kubectl(cluster, "-n", "kube-system", *arguments, check=False)
    return done.stdout + done.stderr


async def mirrored(cluster: AgentCluster, hash_: str) -> None:
    """Wait until the mirror pod is that of a static pod: `kubectl wait` fails for a pod that does not exist."""
    path = "jsonpath={.metadata.annotations.kubernetes\\.io/config\\.mirror}{.metadata.deletionTimestamp}"
    async with asyncio.timeout(600):
        while await system_pods(cluster, "get", "pod", "echo-control-1", "--ignore-not-found", "-o", path) != hash_:
            await asyncio.sleep(0.05)


async def test_static_pods_and_their_logs_are_shown(cluster: AgentCluster, tmp_path: Path):
    async with machine(cluster, tmp_path, "control-1") as (agent, static):
        await mirrored(cluster, "hash-1")
        assert "condition met" in await system_pods(cluster, "wait", "--for=condition=Ready", "pod/echo-control-1", "--timeout=600s")
        assert agent.client is not None
        found = await agent.client.get(resources.POD, "echo-control-1", "kube-system")
        assert found["status"]["containerStatuses"][0]["restartCount"] == 2
        assert found["status"]["podIP"] == cluster.address
        assert found["spec"]["priority"] == 2000001000
        assert await system_pods(cluster, "logs", "echo-control-1") == "first\nsecond\n"
        assert await system_pods(cluster, "logs", "echo-control-1", "--tail=1") == "second\n"
        assert await system_pods(cluster, "logs", "echo-control-1", "-f") == "first\nsecond\nfollowed\n"
        assert await system_pods(cluster, "logs", "echo-control-1", "--limit-bytes=3") == "fir"
        assert "no earlier log of echo-control-1 is kept" in await system_pods(cluster, "logs", "echo-control-1", "--previous")
        assert "exec is not possible there" in await system_pods(cluster, "exec", "echo-control-1", "--", "true")

        await system_pods(cluster, "delete", "pod", "echo-control-1", "--timeout=600s")
        await mirrored(cluster, "hash-1")
        assert "condition met" in await system_pods(cluster, "wait", "--for=condition=Ready", "pod/echo-control-1", "--timeout=600s")

        static.pods = [static.pod("hash-2")]
        static.changed.set()
        await mirrored(cluster, "hash-2")
        static.pods = []
        static.changed.set()
        await system_pods(cluster, "wait", "--for=delete", "pod/echo-control-1", "--timeout=600s")
        assert "not found" in await system_pods(cluster, "get", "pod", "echo-control-1")


async def test_a_control_plane_machine_requests_no_certificate(cluster: AgentCluster, tmp_path: Path):
    earlier = {csr["metadata"]["name"] for csr in (await get(cluster, "csr"))["items"]}
    async with machine(cluster, tmp_path, "control-2"):
        assert {csr["metadata"]["name"] for csr in (await get(cluster, "csr"))["items"]} == earlier
        assert "kubelet-client-current.pem" in [path.name for path in (tmp_path / "pki").iterdir()]
