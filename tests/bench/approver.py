"""Approving requests for serving certificates: ours compared with csrapproving of kube-controller-manager, which checks no names.

Both run in turn with the same cluster, of which only etcd and the API server still run, and without rate limits. The
requests of both are made before they start, each by another node. For requests that come evenly, ours has its own limit.
"""

from __future__ import annotations

import base64
import ipaddress
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from tests.bench import accounting, asking, bare_cluster, csr_requests
from tests.bench.admin import Admin
from tests.bench.asking import Watched
from tests.bench.bare_cluster import PEER
from tests.bench.csr_requests import APPROVED, ASKING
from tests.bench.model import MEBIBYTES, MOST, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed, Running
from tests.bench.setup import ADMIN, Setup

BURST: Final = 800
WARM: Final = 100
RATE: Final = 50.0
EVENLY: Final = 500
NODES: Final = 5000
REPORTS: Final = 17.0
"""Nodes that report their status each second: 5,000 every five minutes."""
IDLE: Final = 30.0
SETTLE: Final = 10.0
SIGNER: Final = "kubernetes.io/kubelet-serving"
POLICY: Final = """apiVersion: controllers.kubewright/v1alpha1
kind: NodeApprovalPolicy
sources: [{file: {nodes: [{node: "*", names: ["{node}.nodes.example.com"], addresses: [198.18.0.0/15]}]}}]
"""
_ALONE: Final = ("--leader-elect=false", "--secure-port=0")
_LIFTED: Final = ("--kube-api-qps=100000", "--kube-api-burst=100000", *_ALONE)
_CONNECTIONS: Final = 4
_MIB: Final = 1024 * 1024
_FIRST: Final = ipaddress.IPv4Address("198.18.0.1")
"""RFC 2544: addresses for benchmarks, which are neither Services' nor pods'."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The API server, and how to start each side."""

    setup: Setup
    kubeconfig: Path
    sides: Mapping[str, tuple[str, ...]]

    @contextmanager
    def started(self, side: str) -> Iterator[Running]:
        """Run one side. It must not end by itself."""
        process = Running(self.sides[side], env=self.setup.environment, log=self.setup.work / f"{side}.log")
        try:
            yield process
        except BenchmarkFailed as error:
            raise BenchmarkFailed(f"{side}: {error}: {process.last_lines()}") from error
        finally:
            process.kill()  # one that has ended by itself has decided nothing, and failed the wait


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds, and then the cost of an idle process in a large cluster."""
    arena = _arena(setup)
    rows = []
    for number in range(rounds):
        row: Row = {"oursFirst": number % 2 == 0}
        for side in ("ours", "theirs") if number % 2 == 0 else ("theirs", "ours"):
            row |= {f"{side} {key}": value for key, value in _burst(arena, side, f"r{number}-{side}").items()}
        row["ours p99"] = _evenly(arena, f"e{number}")
        rows.append(row)
        told = ", ".join(f"{side} {1 / row[f'{side} seconds']:.0f}/s {row[f'{side} cpu'] * 1000:.2f} ms" for side in ("ours", "theirs"))
        setup.say(f"approver {number + 1}/{rounds}: {told}, p99 {row['ours p99'] * 1000:.0f} ms")
    idle = _idle(arena)
    bare_cluster.stop(setup)
    return result("approver", _figures(rows, idle), [*rows, idle])


def _figures(rows: Sequence[Row], idle: Row) -> tuple[Any, ...]:
    return (
        ratios(f"time per approval, relative to csrapproving of {PEER}", rows, "ours seconds", "theirs seconds", target=1.0),
        figure("time per approval", rows, "ours seconds"),
        figure(f"time per approval of csrapproving of {PEER}", rows, "theirs seconds"),
        ratios(f"CPU per approval, relative to csrapproving of {PEER}", rows, "ours cpu", "theirs cpu", target=1.0),
        figure("CPU per approval", rows, "ours cpu"),
        figure(f"CPU per approval of csrapproving of {PEER}", rows, "theirs cpu"),
        figure(f"created to approved, {RATE:.0f} per second: 99 % within", rows, "ours p99", target=1.0),
        figure(f"idle with {NODES} Nodes that report: CPU per minute", [idle], "minute", target=1.8),
        figure(f"idle with {NODES} Nodes that report: most memory", [idle], "peakMiB", unit=MEBIBYTES, target=150.0, statistic=MOST),
    )


def _burst(arena: Arena, side: str, prefix: str) -> Row:
    """Create requests, start the process, and measure its time and CPU from the hundredth approval to the last."""
    if side == "ours":
        _create(arena, prefix, BURST)
    else:
        asking.create_all(arena.kubeconfig, ASKING, csr_requests.bodies(prefix, BURST))
    with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched, arena.started(side) as process:
        begin = watched.wait(APPROVED, WARM)
        before = accounting.used_by(process.pid).cpu_seconds
        end = watched.wait(APPROVED, BURST)
        used = accounting.used_by(process.pid).cpu_seconds - before
    _require_approved(arena)
    _delete_all(arena)
    return {"seconds": (end - begin) / (BURST - WARM), "cpu": used / (BURST - WARM)}


def _evenly(arena: Arena, prefix: str) -> float:
    """Create nodes with their requests evenly while ours runs, and return within how many seconds 99 % of them were approved."""
    began: dict[str, float] = {}
    with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched, arena.started("limited"):
        _create(arena, f"{prefix}-warm", WARM)
        watched.wait(APPROVED, WARM)
        wanted = [_serving(f"{prefix}-{number}", WARM + number) for number in range(EVENLY)]
        client, start = Admin(arena.kubeconfig), time.monotonic()
        for number, (node, body, headers) in enumerate(wanted):
            time.sleep(max(0.0, start + number / RATE - time.monotonic()))
            client.post("/api/v1/nodes", node)
            began[body["metadata"]["name"]] = time.monotonic()
            client.post(ASKING.path, body, headers=headers)
        client.close()
        watched.wait(APPROVED, WARM + EVENLY)
    _require_approved(arena)
    _delete_all(arena)
    return asking.in_99_of_100(began, watched.seen[APPROVED])


def _idle(arena: Arena) -> Row:
    """Run ours with many Nodes that report their status, and measure what it costs."""
    _together(arena, lambda client, number: client.post("/api/v1/nodes", _node(f"idle-{number}", number)), NODES)
    client, number = Admin(arena.kubeconfig), 0
    with arena.started("limited") as process:
        time.sleep(SETTLE)
        begin, before = time.monotonic(), accounting.used_by(process.pid).cpu_seconds
        while time.monotonic() < begin + IDLE:
            time.sleep(max(0.0, begin + number / REPORTS - time.monotonic()))
            client.patch(f"/api/v1/nodes/idle-{number % NODES}/status", {"metadata": {"annotations": {"reported": str(number)}}})
            number += 1
        used = accounting.used_by(process.pid)
        minute = 60 * (used.cpu_seconds - before) / (time.monotonic() - begin)
    client.close()
    return {"minute": minute, "peakMiB": used.peak_bytes / _MIB, "residentMiB": used.resident_bytes / _MIB}


def _create(arena: Arena, prefix: str, count: int) -> None:
    """Create nodes, each with a request for its serving certificate."""
    wanted = [_serving(f"{prefix}-{number}", number) for number in range(count)]

    def one(client: Admin, number: int) -> None:
        node, body, headers = wanted[number]
        client.post("/api/v1/nodes", node)
        client.post(ASKING.path, body, headers=headers)

    _together(arena, one, count)


def _together(arena: Arena, work: Any, count: int) -> None:
    def some(first: int) -> None:
        client = Admin(arena.kubeconfig)
        for number in range(first, count, _CONNECTIONS):
            work(client, number)
        client.close()

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(some, range(_CONNECTIONS)))


def _require_approved(arena: Arena) -> None:
    """Raise BenchmarkFailed if a request was denied: denials cost more."""
    client = Admin(arena.kubeconfig)
    found = [one["type"] for csr in client.get(ASKING.path)["items"] for one in csr["status"]["conditions"]]
    client.close()
    if set(found) != {"Approved"}:
        raise BenchmarkFailed(f"{found.count('Denied')} of {len(found)} requests were denied")


def _delete_all(arena: Arena) -> None:
    client = Admin(arena.kubeconfig)
    client.delete(ASKING.path)
    client.delete("/api/v1/nodes")
    client.close()


def _node(name: str, number: int) -> dict[str, Any]:
    addresses = [{"type": "InternalIP", "address": str(_FIRST + number)}, {"type": "Hostname", "address": name}]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": addresses}}


def _serving(name: str, number: int) -> tuple[dict[str, Any], dict[str, Any], Sequence[tuple[str, str]]]:
    """Return a Node, its request for a serving certificate, and the headers that impersonate it."""
    user = f"system:node:{name}"
    subject = x509.Name(
        [x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "system:nodes"), x509.NameAttribute(x509.NameOID.COMMON_NAME, user)]
    )
    names = x509.SubjectAlternativeName([x509.DNSName(name), x509.IPAddress(_FIRST + number)])
    builder = x509.CertificateSigningRequestBuilder(subject).add_extension(names, critical=False)
    text = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(Encoding.PEM)
    spec = {"request": base64.b64encode(text).decode(), "signerName": SIGNER, "usages": ["digital signature", "server auth"]}
    body = {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": {"name": name}, "spec": spec}
    return (
        _node(name, number),
        body,
        [("Impersonate-User", user), ("Impersonate-Group", "system:nodes"), ("Impersonate-Group", "system:authenticated")],
    )


def _arena(setup: Setup) -> Arena:
    directory, peer = bare_cluster.start(setup)
    replaced = ("--controllers=", "--cluster-signing-", "--leader-elect", "--kube-api-", "--secure-port=")
    theirs = [word for word in peer[1:] if not word.startswith(replaced)]
    policy = setup.work / "policy.yaml"
    policy.write_text(POLICY, encoding="utf-8")
    ours = ("controllers", "run", f"--kubeconfig={directory / ADMIN}", "--controllers=servingapproving", f"--node-policy={policy}")
    return Arena(
        setup=setup,
        kubeconfig=directory / ADMIN,
        sides={
            "ours": tuple(setup.argv(*ours, *_LIFTED)),
            "limited": tuple(setup.argv(*ours, *_ALONE)),
            "theirs": (str(setup.programs[PEER]), *theirs, "--controllers=certificatesigningrequest-approving-controller", *_LIFTED),
        },
    )
