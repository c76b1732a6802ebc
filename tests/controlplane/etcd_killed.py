"""Runs a command of `etcd` on a machine of a local cluster, and dies at its N-th change of the machine: `python etcd_killed.py ROOT MACHINE N WORDS…`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kubewright.cli.handlers import machine
from kubewright.cli.main import main
from kubewright.local.cluster.daemon_client import Daemon
from kubewright.local.cluster.machine import machine_host
from kubewright.local.paths import ClusterPaths

KILLED = 137
VERBS = ("ensure", "remove", "move")


def run(root: str, name: str, number: int, words: list[str]) -> int:
    """Run the command. What it does after the N-th change never happens, as after SIGKILL."""
    paths, done = ClusterPaths(Path(root)), 0
    host: Any = machine_host(paths, name, programs={}, daemon=Daemon(paths), durable=False)

    def counted(verb: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **more: Any) -> Any:
            nonlocal done
            change = verb(*arguments, **more)
            done += bool(change)
            if done == number:
                os._exit(KILLED)
            return change

        return call

    for verb in VERBS:
        setattr(host, verb, counted(getattr(host, verb)))
    machine.host = lambda *_, **__: host  # type: ignore[assignment]
    return main(words)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
