"""`etcd snapshot save` compared with `etcdctl snapshot save`: an etcd with 200 MB of data, whole processes in alternating pairs.

Both read gRPC, check the SHA-256 at the end, and write to the same file system.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench.cheap import script
from tests.bench.model import MEBIBYTES, MOST, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup
from tests.loopback import free_port

SIZE: Final = 200 << 20
"""Bytes of all values."""
TIME: Final = 3.0
MEMORY: Final = 120.0
_VALUE: Final = 100 << 10
_TOGETHER: Final = 10
"""Values of one transaction: a request has 1.5 MiB at most."""
_PATIENCE: Final = 60.0


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs."""
    if "etcdctl" not in setup.programs:
        raise BenchmarkFailed("etcdctl not found: run `kubewright binaries fetch etcdctl` first")
    with _etcd(setup) as endpoint:
        _fill(endpoint)
        ours = [str(script(setup)), "etcd", "snapshot", "save", f"--endpoints={endpoint}", "--local"]
        theirs = [str(setup.programs["etcdctl"]), "snapshot", "save", f"--endpoints={endpoint}"]
        rows: list[dict[str, Any]] = []
        for number in range(-1, rounds):  # the first round warms up
            row: dict[str, Any] = {}
            pair = [("kubewright", ours), ("etcdctl", theirs)]
            for name, argv in pair if number % 2 == 0 else reversed(pair):
                row[name], row[f"{name}Cpu"], row[f"{name}Memory"] = _measure([*argv, str(setup.work / f"{name}.db")])
            if number >= 0:
                rows.append(row)
    figures = [
        ratios("`etcd snapshot save` of 200 MB, relative to etcdctl", rows, "kubewright", "etcdctl", target=TIME),
        figure("`kubewright etcd snapshot save`", rows, "kubewright"),
        figure("`etcdctl snapshot save`", rows, "etcdctl"),
        figure("its processor time", rows, "kubewrightCpu"),
        figure("etcdctl's processor time", rows, "etcdctlCpu"),
        figure("memory of kubewright", rows, "kubewrightMemory", unit=MEBIBYTES, target=MEMORY, statistic=MOST),
        figure("memory of etcdctl", rows, "etcdctlMemory", unit=MEBIBYTES, statistic=MOST),
    ]
    setup.say(f"snapshot: {rounds} pairs, {figures[0].value:.2f} x")
    return result("snapshot", figures, rows)


@contextmanager
def _etcd(setup: Setup) -> Iterator[str]:
    """Run an etcd without TLS, which both commands read."""
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    flags = {
        "data-dir": setup.work / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
        "unsafe-no-fsync": "true",
    }
    argv = [str(setup.programs["etcd"]), *(f"--{name}={value}" for name, value in flags.items())]
    with (setup.work / "etcd.log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            yield client
        finally:
            process.kill()


def _fill(endpoint: str) -> None:
    """Put values that do not compress, waiting for etcd to serve first. Raises BenchmarkFailed."""
    end = time.monotonic() + _PATIENCE
    for number in range(SIZE // _VALUE // _TOGETHER):
        puts = [
            {"requestPut": {"key": _coded(f"{number}/{one}".encode()), "value": _coded(os.urandom(_VALUE))}} for one in range(_TOGETHER)
        ]
        body = json.dumps({"success": puts}).encode()
        while True:
            try:
                with urllib.request.urlopen(f"{endpoint}/v3/kv/txn", data=body, timeout=_PATIENCE):
                    break
            except OSError as error:
                if number or time.monotonic() > end:
                    raise BenchmarkFailed(f"etcd takes no data: {error}") from error
                time.sleep(0.1)


def _coded(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _measure(argv: Sequence[str]) -> tuple[float, float, float]:
    """Return the time, the processor time and the peak memory, in MiB, of a process. Raises BenchmarkFailed."""
    Path(argv[-1]).unlink(missing_ok=True)
    began = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchmarkFailed(f"{' '.join(argv[:4])} ended with {process.returncode}")
    return took, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
