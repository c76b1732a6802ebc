"""Joins through a hub: many simulated nodes at once and one after the other, the cost of a join, and the cost of remembering old joins.

The hub is a separate process, with a local cluster of which only etcd and the API server still run. Nodes are
simulated by requests that are made with a token; what a node does before and after is not included.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench import accounting, asking, bare_cluster
from tests.bench.admin import Admin, wait_for
from tests.bench.asking import Asking, Watched
from tests.bench.model import MEBIBYTES, MOST, RATE, Figure, Result, figure
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed, Running
from tests.bench.setup import ADMIN, Setup

from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.base import yaml
from kubewright.base.randomness import SystemRandom
from kubewright.enrollment.protocol import fields, requests
from kubewright.enrollment.protocol.requests import JoinRequest
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import Event
from kubewright.pki import keys
from kubewright.pki.encryption import oaep, sealing
from kubewright.pki.encryption.oaep import RecipientKey
from kubewright.pki.keys import Algorithm

JOINS: Final = {"p256": 500, "rsa": 100}
"""Requests at once, by the kind of keys that answers contain."""
WARM: Final = 20
EVENLY: Final = 200
A_SECOND: Final = 20.0
OLD: Final = (100, 10_000)
IDLE: Final = 30.0
SETTLE: Final = 5.0
PASS: Final = 10.0
"""Seconds between two passes of oneinfra's hub, each of which opens every existing request."""
KINDS: Final = {"p256": Algorithm.ECDSA_P256.value, "rsa": Algorithm.RSA_2048.value}
_MIB: Final = 1024 * 1024
_MOMENT: Final = "2026-01-02T03:04:05Z"
_SOCKET: Final = "unix:///run/containerd/containerd.sock"

ISSUED: Final = "issued"
ASKING: Final = Asking(
    path="/apis/node.oneinfra.ereslibre.es/v1alpha1/nodejoinrequests",
    headers=(
        ("Impersonate-User", "system:bootstrap:abcdef"),
        ("Impersonate-Group", "system:bootstrappers"),
        ("Impersonate-Group", "system:bootstrappers:oneinfra"),
        ("Impersonate-Group", "system:authenticated"),
    ),
    stages={ISSUED: lambda status: any(one.get("status") == "True" for one in status.get("conditions") or ())},
)

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The API server, and the hub's files."""

    setup: Setup
    directory: Path

    @property
    def kubeconfig(self) -> Path:
        """The administrator's headers."""
        return self.directory / ADMIN

    @property
    def config(self) -> Path:
        """The hub's configuration."""
        return self.setup.work / "hub.yaml"

    @property
    def state(self) -> Path:
        """The hub's state."""
        return self.setup.work / "hub" / "state.db"

    @property
    def key(self) -> Path:
        """The file with the key of the state."""
        return self.state.with_name("state.key")

    def add(self, algorithm: str) -> None:
        """Add the cluster, or change the kind of keys of its nodes."""
        ca = self.directory / "pki" / "ca"
        files = (f"--kubeconfig={self.kubeconfig}", f"--client-ca-cert-file={ca}.crt", f"--client-ca-key-file={ca}.key")
        self.setup.run("hub", "cluster", "add", "a", *files, f"--key-algorithm={algorithm}", f"--config={self.config}")

    @contextmanager
    def hub(self) -> Iterator[Running]:
        """Run the hub; it has answered a few requests when the block begins."""
        argv = self.setup.argv("hub", "run", f"--config={self.config}")
        process = Running(argv, env=self.setup.environment, log=self.setup.work / "hub.log")
        try:
            yield process
            if process.has_ended():
                raise BenchmarkFailed(f"the hub ended: {process.last_lines()}")
        finally:
            process.kill()

    def recipient(self) -> RecipientKey:
        """Return the key with which nodes encrypt theirs, once the hub has published it."""
        return published(self.kubeconfig)


def published(kubeconfig: Path, *, pin: str = "") -> RecipientKey:
    """Return the join key of a cluster with this fingerprint, once its hub has published it; an earlier hub may have left another one."""
    path = "/api/v1/namespaces/oneinfra-system/configmaps/oneinfra-join"

    def read() -> RecipientKey:
        return oaep.load_recipient(admin.get(path)["data"]["joinKey"].encode(), source=path)

    with closing(Admin(kubeconfig)) as admin:
        wait_for("the join key", lambda: admin.status(path) == 200 and pin in {"", str(read().pin)})
        return read()


def request(name: str, recipient: RecipientKey, *, tunnel_key: str = "") -> dict[str, Any]:
    """Return the request of one node, with a new key."""
    random = SystemRandom()
    wanted = JoinRequest(endpoint="https://10.0.0.1:6443", tunnel_key=tunnel_key, key=fields.new_key(random))
    return requests.write(name, wanted, recipient=recipient, runtime_endpoint=_SOCKET, image_endpoint=_SOCKET, random=random)


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds, then the cost of an idle hub that has admitted few nodes, and many."""
    arena = _arena(setup)
    rows = []
    for number in range(rounds):
        row: Row = {}
        for kind, algorithm in KINDS.items():
            arena.add(algorithm)
            row |= _keyed(kind, _burst(arena, f"r{number}-{kind}", JOINS[kind]))
        arena.add(KINDS["p256"])
        row |= _keyed("evenly", _evenly(arena, f"e{number}"))
        row["key seconds"] = _key_seconds()
        rows.append(row)
        setup.say(f"hub {number + 1}/{rounds}: {_told(row)}")
    idle: Row = {}
    for count in OLD:
        idle |= _keyed(f"idle {count}", _idle(arena, count))
    idle["old rules minute"] = _old_rules(arena)
    bare_cluster.stop(setup)
    return result("hub", _figures(rows, idle), [*rows, idle])


def _figures(rows: Sequence[Row], idle: Row) -> tuple[Figure, ...]:
    few, many = OLD
    return (
        figure(f"{JOINS['p256']} joins at once: per second", rows, "p256 rate", unit=RATE),
        figure(f"{JOINS['p256']} joins at once: 99 % within", rows, "p256 p99"),
        figure(f"joins, {A_SECOND:.0f} per second: 99 % within", rows, "evenly p99"),
        figure("CPU of the hub per join", rows, "p256 cpu", target=0.005),
        figure("CPU of the hub per join, RSA-2048 keys", rows, "rsa cpu"),
        figure("two RSA-2048 keys: CPU to make them", rows, "key seconds"),
        figure(f"{JOINS['rsa']} joins at once, RSA-2048 keys: per second", rows, "rsa rate", unit=RATE),
        figure("most memory", rows, "p256 peakMiB", unit=MEBIBYTES, statistic=MOST),
        figure(f"idle, {few:,} have joined: CPU per minute", [idle], f"idle {few} minute"),
        figure(f"idle, {many:,} have joined: CPU per minute", [idle], f"idle {many} minute"),
        figure(f"idle, {many:,} have joined: memory", [idle], f"idle {many} residentMiB", unit=MEBIBYTES),
        figure(f"idle with {many:,} old requests, by the old rules (computed): CPU per minute", [idle], "old rules minute"),
    )


def _told(row: Row) -> str:
    kinds = (f"{kind}: {row[f'{kind} rate']:.0f}/s {row[f'{kind} cpu'] * 1000:.2f} ms, p99 {row[f'{kind} p99']:.2f} s" for kind in KINDS)
    return f"{', '.join(kinds)}, evenly p99 {row['evenly p99'] * 1000:.0f} ms, two keys {row['key seconds'] * 1000:.0f} ms"


def _keyed(what: str, found: Row) -> Row:
    return {f"{what} {key}": value for key, value in found.items()}


def _bodies(arena: Arena, prefix: str, count: int) -> list[dict[str, Any]]:
    """Return requests of nodes `PREFIX-0` and so on, each with a new key."""
    recipient = arena.recipient()
    return [request(f"{prefix}-{number}", recipient) for number in range(count)]


@contextmanager
def _warm(arena: Arena, prefix: str) -> Iterator[tuple[Running, Watched]]:
    """Run a hub that has answered a few requests, and watch the requests that begin with `prefix`."""
    with arena.hub() as process:
        early = _bodies(arena, f"{prefix}-warm", WARM)
        with Watched(arena.kubeconfig, ASKING, prefix=prefix) as watched:
            asking.create_all(arena.kubeconfig, ASKING, early)
            watched.wait(ISSUED, WARM)
            yield process, watched
    asking.delete_all(arena.kubeconfig, ASKING)


def _burst(arena: Arena, prefix: str, count: int) -> Row:
    """Let many nodes request to join at once."""
    with _warm(arena, prefix) as (process, watched):
        wanted = _bodies(arena, prefix, count)
        before = accounting.used_by(process.pid).cpu_seconds
        began = asking.create_all(arena.kubeconfig, ASKING, wanted)
        end = watched.wait(ISSUED, WARM + count)
        time.sleep(1.0)  # for the hub's work after the last answer: it receives the event about that as well
        used = accounting.used_by(process.pid)
    return {
        "rate": count / (end - min(began.values())),
        "p99": asking.in_99_of_100(began, watched.seen[ISSUED]),
        "cpu": (used.cpu_seconds - before) / count,
        "peakMiB": used.peak_bytes / _MIB,
    }


def _evenly(arena: Arena, prefix: str) -> Row:
    """Let nodes request to join one after the other."""
    with _warm(arena, prefix) as (_, watched):
        began = asking.create_evenly(arena.kubeconfig, ASKING, _bodies(arena, prefix, EVENLY), rate=A_SECOND)
        watched.wait(ISSUED, WARM + EVENLY)
    return {"p99": asking.in_99_of_100(began, watched.seen[ISSUED])}


def _key_seconds(count: int = 10) -> float:
    """Return the cost of the two keys that an answer contains with RSA."""
    before = time.process_time()
    for _ in range(count):
        keys.generate(Algorithm.RSA_2048)
    return 2 * (time.process_time() - before) / count


def _idle(arena: Arena, count: int) -> Row:
    """Measure the cost of being idle after this many joins."""
    _remember(arena, count)
    with arena.hub() as process:
        arena.recipient()
        time.sleep(SETTLE)
        begin, before = time.monotonic(), accounting.used_by(process.pid).cpu_seconds
        time.sleep(IDLE)
        used = accounting.used_by(process.pid)
    minute = 60 * (used.cpu_seconds - before) / (time.monotonic() - begin)
    return {"minute": minute, "residentMiB": used.resident_bytes / _MIB}


def _remember(arena: Arena, count: int) -> None:
    """Change the state as if this many nodes had joined."""
    key = sealing.parse_key(arena.key.read_text(encoding="ascii").split()[0])
    with closing(SQLiteStore(arena.state, key=key, random=SystemRandom())) as store:
        [found] = store.clusters()
        for number in range(len(store.records("a")), count):
            node = f"old-{number}"
            certificate = IssuedCertificate(purpose="client", serial=f"{number:x}", fingerprint=f"{number:064x}", not_after=_MOMENT)
            record = JoinRecord(
                cluster="a",
                node=node,
                state=State.ISSUED,
                protocol="oneinfra/v1alpha1",
                request=f"uid-{number}",
                key=f"{number:064x}",
                certificates=(certificate,),
                issued=_MOMENT,
            )
            event = Event(at=_MOMENT, cluster="a", event="issued", node=node, details={})
            store.keep(record, event, digest=f"{number:064x}", generation=found.generation)


def _old_rules(arena: Arena) -> float:
    """Compute what oneinfra's rules cost per minute with the most old requests: each pass reads each of them and decrypts its key.

    Only these two costs are counted, as measured here; they stand for a hub that has nothing to do.
    """
    with _warm(arena, "computed"), closing(Admin(arena.kubeconfig)) as admin:
        text = json.dumps(admin.get(f"{ASKING.path}/computed-warm-0"))
    join_key = keys.generate(Algorithm.RSA_2048)
    recipient = oaep.load_recipient(join_key.public_pem(), source="a key")
    sealed = fields.seal_key(fields.new_key(SystemRandom()), recipient)
    before = time.process_time()
    for _ in range(WARM * 5):
        json.loads(text)
        fields.open_key(sealed, join_key, name="symmetricKey")
    return OLD[-1] * (time.process_time() - before) / (WARM * 5) * (60 / PASS)


def _arena(setup: Setup) -> Arena:
    directory, _ = bare_cluster.start(setup)
    arena = Arena(setup=setup, directory=directory)
    fields_of = {"state": str(arena.state), "keyFile": str(arena.key), "securePort": 0}
    document = {"apiVersion": "hub.kubewright/v1alpha1", "kind": "HubConfiguration", **fields_of}
    arena.config.write_text(yaml.dump(document), encoding="utf-8")
    return arena
