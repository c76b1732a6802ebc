"""Joins through a hub with a VPN, on two machines: a control plane, and the hub with its WireGuard interface.

Nodes are simulated by requests with their own VPN keys, sent from the host with a token; no node connects to the
hub's interface.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from testbed.bed import Bed
from testbed.sharing import ENVIRONMENT, PYTHON
from tests.bench import asking
from tests.bench.asking import Watched
from tests.bench.hub import A_SECOND, ASKING, ISSUED, published, request
from tests.bench.machines_running import ENDPOINT, KUBEWRIGHT, Row, configure, field, init
from tests.bench.model import RATE, Figure, Result, figure
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup

from kubewright.base.randomness import SystemRandom
from kubewright.machines.machine import Machine
from kubewright.pki import wireguard

JOINS: Final = 500
WARM: Final = 20
EVENLY: Final = 200
_LISTED: Final = ("--skip-phases=addon",)
_CONFIG: Final = "/root/hub.yaml"
_UNIT: Final = "bench-hub"
_FILES: Final = {"admin.conf": "admin.conf", "pki/ca.crt": "ca.crt", "pki/ca.key": "ca.key"}
_USED: Final = "import sys; fields = open(f'/proc/{sys.argv[1]}/stat').read().rpartition(')')[2].split(); print(*map(int, fields[11:15]))"
"""Prints user and system time of a process, then those of the programs that it has run, in ticks of 10 ms."""


@dataclass(frozen=True, kw_only=True)
class Arena:
    """The machines, and the administrator's kubeconfig as the host uses it."""

    one: Machine
    hub: Machine
    kubeconfig: Path

    def run(self, *words: str) -> str:
        """Run a command of the hub."""
        return self.hub.run(PYTHON, "-m", KUBEWRIGHT, "hub", *words, f"--config={_CONFIG}", env=ENVIRONMENT).out

    def used(self) -> tuple[float, float]:
        """Return the CPU seconds of the hub, and of the programs that it has run."""
        pid = self.hub.run("systemctl", "show", "--property=MainPID", "--value", _UNIT).out.strip()
        user, system, users, systems = map(int, self.hub.run("python3", "-c", _USED, pid).out.split())
        return (user + system) / 100, (users + systems) / 100


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds. Each begins with a cluster that has admitted no node, and whose VPN has no peer."""
    rows = []
    with field() as ground, ground.fresh("one", "hub") as bed:
        arena = _arena(setup, bed)
        for number in range(rounds):
            with _serving(arena, f"v{number}"):
                row = _burst(arena, f"v{number}") | _evenly(arena, f"w{number}")
            rows.append(row)
            setup.say(
                f"hub with a VPN {number + 1}/{rounds}: {row['rate']:.0f}/s, p99 {row['p99']:.2f} s, evenly {row['evenly']:.2f} s,"
                f" CPU {row['cpu'] * 1000:.1f} ms and {row['programs'] * 1000:.1f} ms of programs, one by one {row['one cpu'] * 1000:.1f} ms"
                f" and {row['one programs'] * 1000:.1f} ms"
            )
    return result("machines-hub", _figures(rows), rows)


def _figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    return (
        figure(f"{JOINS} joins with a VPN at once: per second", rows, "rate", unit=RATE),
        figure(f"{JOINS} joins with a VPN at once: 99 % within", rows, "p99"),
        figure(f"joins with a VPN, {A_SECOND:.0f} per second: 99 % within", rows, "evenly"),
        figure("CPU of the hub per join with a VPN, at once", rows, "cpu"),
        figure("CPU of the programs that it runs for it", rows, "programs"),
        figure(f"CPU of the hub per join with a VPN, {A_SECOND:.0f} per second", rows, "one cpu"),
        figure(f"CPU of the programs that it runs for it, {A_SECOND:.0f} per second", rows, "one programs"),
    )


def _arena(setup: Setup, bed: Bed) -> Arena:
    one, hub = bed["one"], bed["hub"]
    configure(one)
    init(KUBEWRIGHT, one, *_LISTED).wait()
    for source, name in _FILES.items():
        (hub.root / "root" / name).write_bytes((one.root / "etc/kubernetes" / source).read_bytes())
    state = {"state": "/var/lib/kubewright/hub/state.db", "keyFile": "/var/lib/kubewright/hub/state.key"}
    document = {"apiVersion": "hub.kubewright/v1alpha1", "kind": "HubConfiguration", "securePort": 0, **state}
    (hub.root / _CONFIG.lstrip("/")).write_text(json.dumps(document), encoding="ascii")
    kubeconfig = setup.work / "machines-hub.conf"
    text = (one.root / "etc/kubernetes/admin.conf").read_text(encoding="ascii")
    kubeconfig.touch(0o600)
    kubeconfig.write_text(text.replace(f"https://{ENDPOINT}", f"https://{one.address}:6443"), encoding="ascii")
    return Arena(one=one, hub=hub, kubeconfig=kubeconfig)


@contextmanager
def _serving(arena: Arena, prefix: str) -> Iterator[None]:
    """Let a hub serve the cluster that has admitted no node yet, except for a few that are not counted."""
    files = ("--kubeconfig=/root/admin.conf", "--client-ca-cert-file=/root/ca.crt", "--client-ca-key-file=/root/ca.key")
    vpn = ("--vpn-cidr=10.64.0.0/16,fd00:64::/64", f"--vpn-endpoint={arena.hub.address}:51820")
    arena.run("cluster", "add", "a", *files, *vpn, "--key-algorithm=ECDSA-P256", f"--server=https://{arena.one.address}:6443")
    settings = [f"--setenv={name}={value}" for name, value in ENVIRONMENT.items()]
    argv = (PYTHON, "-m", KUBEWRIGHT, "hub", "run", f"--config={_CONFIG}")
    arena.hub.run("systemd-run", f"--unit={_UNIT}", "--property=Type=notify", *settings, *argv)
    try:
        [added] = json.loads(arena.run("cluster", "list", "-o", "json"))
        published(arena.kubeconfig, pin=added["joinKey"])
        with Watched(arena.kubeconfig, ASKING, prefix=f"{prefix}-warm") as watched:
            asking.create_all(arena.kubeconfig, ASKING, _bodies(arena, f"{prefix}-warm", WARM))
            watched.wait(ISSUED, WARM)
        yield
        _require_peers(arena, WARM + JOINS + EVENLY)
    finally:
        arena.hub.run("systemctl", "stop", _UNIT, check=False)
        arena.run("cluster", "remove", "a")
        asking.delete_all(arena.kubeconfig, ASKING)


def _require_peers(arena: Arena, count: int) -> None:
    """Require that all admitted nodes are peers of the interface; otherwise something else was measured."""
    [added] = json.loads(arena.run("cluster", "list", "-o", "json"))
    found = len(arena.hub.run("wg", "show", added["vpnInterface"], "peers").out.split())
    if found != count:
        raise BenchmarkFailed(f"the hub's interface has {found} peers, and {count} nodes have joined")


def _bodies(arena: Arena, prefix: str, count: int) -> list[Row]:
    recipient, random = published(arena.kubeconfig), SystemRandom()
    keys = (wireguard.public_key(wireguard.new_private_key(random)) for _ in range(count))
    return [request(f"{prefix}-{number}", recipient, tunnel_key=key) for number, key in enumerate(keys)]


def _burst(arena: Arena, prefix: str) -> Row:
    """Let many nodes request to join at once."""
    wanted = _bodies(arena, prefix, JOINS)
    with Watched(arena.kubeconfig, ASKING, prefix=f"{prefix}-") as watched:
        before = arena.used()
        began = asking.create_all(arena.kubeconfig, ASKING, wanted)
        end = watched.wait(ISSUED, JOINS)
        time.sleep(1.0)  # for the hub's work after the last answer
        own, programs = (now - then for now, then in zip(arena.used(), before, strict=True))
    p99 = asking.in_99_of_100(began, watched.seen[ISSUED])
    return {"rate": JOINS / (end - min(began.values())), "p99": p99, "cpu": own / JOINS, "programs": programs / JOINS}


def _evenly(arena: Arena, prefix: str) -> Row:
    """Let nodes request to join one after the other."""
    wanted = _bodies(arena, prefix, EVENLY)
    with Watched(arena.kubeconfig, ASKING, prefix=f"{prefix}-") as watched:
        before = arena.used()
        began = asking.create_evenly(arena.kubeconfig, ASKING, wanted, rate=A_SECOND)
        watched.wait(ISSUED, EVENLY)
        own, programs = (now - then for now, then in zip(arena.used(), before, strict=True))
    return {"evenly": asking.in_99_of_100(began, watched.seen[ISSUED]), "one cpu": own / EVENLY, "one programs": programs / EVENLY}
