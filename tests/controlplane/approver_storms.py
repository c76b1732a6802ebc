"""Many requests for serving certificates at the same time: storms of good ones, and of hostile ones beside good ones.

Used by tests, and by `make soak-controllers` with larger numbers.
"""

from __future__ import annotations

import base64
import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_kit import Bench, eventually
from replicas_kit import Replicas, Work

from kubewright.base.records import replace
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Impersonation
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST
from kubewright.manifests import controllers
from kubewright.manifests.rbac import Purpose

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "controllers"))

from controllers_kit import NODES, SERVING_USAGES, request
from cryptography.hazmat.primitives.asymmetric import ec

SIGNER = "kubernetes.io/kubelet-serving"
POLICY = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources: [{file: {nodes: [{node: "*", addresses: [10.64.0.0/12]}]}}]
"""
FLAGS = ("--controllers=servingapproving",)
PATIENT = ("--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=60s", "--secure-port=0")
THREADS = 4


class Nodes:
    """Nodes that only exist in the API, each with an address of its own, and their requests."""

    def __init__(self, cluster: Bench) -> None:
        self._access = cluster.cluster().access
        self._addresses: dict[str, bytes] = {}
        self._keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self._numbers = itertools.count(1)

    def register(self, api: KubeClient, names: Sequence[str]) -> None:
        """Create Nodes that report their addresses."""
        for name in names:
            number = next(self._numbers)
            self._addresses[name] = bytes((10, 64, number // 250, 1 + number % 250))
            self._keys[name] = ec.generate_private_key(ec.SECP256R1())
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda name: self._create(api, name), names))

    def _create(self, api: KubeClient, name: str) -> None:
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        api.create(node)
        address = ".".join(map(str, self._addresses[name]))
        rows = [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name}]
        api.update({**node, "status": {"addresses": rows}}, subresource="status")  # whatever others have changed meanwhile

    @contextmanager
    def client(self, name: str) -> Iterator[KubeClient]:
        """Provide a client that the API server takes for a node."""
        acting = Impersonation(user=f"system:node:{name}", groups=(NODES,))
        client = KubeClient(replace(self._access, impersonation=acting), timeout=600)
        try:
            yield client
        finally:
            client.close()

    def body(
        self, name: str, node: str, *, others: str = "", usages: Sequence[str] = SERVING_USAGES, signer: str = SIGNER
    ) -> dict[str, object]:
        """A request of a node for its own name and address, or for the address of another one."""
        names = (("dns", node), ("ip", self._addresses[others or node]))
        text = request(names=names, subject=(("2.5.4.10", NODES), ("2.5.4.3", f"system:node:{node}")), key=self._keys[node])
        spec = {"request": base64.b64encode(text).decode(), "signerName": signer, "usages": list(usages)}
        return {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}

    def ask(self, names: Sequence[str]) -> None:
        """Let each node send one request, which has the node's name."""

        def send(name: str) -> None:
            with self.client(name) as client:
                client.create(self.body(name, name))

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(send, names))


def flags_of(cluster: Bench, api: KubeClient) -> tuple[str, ...]:
    """Give the controllers' user the permissions of the approver as well, and return the flags of a replica with a policy."""
    for document in controllers.rights(purposes=[Purpose.SERVING_APPROVER]):
        api.create(document)
    path = cluster.root / "policy.yaml"
    path.write_text(POLICY)
    return (*FLAGS, f"--node-policy={path}")


def approved(api: KubeClient) -> set[str]:
    """The names of the approved requests for serving certificates."""
    found = api.list(CERTIFICATE_SIGNING_REQUEST, field_selector=f"spec.signerName={SIGNER}")
    return {one["metadata"]["name"] for one in found if "Approved" in kinds(one)}


def kinds(csr: dict[str, object]) -> list[str]:
    status = csr.get("status")
    conditions = status.get("conditions", ()) if isinstance(status, dict) else ()
    return [one["type"] for one in conditions]


def approving(nodes: Nodes, flags: tuple[str, ...]) -> Work:
    """The work of the approver in an interrupted round: a request of each of many nodes."""
    return Work(
        send=lambda _, names: nodes.ask(names), done=approved, verb="approved", writes=("approval",), flags=flags, prepare=nodes.register
    )


@dataclass(frozen=True)
class Delay:
    """How long requests of other nodes took, in seconds, of a hundred the slowest but one; and the approver's memory at most, in MiB."""

    harmless: float
    hostile: float
    memory: float
    denied: int


def beset(cluster: Bench, api: KubeClient, replicas: Replicas, flags: Sequence[str], *, count: int, harmless: int) -> Delay:
    """Let a node flood the approver with requests for the address of another node, malformed ones, and good ones that replace each other.

    `harmless` requests that no controller handles show how long the API server and the machine take.
    """
    nodes = Nodes(cluster)
    good = [f"good-{number:03d}" for number in range(60)]
    nodes.register(api, ["noisy", *good])
    replica = replicas.start(*flags, *PATIENT)
    eventually(lambda: replicas.leader(api) is replica, "the replica to lead")
    before = _flooded(nodes, api, "harmless", good[:30], count=harmless, signer="example.com/nobody")
    during = _flooded(nodes, api, "hostile", good[30:], count=count)
    status = Path(f"/proc/{replica.process.pid}/status").read_text()
    [memory] = [int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM:")]
    found = [one for one in api.list(CERTIFICATE_SIGNING_REQUEST) if one["metadata"]["name"].startswith("hostile-")]
    assert len(found) == count
    assert not [one for one in found if "Approved" in kinds(one) and int(one["metadata"]["name"].rpartition("-")[2]) % 3]
    return Delay(harmless=before, hostile=during, memory=memory, denied=sum("Denied" in kinds(one) for one in found))


def _flooded(nodes: Nodes, api: KubeClient, name: str, good: Sequence[str], *, count: int, signer: str = SIGNER) -> float:
    def flood(part: int) -> None:
        with nodes.client("noisy") as client:
            for number in range(part, count, THREADS):
                others = good[number % len(good)] if number % 3 == 1 else ""
                usages = ("server auth",) if number % 3 == 2 else SERVING_USAGES
                client.create(nodes.body(f"{name}-{number:05d}", "noisy", others=others, usages=usages, signer=signer))

    took: list[float] = []
    turns = itertools.cycle(good)
    with ThreadPoolExecutor(THREADS) as pool:
        floods = [pool.submit(flood, part) for part in range(THREADS)]
        while len(took) < 10 or (not all(one.done() for one in floods) and len(took) < 10 * len(good)):
            took.append(_seconds(nodes, api, f"{name[:4]}-{len(took):04d}", next(turns)))
            time.sleep(0.2)
        for one in floods:
            one.result()
    return sorted(took)[-1 - len(took) // 100]


def _seconds(nodes: Nodes, api: KubeClient, name: str, node: str) -> float:
    """Let a node send a good request, and return how long it took until it was approved."""
    with nodes.client(node) as client:
        began = time.monotonic()
        client.create(nodes.body(name, node))
        while kinds(api.get(CERTIFICATE_SIGNING_REQUEST, name)) != ["Approved"]:
            assert time.monotonic() < began + 600, f"{name} is not approved"
            time.sleep(0.01)
        return time.monotonic() - began
