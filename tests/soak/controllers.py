"""`python -m tests.soak.controllers [--only PART ...]`: what may happen to the controllers, with large numbers; writes docs/soak-controllers.md.

Exits 1 if anything failed. Needs tests, tests/controlplane and tests/unit/controllers on PYTHONPATH, as `make soak-controllers` has it.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import controllers_faults
import decoder_comparison
import decoder_oracle
import hostile_requests
from local_kit import Bench
from replicas_kit import Replicas, audited_cluster, interrupted_rounds
from tests.soak.parts import Part, Soak

from kubewright.kube.client import KubeClient

PAGE: Final = Path(__file__).parents[2] / "docs" / "soak-controllers.md"
ROUNDS: Final = (signal.SIGSTOP, signal.SIGKILL, signal.SIGSTOP, signal.SIGSTOP) * 5
EACH: Final = 100
MADE_UP: Final = 1_000_000
BATCH: Final = 5_000
TEXTS: Final = 1_000_000
TEXTS_EACH: Final = 10_000
HOSTILE: Final = 10_000
HARMLESS: Final = 3_000
"""Requests that no controller looks at: what they cost others is the API server's and the machine's."""
DELAY: Final = 1.0
"""Seconds by which hostile requests of one maker may delay another's."""
MEMORY: Final = 300.0
"""MiB: what the controllers may come to with so many hostile requests."""
HEAD: Final = """\
# Soak: the controllers

Made by `make soak-controllers` ([tests/soak/controllers.py](../tests/soak/controllers.py)); not by hand. Replicas of our controllers on a real API server, whose
audit log is the witness: no request is approved or signed by two writes, and none is lost. `make test-all` does the same with smaller numbers.
"""


@contextmanager
def arena() -> Iterator[tuple[Bench, KubeClient, Replicas]]:
    """A cluster with an audit log, without controllers of its own."""
    clusters = audited_cluster()
    cluster = next(clusters)
    replicas = Replicas(cluster)
    try:
        with cluster.client() as api:
            yield cluster, api, replicas
            replicas.stop()
    finally:
        replicas.stop()
        clusters.close()


def _leaders() -> tuple[str, str]:
    with arena() as (cluster, api, replicas):
        interrupted_rounds(cluster, api, replicas, ROUNDS, each=EACH)
    return f"{len(ROUNDS) * EACH:,} requests, the leader stopped or killed {len(ROUNDS)} times", "each decided once"


def _faults() -> tuple[str, str]:
    with arena() as (cluster, api, replicas):
        controllers_faults.cut_off_and_restarted(cluster, api, replicas, count=300)
        controllers_faults.killed_in_flight(cluster, api, replicas, count=300)
        replicas.stop()
        controllers_faults.written_to_by_others(cluster, api, replicas, count=300)
    return (
        "900 requests; watches cut, history too old, the API server killed, conflicting writers, the authority replaced",
        "each decided once",
    )


def _hostile() -> tuple[str, str]:
    with arena() as (cluster, api, replicas):
        found = controllers_faults.beset(cluster, api, replicas, count=HOSTILE, harmless=HARMLESS)
    told = f"another's took {found.hostile:.2f} s at most, beside a flood that no controller looks at {found.harmless:.2f} s; {found.memory:.0f} MiB at most"
    assert found.hostile - found.harmless <= DELAY, told
    assert found.memory <= MEMORY, told
    return f"{HOSTILE:,} hostile requests of one maker", told


def _made_up() -> tuple[str, str]:
    seed, found = secrets.randbelow(2**31), Counter[str]()
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 1)) as pool:
        for one in pool.map(hostile_requests.outcomes, range(seed, seed + MADE_UP // BATCH), [BATCH] * (MADE_UP // BATCH)):
            found += one
    told = ", ".join(f"{count:,} {kind}" for kind, count in found.most_common())
    return f"{found.total():,} made-up requests (seeds from {seed})", f"no crash, no certificate that breaks a rule: {told}"


def _decoders() -> tuple[str, str]:
    seed, found, path = secrets.randbelow(2**31), Counter[tuple[str, str]](), decoder_oracle.program()
    with ProcessPoolExecutor(max(1, len(os.sched_getaffinity(0)) - 1)) as pool:
        count = TEXTS // TEXTS_EACH
        for one in pool.map(decoder_comparison.compare, [path] * count, range(seed, seed + count), [TEXTS_EACH] * count):
            found += one
    outcomes = Counter[str]()
    for (_, outcome), count in found.items():
        outcomes[outcome] += count
    told = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes.most_common())
    each = ", ".join(f"{kind} {found[kind, decoder_comparison.WE_REFUSE]:,}" for kind in decoder_comparison.KINDS.values())
    return f"{found.total():,} texts for our decoders and Go's (seeds from {seed})", f"0 read differently; {told} ({each})"


PARTS: Final[Mapping[str, Part]] = {
    "leaders": _leaders,
    "faults": _faults,
    "hostile": _hostile,
    "made-up": _made_up,
    "decoders": _decoders,
}


SOAK: Final = Soak(name="tests.soak.controllers", page=PAGE, head=HEAD, parts=PARTS)

if __name__ == "__main__":
    sys.exit(SOAK.main(sys.argv[1:]))
