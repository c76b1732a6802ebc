"""Objects with which somebody asks a cluster for something: made all at once or evenly, and a watch that knows when each got how far."""

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
    """One kind of such objects: where they are, who makes them (headers of impersonation), and what shows in a status that one got so far."""

    path: str
    headers: Sequence[tuple[str, str]]
    stages: Mapping[str, Callable[[Mapping[str, Any]], bool]]


def create_all(kubeconfig: Path, asking: Asking, wanted: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Create objects as fast as a few connections can, and return when each was begun."""
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
    """Create so many objects a second, and return when each was begun."""
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
    """Return within how many seconds 99 of 100 that were begun have ended."""
    took = sorted(ended[name] - moment for name, moment in began.items())
    return took[round(len(took) * 0.99) - 1]


class Watched:
    """When objects were seen to have got to each stage, by a watch in a thread. Only those whose names begin with `prefix` count.

    A context: a watch that nobody needs any more would go on to cost the API server.
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
        """Wait until so many have got there, and return when the last of them had. Raises BenchmarkFailed after two minutes."""
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
            if not self._closed:  # the server ends the watch of one who is slow
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
