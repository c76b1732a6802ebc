"""`python -m tests.soak.machines [--count N] [--seed S]`: kill the command, the daemon and machines of a cluster of machines.

A cluster is created, scaled, restarted after a power cut and removed, over and over. Each of these commands is disturbed once by
`kill -9`: at the moment at which it reports a step, or at a random one. The same command again must finish, and after `down`
nothing may be left on the host. Outcomes are kept in build/soak-machines, so that further runs with other seeds add to them;
docs/soak-machines.md is written from them. Exits 1 at the first failure, with the seed and the number of the step. Needs tests and
tests/machines on PYTHONPATH, as in `make soak-machines`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from machine_kit import eventually
from testbed.bed import ensure_parts
from tests.soak import machines_report
from tests.soak.machines_report import Outcome
from whole_kit import Cluster, clusters

from kubewright.local.whole.services import client
from kubewright.machines import cgroups, host

ROOT: Final = Path(__file__).parents[2]
STATE: Final = ROOT / "build" / "soak-machines"
PAGE: Final = ROOT / "docs" / "soak-machines.md"
_SETTINGS: Final = Path("/proc/sys")


def main(arguments: Sequence[str]) -> int:
    """Disturb so many commands. Returns 1 if one did not finish afterwards, or left something."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.machines")
    parser.add_argument("--count", type=int, default=100, help="commands that are disturbed (100)")
    parser.add_argument("--seed", type=int, default=0, help="of the choices; 0: a new one")
    asked = parser.parse_args(arguments)
    if reason := host.unfit():
        sys.stderr.write(f"error: {reason}\n")
        return 1
    ensure_parts()
    seed = asked.seed or secrets.randbelow(2**31)
    _say(f"seed {seed}")
    choice, before = random.Random(seed), dict[str, str]()
    with clusters("s") as (cluster,):
        for number in range(asked.count):
            name = list(STEPS)[number % len(STEPS)]
            if name == "create" and not cgroups.any_left():
                before = _settings()
            kill = _chosen(choice, name)
            began, error, ended = time.monotonic(), "", ""
            try:
                ended = _disturbed(cluster, name, kill)
                _finish(cluster, name, before)
            except AssertionError as found:
                error = str(found)
            outcome = Outcome(
                step=name,
                target=kill.target,
                where=str(kill),
                ended=ended,
                seed=seed,
                number=number + 1,
                took=round(time.monotonic() - began, 1),
                day=f"{datetime.now(UTC):%Y-%m-%d}",
                error=error,
            )
            machines_report.keep(STATE, outcome)
            PAGE.write_text(machines_report.page(machines_report.load(STATE)), encoding="utf-8")
            _say(
                f"{number + 1}/{asked.count} {name}, {kill.target} killed {kill}: {ended}, and then {error or 'ok'} ({outcome.took:.0f} s)"
            )
            if error:
                return 1
    return 0


@dataclass(frozen=True)
class Kill:
    """What is killed while a command runs, and when: after so many reported steps, or else after so many seconds.

    `share` chooses one of the machines.
    """

    target: str
    steps: int
    seconds: float
    share: float

    def __str__(self) -> str:
        return f"at step {self.steps}" if self.steps else f"after {self.seconds:.2f} s"


def _chosen(choice: random.Random, name: str) -> Kill:
    """Choose a kill. Every second one is at a step, if the command reports any."""
    target, steps, seconds = choice.choice(list(TARGETS)), choice.randint(1, max(1, REPORTED[name])), choice.random() * SECONDS[name]
    at_step = choice.random() < 0.5 and REPORTED[name] > 0
    return Kill(target, steps if at_step else 0, seconds, choice.random())


def _disturbed(cluster: Cluster, name: str, kill: Kill) -> str:
    """Run a command and kill something meanwhile; returns how the command ended."""
    if name == "restart":
        for machine in cgroups.named(cluster.group):
            machine.kill()
    process = cluster.start(*_words(cluster, name), "-o", "json", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    struck, hit = threading.Event(), list[bool]()

    def strike() -> None:
        struck.set()
        hit.append(TARGETS[kill.target](cluster, process, kill))

    timer = threading.Timer(0 if kill.steps else kill.seconds, strike)
    if not kill.steps:
        timer.start()
    reported = 0
    with process.stderr as lines:  # also after the kill: nobody else reads them
        for line in lines:
            reported += _is_step(line)
            if reported == kill.steps and not struck.is_set() and kill.steps:
                strike()
    code = process.wait(1800)
    timer.cancel()
    if not struck.is_set():
        return machines_report.ENDED_BEFORE
    if not kill.steps:
        timer.join()
    if not any(hit):
        return machines_report.NOTHING_THERE
    return "it was killed" if code == -signal.SIGKILL else f"it exited with {code}"


def _is_step(line: str) -> bool:
    """Whether a line reports that a phase begins, or that a machine or the cluster has reached a state."""
    with suppress(ValueError, TypeError, KeyError):
        return json.loads(line)["event"] in {"PhaseStarted", "State"}
    return False


def _finish(cluster: Cluster, name: str, before: Mapping[str, str]) -> None:
    """Run a command to its end, and require its result; after the last machine of the host, its settings are those from before."""
    cluster.call(*_words(cluster, name))
    if name == "remove":
        assert cluster.traces() == [], cluster.traces()
        assert not before or cgroups.any_left() or _settings() == before, f"settings of the host: {_settings()}, not {before}"
        return
    eventually(lambda: cluster.status()["state"] == "Ready", "the cluster to be ready")


def _words(cluster: Cluster, name: str) -> list[str]:
    verb, *flags = STEPS[name]
    return [verb, "--name", cluster.name, *flags]


STEPS: Final[Mapping[str, tuple[str, ...]]] = {
    "create": ("up", "--machines", "--nodes", "1", "--wait", "20m"),
    "grow": ("up", "--nodes", "2", "--wait", "20m"),
    "restart": ("up", "--wait", "20m"),
    "shrink": ("up", "--nodes", "1", "--wait", "20m"),
    "remove": ("down",),
}
"""The commands in the order in which they are disturbed; the machines lose power before a restart."""
SECONDS: Final[Mapping[str, float]] = {"create": 25, "grow": 15, "restart": 8, "shrink": 5, "remove": 2}
"""How long each of them takes about, on two cores that are not idle."""
REPORTED: Final[Mapping[str, int]] = {"create": 46, "grow": 45, "restart": 44, "shrink": 37, "remove": 0}
"""How many steps each of them reports at least: four less than were counted, because states that last briefly are not always seen."""


def _kill_command(_: Cluster, process: subprocess.Popen[str], __: Kill) -> bool:
    process.kill()
    return True


def _kill_daemon(cluster: Cluster, _: subprocess.Popen[str], __: Kill) -> bool:
    with suppress(ProcessLookupError, KeyError):  # there is none at the moment
        os.kill(client.status(cluster.paths)["pid"], signal.SIGKILL)
        return True
    return False


def _kill_machine(cluster: Cluster, _: subprocess.Popen[str], kill: Kill) -> bool:
    found = [one for one in cgroups.named(cluster.group) if one.processes()]
    if found:
        found[int(kill.share * len(found))].kill()
    return bool(found)


TARGETS: Final[Mapping[str, Callable[[Cluster, subprocess.Popen[str], Kill], bool]]] = {
    "command": _kill_command,
    "daemon": _kill_daemon,
    "machine": _kill_machine,
}
"""What kills each target; it returns whether there was one."""


def _settings() -> dict[str, str]:
    return {name: (_SETTINGS / name).read_text(encoding="ascii") for name in host.SYSCTLS if (_SETTINGS / name).exists()}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
