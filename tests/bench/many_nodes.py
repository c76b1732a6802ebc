"""A cluster of a hundred nodes: our share of its CPU, our memory, and how long the nodes take compared with a bare loop.

One run is recorded first, with the API server's audit log. Then each round is a pair: `up` for a new cluster, without
audit, and the bare loop on a new cluster, whose CA has signed certificates for the recorded nodes before the clock
starts.
"""

from __future__ import annotations

import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.bench import accounting, admin, recording
from tests.bench.admin import Admin
from tests.bench.model import MEBIBYTES, MOST, RATIO, Result, figure, ratios
from tests.bench.recording import Join
from tests.bench.replay import Replayed, Target, replay
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import ADMIN, Setup, kubernetes_directory

from kubewright.base.randomness import SystemRandom
from kubewright.tokens import generate

NODES: Final = 100
TARGET_SHARE: Final = 0.2
TARGET_MEMORY: Final = 150.0
TARGET_LOOP: Final = 2.0

SETTLE: Final = 2.0
"""Seconds after which the memory is measured, and the bare loop starts."""
_MIB: Final = 1024 * 1024
_RECORDED: Final = "recorded"

Row = dict[str, Any]


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs."""
    joins = _record(setup)
    setup.say(f"nodes: recorded {sum(join.count for join in joins)} requests of {len(joins)} nodes")
    rows = []
    for number in range(rounds):
        halves: list[Callable[[], Row]] = [lambda: _up(setup), lambda: _loop(setup, joins)]
        row: Row = {"upFirst": number % 2 == 0}
        for half in halves if number % 2 == 0 else reversed(halves):
            row |= half()
        rows.append(row)
        setup.say(
            f"nodes {number + 1}/{rounds}: all Ready {row['nodesAfter']:.2f} s after the API, bare loop {row['loop']:.2f} s, "
            f"our CPU {row['share']:.1%}, our memory {row['memoryMiB']:.0f} MiB"
        )
    figures = (
        figure(f"our part of all CPU time, `up --nodes {NODES}`", rows, "share", unit=RATIO, target=TARGET_SHARE),
        figure("our memory: daemon and command at their peaks", rows, "memoryMiB", unit=MEBIBYTES, target=TARGET_MEMORY, statistic=MOST),
        ratios(f"API ready to {NODES} nodes Ready, relative to the bare loop", rows, "nodesAfter", "loop", target=TARGET_LOOP),
        figure(f"API ready to {NODES} nodes Ready", rows, "nodesAfter"),
        figure("the bare loop", rows, "loop"),
        figure("our CPU time: the command", rows, "commandCpu"),
        figure("our CPU time: the daemon", rows, "daemonCpu"),
        figure("CPU time of etcd, API server, controller manager and scheduler", rows, "componentCpu"),
    )
    return result("nodes", figures, rows, extra={"nodes": NODES, "requests": sum(join.count for join in joins)})


def _up(setup: Setup) -> Row:
    state = setup.work / "measured"
    root = state / "default"
    running = setup.start("up", "--state-dir", str(state), "--nodes", str(NODES))
    try:
        client, ready = admin.api_ready(
            kubernetes_directory(root) / ADMIN, hopeless=lambda: running.last_lines() if running.has_ended() else ""
        )
        all_ready, _ = admin.nodes_ready(client, NODES + 1)
        used = accounting.cluster_of(root)
        client.close()
        ended = running.wait()
    finally:
        running.kill()
    time.sleep(SETTLE)
    peak = accounting.cluster_of(root).daemon.peak_bytes
    setup.run("down", "--state-dir", str(state))
    ours = ended.cpu_seconds + used.daemon.cpu_seconds
    return {
        "apiReady": ready - running.began,
        "nodesReady": all_ready - running.began,
        "nodesAfter": all_ready - ready,
        "commandCpu": ended.cpu_seconds,
        "daemonCpu": used.daemon.cpu_seconds,
        "componentCpu": used.component_cpu,
        "share": ours / (ours + used.component_cpu),
        "commandPeakMiB": ended.peak_bytes / _MIB,
        "daemonPeakMiB": peak / _MIB,
        "memoryMiB": (ended.peak_bytes + peak) / _MIB,
    }


def _record(setup: Setup) -> list[Join]:
    """Record nodes that join a running cluster, so that none has to retry; keep the nodes' keys and certificates."""
    state = setup.work / _RECORDED
    state.mkdir()
    root = state / _RECORDED
    configuration, log = recording.write_configuration(setup.work)
    names = [f"{_RECORDED}-worker-{number}" for number in range(1, NODES + 1)]
    where = ("--state-dir", str(state), "--name", _RECORDED)
    setup.run("up", *where, "--nodes", "0", "--config", str(configuration))
    setup.run("up", *where, "--nodes", str(NODES))
    with log.open(encoding="utf-8") as lines:
        joins = recording.joins(lines, names)
    kept = setup.work / "kept"
    kept.mkdir()
    for name in names:
        shutil.copy(root / "nodes" / name / "pki" / "kubelet-client-current.pem", kept / f"{name}.pem")
    setup.run("down", *where)
    idle = [join.node for join in joins if not (join.anonymous and join.token and join.own)]
    if idle:
        raise BenchmarkFailed(f"the audit log lacks requests of {', '.join(idle)}")
    return joins


def _loop(setup: Setup, joins: list[Join]) -> Row:
    state = setup.work / "replayed"
    root = state / "default"
    pki = kubernetes_directory(root) / "pki"
    state.mkdir(exist_ok=True)
    setup.run("up", "--state-dir", str(state), "--nodes", "0")
    client = Admin(kubernetes_directory(root) / ADMIN)
    target = _target(setup, client, pki, joins)
    time.sleep(SETTLE)
    done: Replayed = replay(joins, target)
    registered = len(client.get("/api/v1/nodes")["items"]) - 1
    client.close()
    setup.run("down", "--state-dir", str(state))
    if done.refused or registered != len(joins):
        refused = "\n".join(done.refused[:5])
        raise BenchmarkFailed(f"not a true replay: answers {dict(done.answers)}, {registered} nodes registered\n{refused}")
    return {"loop": done.seconds, "loopAnswers": {str(status): count for status, count in sorted(done.answers.items())}}


def _target(setup: Setup, client: Admin, pki: Path, joins: list[Join]) -> Target:
    authority = pki / "ca.crt"
    pair = authority.read_bytes(), (pki / "ca.key").read_bytes()
    identities = {}
    for join in joins:
        signed = setup.work / "signed.pem"
        signed.write_bytes(_signed_again((setup.work / "kept" / f"{join.node}.pem").read_bytes(), *pair))
        identities[join.node] = ssl.create_default_context(cafile=authority)
        identities[join.node].load_cert_chain(signed)
    return Target(
        host=client.host,
        port=client.port,
        token=_new_token(client),
        anonymous=ssl.create_default_context(cafile=authority),
        identities=identities,
    )


def _new_token(client: Admin) -> str:
    """Create a bootstrap token for nodes: the recorded one was removed when all had joined."""
    token = generate(SystemRandom())
    usages = {"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true"}
    groups = "system:bootstrappers:kubeadm:default-node-token"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"bootstrap-token-{token.id}"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {"token-id": token.id, "token-secret": token.secret, "auth-extra-groups": groups, **usages},
    }
    client.post("/api/v1/namespaces/kube-system/secrets", secret)
    return token.text


def _signed_again(pem: bytes, authority_pem: bytes, authority_key: bytes) -> bytes:
    """Return a client's key and its certificate as if another CA had signed it."""
    key, old = serialization.load_pem_private_key(pem, None), x509.load_pem_x509_certificate(pem)
    authority, signer = x509.load_pem_x509_certificate(authority_pem), serialization.load_pem_private_key(authority_key, None)
    assert isinstance(signer, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey)
    builder = x509.CertificateBuilder(
        issuer_name=authority.subject,
        subject_name=old.subject,
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=authority.not_valid_before_utc,
        not_valid_after=authority.not_valid_after_utc,
        extensions=[one for one in old.extensions if not isinstance(one.value, x509.AuthorityKeyIdentifier)],
    )
    kept = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return kept + builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
