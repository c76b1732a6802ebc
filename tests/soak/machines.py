"""`python -m tests.soak.machines [--count N] [--seed S]`: kill the command, the daemon and machines of a cluster of machines at random moments.

A cluster is created, scaled, restarted after a power cut and removed, over and over. Each of these commands is disturbed
once by `kill -9`; the same command again must finish, and after `down` nothing may be left on the host. Exits 1 at the
first failure, with the seed and the number of the step. Needs tests and tests/machines on PYTHONPATH, as in `make
soak-machines`.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from machine_kit import eventually
from testbed.bed import ensure_parts
from whole_kit import Cluster, clusters

from kubewright.local.whole import members
from kubewright.local.whole.services import client
from kubewright.machines import cgroups, host

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
            name, step = list(STEPS.items())[number % len(STEPS)]
            if name == "create" and not cgroups.any_left():
                before = _settings()
            target, moment = choice.choice(list(TARGETS)), choice.random() * SECONDS[name]
            began = time.monotonic()
            try:
                done = _disturbed(cluster, step, TARGETS[target], moment)
                _finish(cluster, step, before)
            except AssertionError as error:
                _say(f"{number + 1}/{asked.count} {name}, {target} killed after {moment:.2f} s, seed {seed}: {error}")
                return 1
            took = time.monotonic() - began
            _say(f"{number + 1}/{asked.count} {name}, {target} killed after {moment:.2f} s: {done}, and then ok ({took:.0f} s)")
    return 0


def _disturbed(cluster: Cluster, step: Sequence[str], kill: Callable[[Cluster, subprocess.Popen[str]], None], moment: float) -> str:
    """Run a command and kill something meanwhile; returns how the command ended."""
    with suppress(OSError):  # it does not exist, or there is no machine
        if step is STEPS["restart"]:
            for name in members.existing(cluster.paths):
                members.machine_of_group(cluster.paths, name).cut_power()
    process = cluster.start(*_words(cluster, step), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moment)
        return "it had ended before"
    kill(cluster, process)
    code = process.wait(1800)
    return "it was killed" if code == -signal.SIGKILL else f"it exited with {code}"


def _finish(cluster: Cluster, step: Sequence[str], before: Mapping[str, str]) -> None:
    """Run a command to its end, and require its result; after the last machine of the host, its settings are those from before."""
    cluster.call(*_words(cluster, step))
    if step is STEPS["remove"]:
        assert cluster.traces() == [], cluster.traces()
        assert not before or cgroups.any_left() or _settings() == before, f"settings of the host: {_settings()}, not {before}"
        return
    eventually(lambda: cluster.status()["state"] == "Ready", "the cluster to be ready")


def _words(cluster: Cluster, step: Sequence[str]) -> list[str]:
    verb, *flags = step
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


def _kill_command(_: Cluster, process: subprocess.Popen[str]) -> None:
    process.kill()


def _kill_daemon(cluster: Cluster, _: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, TypeError):  # there is none at the moment
        os.kill(client.status(cluster.paths)["pid"], signal.SIGKILL)


def _kill_machine(cluster: Cluster, _: subprocess.Popen[str]) -> None:
    for name in random.sample(members.existing(cluster.paths), k=1) if members.existing(cluster.paths) else []:
        members.machine_of_group(cluster.paths, name).cgroups.kill()


TARGETS: Final[Mapping[str, Callable[[Cluster, subprocess.Popen[str]], None]]] = {
    "command": _kill_command,
    "daemon": _kill_daemon,
    "machine": _kill_machine,
}


def _settings() -> dict[str, str]:
    return {name: (_SETTINGS / name).read_text(encoding="ascii") for name in host.SYSCTLS}


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
