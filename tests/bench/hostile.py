"""Good requests alongside hostile clients, to the health ports of the hub, the controllers and the agent.

1,100 hostile clients hold connections to these ports; they are a separate process (`tests/hostile_clients.py`). Good
requests come from this process, one after the other, each over a new connection. The same requests are first measured
without hostile clients, on the same daemon.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from tests import hostile_clients
from tests.bench import accounting, bare_cluster
from tests.bench.admin import wait_for
from tests.bench.model import MEBIBYTES, MOST, Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed, Running
from tests.bench.setup import ADMIN, Setup
from tests.loopback import free_port

REQUESTS: Final = 200
EVERY: Final = 0.02
"""Seconds between the end of a request and the next one."""
GROWS: Final = 0.5
"""Seconds by which 99 % of the requests may take longer."""
SETTLE: Final = 2.0
"""Seconds until a daemon has finished its start-up work."""
ADDRESS: Final = "127.0.0.1"
_MIB: Final = 1024 * 1024

Row = dict[str, Any]
Arguments = Callable[[Path, Path, int], Sequence[str]]
"""The arguments of `kubewright`, given a directory, the cluster's directory, and the port for its health."""


def _hub(own: Path, _: Path, port: int) -> Sequence[str]:
    return ("hub", "run", f"--state={own / 'state.db'}", f"--key-file={own / 'key'}", f"--bind-address={ADDRESS}", f"--secure-port={port}")


def _controllers(_: Path, cluster: Path, port: int) -> Sequence[str]:
    kubeconfig, pki = cluster / f"{bare_cluster.CONTROLLERS}.conf", cluster / "pki" / "ca"
    files = (f"--kubeconfig={kubeconfig}", f"--cluster-signing-cert-file={pki}.crt", f"--cluster-signing-key-file={pki}.key")
    return ("controllers", "run", *files, "--leader-elect=false", f"--bind-address={ADDRESS}", f"--secure-port={port}")


def _agent(own: Path, cluster: Path, port: int) -> Sequence[str]:
    shutil.copy(cluster / ADMIN, own / "bootstrap.conf")
    files = (f"--kubeconfig={own / 'kubelet.conf'}", f"--bootstrap-kubeconfig={own / 'bootstrap.conf'}", f"--root-dir={own / 'root'}")
    return ("agent", "run", *files, "--hostname-override=bench", f"--healthz-bind-address={ADDRESS}", f"--healthz-port={port}")


DAEMONS: Final[Mapping[str, tuple[Arguments, bool]]] = {"hub": (_hub, True), "controllers": (_controllers, True), "agent": (_agent, False)}
"""How each is started, and whether its health port uses TLS."""


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many rounds of all daemons."""
    cluster, _ = bare_cluster.start(setup)
    rows = []
    for number in range(rounds):
        row: Row = {}
        for name, (arguments, secure) in DAEMONS.items():
            own = setup.work / f"{name}-{number}"
            own.mkdir()
            row |= {f"{name} {key}": value for key, value in _measured(setup, own, cluster, arguments, secure=secure).items()}
        rows.append(row)
        told = (
            f"{name}: p99 {row[f'{name} alone'] * 1000:.0f} ms, {row[f'{name} beside'] * 1000:.0f} ms with hostile clients"
            for name in DAEMONS
        )
        setup.say(f"hostile {number + 1}/{rounds}: {', '.join(told)}")
    bare_cluster.stop(setup)
    return result("hostile", _figures(rows), rows)


def _figures(rows: Sequence[Row]) -> tuple[Figure, ...]:
    return tuple(
        one
        for name in DAEMONS
        for one in (
            figure(f"{name}: 99 % of good requests: delay of at most", rows, f"{name} grows", target=GROWS),
            ratios(f"{name}: 99 % of good requests, relative to those without hostile clients", rows, f"{name} beside", f"{name} alone"),
            ratios(
                f"{name}: median good request, relative to those without hostile clients",
                rows,
                f"{name} beside median",
                f"{name} alone median",
            ),
            figure(f"{name}: 99 % of good requests within", rows, f"{name} beside"),
            figure(f"{name}: most memory", rows, f"{name} peakMiB", unit=MEBIBYTES, statistic=MOST),
        )
    )


def _measured(setup: Setup, own: Path, cluster: Path, arguments: Arguments, *, secure: bool) -> Row:
    port = free_port()
    with _started(setup, own, arguments(own, cluster, port)) as process:
        wait_for("the health port", lambda: _answers(port, secure=secure))
        time.sleep(SETTLE)
        alone = _seconds(port, secure=secure)
        with hostile_clients.hostile(ADDRESS, port, secure=secure):
            beside = _seconds(port, secure=secure)
        peak = accounting.used_by(process.pid).peak_bytes
    return {
        "alone": _p99(alone),
        "beside": _p99(beside),
        "grows": _p99(beside) - _p99(alone),
        "alone median": statistics.median(alone),
        "beside median": statistics.median(beside),
        "peakMiB": peak / _MIB,
    }


@contextmanager
def _started(setup: Setup, own: Path, words: Sequence[str]) -> Iterator[Running]:
    """Run a daemon with the soft limit for open files that service managers set. It must not end by itself."""
    with hostile_clients.few_files():
        process = Running(setup.argv(*words), env=setup.environment, log=own / "log")
    try:
        yield process
        if process.has_ended():
            raise BenchmarkFailed(f"{' '.join(words[:2])} ended: {process.last_lines()}")
    finally:
        process.kill()


def _seconds(port: int, *, secure: bool) -> list[float]:
    """Send good requests one after the other. Raises BenchmarkFailed if one gets no answer."""
    taken = []
    for _ in range(REQUESTS):
        time.sleep(EVERY)
        began = time.monotonic()
        if not _answers(port, secure=secure):
            raise BenchmarkFailed("a good request was not answered")
        taken.append(time.monotonic() - began)
    return taken


def _answers(port: int, *, secure: bool) -> bool:
    with suppress(OSError, HTTPException):
        return hostile_clients.health(ADDRESS, port, secure=secure) == (200, b"ok")
    return False


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[round(len(seconds) * 0.99) - 1]
