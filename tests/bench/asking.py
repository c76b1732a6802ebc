"""Request objects, such as CSRs: created all at once or evenly, and a watch that records when each reached which stage."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.admin import PATIENCE, Admin, Watch
from tests.bench.running import BenchmarkFailed

_CONNECTIONS: Final = 4


@dataclass(frozen=True, kw_only=True)
class Asking:
    """One kind of request objects: their path, their creator (headers of impersonation), and how a status shows that a stage was reached."""

    path: str
    headers: Sequence[tuple[str, str]]
    stages: Mapping[str, Callable[[Mapping[str, Any]], bool]]


def create_all(kubeconfig: Path, asking: Asking, wanted: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Create objects as fast as a few connections can, and return the start time of each."""
    began: dict[str, float] = {}

    def some(number: int) -> None:
        client = Admin(kubeconfig, headers=asking.headers)
        for body in wanted[number::_CONNECTIONS]:
            began[body["metadata"]["name"]] = time.monotonic()
            client.post(asking.path, body)
        client.close()

    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(some, range(_CONNECTIONS)))
    return began


def create_evenly(kubeconfig: Path, asking: Asking, wanted: Sequence[Mapping[str, Any]], *, rate: float) -> dict[str, float]:
    """Create this many objects per second, and return the start time of each."""
    client = Admin(kubeconfig, headers=asking.headers)
    began: dict[str, float] = {}
    start = time.monotonic()
    for number, body in enumerate(wanted):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        began[body["metadata"]["name"]] = time.monotonic()
        client.post(asking.path, body)
    client.close()
    return began


def delete_all(kubeconfig: Path, asking: Asking) -> None:
    """Delete every object."""
    client = Admin(kubeconfig)
    client.delete(asking.path)
    client.close()


def in_99_of_100(began: Mapping[str, float], ended: Mapping[str, float]) -> float:
    """Return the number of seconds within which 99 % of the started requests have ended."""
    took = sorted(ended[name] - moment for name, moment in began.items())
    return took[round(len(took) * 0.99) - 1]


class Watched:
    """The times at which objects reached each stage, observed by a watch in a thread. Only names that begin with `prefix` count.

    A context manager, because a watch that is left open would continue to cost the API server.
    """

    def __init__(self, kubeconfig: Path, asking: Asking, *, prefix: str) -> None:
        self._client = Admin(kubeconfig)
        self._asking = asking
        self._prefix = prefix
        self.seen: dict[str, dict[str, float]] = {stage: {} for stage in asking.stages}
        self._news = threading.Condition()
        self._version = self._client.get(f"{asking.path}?limit=1")["metadata"]["resourceVersion"]
        self._closed = False
        self._watch = self._opened()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._watch.close()
        self._thread.join()
        self._client.close()

    def wait(self, stage: str, count: int) -> float:
        """Wait until this many objects have reached the stage, and return the time of the last one.

        Raises BenchmarkFailed after two minutes.
        """
        seen = self.seen[stage]
        with self._news:
            if not self._news.wait_for(lambda: len(seen) >= count, PATIENCE):
                raise BenchmarkFailed(f"{len(seen)} of {count} {stage} after {PATIENCE:.0f} s")
            return sorted(seen.values())[count - 1]

    def _opened(self) -> Watch:
        return self._client.watch(f"{self._asking.path}?watch=1&resourceVersion={self._version}&timeoutSeconds=900")

    def _read(self) -> None:
        while not self._closed:
            for line in self._watch:
                self._note(json.loads(line)["object"])
            if not self._closed:  # the server ends the watches of slow readers
                self._watch = self._opened()

    def _note(self, found: Mapping[str, Any]) -> None:
        now, name, status = time.monotonic(), found["metadata"].get("name", ""), found.get("status") or {}
        self._version = found["metadata"]["resourceVersion"]
        if not name.startswith(self._prefix):
            return
        with self._news:
            for stage, reached in self._asking.stages.items():
                if reached(status):
                    self.seen[stage].setdefault(name, now)
            self._news.notify_all()
