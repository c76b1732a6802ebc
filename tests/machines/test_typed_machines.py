"""A reader boots machines with `make machines` and types what README says about them, in order, and sees what it shows."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

from testbed.bed import Parts
from testbed.configuration import has_cgroup_v1

from typed import ROOT, Reader, Terminal, steps

TOOLS = ("kubewright", "kubeadm")
BESIDES = {f"{tool} join": "--ignore-preflight-errors SystemVerification" for tool in TOOLS} if has_cgroup_v1() else {}
"""What README says these machines need on a host with cgroup v1."""


@contextmanager
def machines(*names: str) -> Iterator[dict[str, Terminal]]:
    """Boot machines as a reader does, and enter each."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    making = ["make", "-s", "machines", f"ARGS={' '.join(names)}"]
    booted = subprocess.Popen(making, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert booted.stdout is not None
        told = "".join(iter(booted.stdout.readline, "Ctrl-C here ends and removes them.\n"))
        named = dict(re.findall(r"^(\w+) .* MACHINE=(\S+)$", told, re.MULTILINE))
        assert list(named) == list(names), told
        with ExitStack() as stack:
            entered = {name: Terminal(["make", "-s", "enter", f"MACHINE={where}"], cwd=ROOT, env=env) for name, where in named.items()}
            yield {name: stack.enter_context(closing(terminal)) for name, terminal in entered.items()}
    finally:
        os.killpg(booted.pid, signal.SIGINT)
        booted.communicate(timeout=300)


def test_a_reader_of_the_readme_makes_two_machines_a_cluster(parts: Parts) -> None:
    with machines("one", "two") as entered:
        reader = Reader(entered)
        reader.follow((step for step in steps(ROOT / "README.md") if step.terminal in entered), besides=BESIDES)
        assert len(reader.done) == 10
