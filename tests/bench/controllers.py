"""Certificate requests of joining nodes: our controllers compared with kube-controller-manager without its rate limits.

Both run in turn as separate processes, with a local cluster of which only etcd and the API server still run.
kube-controller-manager has the flags of the cluster's own manifest, with its controllers' own identities, and only
the two controllers that are compared. A round is a pair for each kind of CA, and for requests that come evenly; which
comes first alternates.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from tests.bench import accounting, asking, bare_cluster, csr_requests
from tests.bench.asking import Watched
from tests.bench.bare_cluster import CONTROLLERS, PEER
from tests.bench.csr_requests import APPROVED, ASKING, ISSUED
from tests.bench.model import MEBIBYTES, MOST, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed, Running
from tests.bench.setup import ADMIN, Setup

BURST: Final = 800
"""Requests that are pending when a process starts; the first of them are not counted."""
WARM: Final = 100
EVENLY: Final = 500
RATE: Final = 50.0
OLD: Final = 5000
IDLE: Final = 30.0
SETTLE: Final = 5.0

_LIFTED: Final = ("--kube-api-qps=100000", "--kube-api-burst=100000")
_MIB: Final = 1024 * 1024

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two: how to start it, apart from the CA."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The API server for which both work, and the CAs that sign."""

    setup: Setup
    kubeconfig: Path
    sides: tuple[Side, Side]
    authorities: Mapping[str, tuple[Path, Path]]

    def start(self, side: Side, authority: str, *more: str) -> Running:
        """Start one of the two."""
        certificate, key = self.authorities[authority]
        words = (f"--cluster-signing-cert-file={certificate}", f"--cluster-signing-key-file={key}", *more)
        return Running((*side.argv, *words), env=self.setup.environment, log=self.setup.work / f"{side.name}.log")


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds, and then the cost of an idle process."""
    arena = _arena(setup)
    rows = []
    for number in range(rounds):
        row: Row = {"oursFirst": number % 2 == 0}
        for authority in arena.authorities:
            for side in arena.sides if number % 2 == 0 else reversed(arena.sides):
                row |= _keyed(side, authority, _burst(arena, side, authority, f"r{number}-{authority}-{side.name}"))
        for side in arena.sides if number % 2 == 0 else reversed(arena.sides):
            row |= _keyed(side, "evenly", _evenly(arena, side, f"e{number}-{side.name}"))
        rows.append(row)
        setup.say(f"controllers {number + 1}/{rounds}: {_told(row)}")
    idle: Row = {}
    for side in arena.sides:
        idle |= _keyed(side, "idle", _idle(arena, side))
    bare_cluster.stop(setup)
    return result("controllers", _figures(rows, idle), [*rows, idle])


def _figures(rows: Sequence[Row], idle: Row) -> tuple[Any, ...]:
    parts = []
    for authority, name, seconds, cpu in (("rsa", "RSA-2048", 1 / 1.3, 0.65), ("p256", "P-256", 1 / 1.6, 0.45)):
        ours, theirs = f"ours {authority}", f"theirs {authority}"
        parts += [
            ratios(
                f"approve and sign, {name}: time per request, relative to {PEER}",
                rows,
                f"{ours} seconds",
                f"{theirs} seconds",
                target=seconds,
            ),
            figure(f"approve and sign, {name}: time per request", rows, f"{ours} seconds"),
            figure(f"approve and sign, {name}: time per request of {PEER}", rows, f"{theirs} seconds"),
            ratios(f"approve and sign, {name}: CPU per request, relative to {PEER}", rows, f"{ours} cpu", f"{theirs} cpu", target=cpu),
            figure(f"approve and sign, {name}: CPU per request", rows, f"{ours} cpu"),
            figure(f"approve and sign, {name}: CPU per request of {PEER}", rows, f"{theirs} cpu"),
        ]
    return (
        *parts,
        figure(f"created to issued, {RATE:.0f} per second: 99 % within", rows, "ours evenly p99", target=0.2),
        figure(f"created to issued, {RATE:.0f} per second: 99 % within, {PEER}", rows, "theirs evenly p99"),
        figure("start to the first approval", rows, "ours p256 first", target=0.6),
        figure(f"start to the first approval of {PEER}", rows, "theirs p256 first"),
        figure(f"idle with {OLD} old requests: CPU per minute", [idle], "ours idle minute", target=0.3),
        figure(f"idle with {OLD} old requests: CPU per minute, {PEER}", [idle], "theirs idle minute"),
        figure(f"idle with {OLD} old requests: most memory", [idle], "ours idle peakMiB", unit=MEBIBYTES, target=90.0, statistic=MOST),
        figure(f"idle with {OLD} old requests: most memory, {PEER}", [idle], "theirs idle peakMiB", unit=MEBIBYTES, statistic=MOST),
    )


def _told(row: Row) -> str:
    return ", ".join(
        f"{side} {what}: {1 / row[f'{side} {what} seconds']:.0f}/s {row[f'{side} {what} cpu'] * 1000:.2f} ms"
        for what in ("rsa", "p256")
        for side in ("ours", "theirs")
    ) + "".join(f", {side} p99 {row[f'{side} evenly p99'] * 1000:.0f} ms" for side in ("ours", "theirs"))


def _keyed(side: Side, what: str, found: Row) -> Row:
    return {f"{side.name} {what} {key}": value for key, value in found.items()}


def _burst(arena: Arena, side: Side, authority: str, prefix: str) -> Row:
    """Create requests, start the process, and measure its time and CPU from the hundredth certificate to the last."""
    asking.create_all(arena.kubeconfig, ASKING, csr_requests.bodies(prefix, BURST))
    with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched, _started(arena, side, authority) as process:
        first = watched.wait(APPROVED, 1) - process.began
        begin = watched.wait(ISSUED, WARM)
        before = accounting.used_by(process.pid).cpu_seconds
        end = watched.wait(ISSUED, BURST)
        used = accounting.used_by(process.pid).cpu_seconds - before
    asking.delete_all(arena.kubeconfig, ASKING)
    count = BURST - WARM
    return {"seconds": (end - begin) / count, "cpu": used / count, "first": first}


def _evenly(arena: Arena, side: Side, prefix: str) -> Row:
    """Create requests evenly while the process runs, and measure how long each takes."""
    with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched, _started(arena, side, "rsa"):
        asking.create_all(arena.kubeconfig, ASKING, csr_requests.bodies(f"{prefix}-warm", WARM))
        watched.wait(ISSUED, WARM)
        began = asking.create_evenly(arena.kubeconfig, ASKING, csr_requests.bodies(prefix, EVENLY), rate=RATE)
        watched.wait(ISSUED, WARM + EVENLY)
    asking.delete_all(arena.kubeconfig, ASKING)
    return {"p99": asking.in_99_of_100(began, watched.seen[ISSUED])}


def _idle(arena: Arena, side: Side) -> Row:
    """Start the process with old requests in the cluster, elected as leader, and measure the cost of being idle."""
    prefix = f"old-{side.name}"
    with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched, _started(arena, arena.sides[0], "p256"):
        asking.create_all(arena.kubeconfig, ASKING, csr_requests.bodies(prefix, OLD))
        watched.wait(ISSUED, OLD)
    with _started(arena, side, "p256", elected="true") as process:
        time.sleep(SETTLE)
        begin, before = time.monotonic(), accounting.used_by(process.pid).cpu_seconds
        time.sleep(IDLE)
        used = accounting.used_by(process.pid)
        minute = 60 * (used.cpu_seconds - before) / (time.monotonic() - begin)
    asking.delete_all(arena.kubeconfig, ASKING)
    return {"minute": minute, "peakMiB": used.peak_bytes / _MIB, "residentMiB": used.resident_bytes / _MIB}


@contextlib.contextmanager
def _started(arena: Arena, side: Side, authority: str, *, elected: str = "false") -> Iterator[Running]:
    """Run one of the two. It must not end by itself."""
    process = arena.start(side, authority, f"--leader-elect={elected}")
    try:
        yield process
        if process.has_ended():
            raise BenchmarkFailed(f"it ended: {process.last_lines()}")
    finally:
        process.kill()


def _arena(setup: Setup) -> Arena:
    """Create a cluster, stop its controllers, and keep what is needed to start them."""
    directory, peer = bare_cluster.start(setup)
    replaced = ("--controllers=", "--cluster-signing-", "--leader-elect", "--kube-api-", "--secure-port=")
    theirs = [word for word in peer[1:] if not word.startswith(replaced)]
    chosen = "--controllers=certificatesigningrequest-approving-controller,certificatesigningrequest-signing-controller"
    return Arena(
        setup=setup,
        kubeconfig=directory / ADMIN,
        sides=(
            Side(
                name="ours",
                argv=setup.argv(
                    *("controllers", "run", f"--kubeconfig={directory / f'{CONTROLLERS}.conf'}", "--controllers=csrapproving,csrsigning"),
                    *("--secure-port=0", *_LIFTED),
                ),
            ),
            Side(name="theirs", argv=(str(setup.programs[PEER]), *theirs, chosen, "--secure-port=0", *_LIFTED)),
        ),
        authorities={"rsa": (directory / "pki" / "ca.crt", directory / "pki" / "ca.key"), "p256": _authority(setup.work)},
    )


def _authority(directory: Path) -> tuple[Path, Path]:
    """Create a CA with a P-256 key."""
    key, name, now = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "p256")]),
        datetime.now(UTC),
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    certificate, private = directory / "p256.crt", directory / "p256.key"
    certificate.write_bytes(made.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return certificate, private
