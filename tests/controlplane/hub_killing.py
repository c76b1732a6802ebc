"""Hubs and nodes that are killed at random moments of joins: repeating the command succeeds, and nothing is assigned twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hub_box import WRITTEN, Box
from hub_process import HubProcess
from local_kit import eventually
from server_kit import RunningServer

from kubewright.apis.join_records import JoinRecord
from kubewright.pki import certificates

TOGETHER: Final = 3
"""Nodes that join at a time."""
LIMIT: Final = 600.0
HUB, NODE, PAUSED = "hub", "node", "paused hub"
PAUSE: Final = 8.0
"""Seconds: longer than the lease of `hub_process`."""


@dataclass
class Killing:
    """Joins through one hub, or its `replicas`, some of which are disturbed. `seed` chooses what is killed, and when."""

    place: Path
    hub: HubProcess
    server: RunningServer
    created: dict[str, Any]
    seed: int
    replicas: tuple[HubProcess, ...] = ()
    joined: int = 0
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._chosen = random.Random(self.seed)
        self._undisturbed = self._joins("undisturbed", killing=False)

    def rounds(self, count: int) -> None:
        """Let nodes join this many times, and kill the hub or one of them each time."""
        for number in range(count):
            self._joins(f"round-{number}", killing=True)

    def _joins(self, prefix: str, *, killing: bool) -> float:
        began = time.monotonic()
        boxes = [self._box(f"{prefix}-{number}") for number in range(TOGETHER)]
        processes = [box.start() for box in boxes]
        if killing:
            time.sleep(self._chosen.uniform(0, self._undisturbed))
            victim = self._chosen.choice((HUB, NODE, PAUSED) if self.replicas else (HUB, NODE))
            self.kills[victim] += 1
            if victim == NODE:
                processes[0].kill()
                processes[0].wait(LIMIT)
                processes[0] = boxes[0].start()
            else:
                self._disturb(self._chosen.choice((self.hub, *self.replicas)), victim)
        codes = [process.wait(LIMIT) for process in processes]
        took = time.monotonic() - began
        assert codes == [0] * TOGETHER, [box.said[-500:] for box in boxes]
        for box in boxes:
            self._require_whole(box)
        self.joined += TOGETHER
        self._require_single()
        return took

    def _disturb(self, hub: HubProcess, how: str) -> None:
        """Kill a hub, or pause it until another one leads; one that has ended is started again, as a service manager does."""
        if how == PAUSED:
            hub.pause()
            time.sleep(PAUSE)
            hub.pause(go_on=True)
            time.sleep(self._chosen.uniform(0, 1))
        else:
            hub.kill()
            time.sleep(self._chosen.uniform(0, 0.5))
        for one in (self.hub, *self.replicas):
            if not one.runs:
                one.start()

    def _box(self, name: str) -> Box:
        number = self.joined + int(name.rpartition("-")[2])
        return Box(self.place / name, self.server, self.created, name, sans=(f"10.200.{number // 250}.{number % 250 + 1}",))

    def _require_whole(self, box: Box) -> None:
        """Require that the machine has what the hub has recorded of it, and that the same command has nothing left to do."""
        name = box.wanted["node"]
        assert box.files() == WRITTEN
        serving = certificates.first((Path(box.layout.oneinfra) / "kubelet.crt").read_bytes(), source=name)
        [record] = [one for one in self._records() if one.node == name]
        assert f"{serving.serial:x}" in {one.serial for one in record.certificates}
        assert box.join().changes == ()

    def _require_single(self) -> None:
        """Require that no name, address or lease is held twice, and that every join has one record."""
        records = self._records()
        assert len(records) == self.joined == len({one.node for one in records})
        held = Counter(name for one in records for name in one.held)
        assert held.most_common(1)[0][1] == 1, held.most_common(3)
        assert len(held) == 2 * self.joined  # its name and its address

    def _records(self) -> list[JoinRecord]:
        return [one for one in self.hub.records() if one.node.startswith(("undisturbed-", "round-"))]


def killed(
    hub: HubProcess,
    server: RunningServer,
    place: Path,
    created: dict[str, Any],
    *,
    rounds: int,
    seed: int,
    replicas: tuple[HubProcess, ...] = (),
) -> Killing:
    """Kill this many times; returns what was done."""
    found = Killing(place, hub, server, created, seed, replicas)
    found.rounds(rounds)
    eventually(lambda: "Traceback" not in hub.log, "a log without faults", within=1)
    return found
