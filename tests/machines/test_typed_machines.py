"""A reader boots machines with `make machines`, types the commands of a page in order, and sees the output that the page shows."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from itertools import takewhile
from pathlib import Path

import pytest
from testbed.configuration import has_cgroup_v1

from kubewright.machines.parts import Parts
from typed import ROOT, Reader, Step, Terminal, environment, steps

GUIDE = ROOT / "docs" / "guide"
TOOLS = ("kubewright", "kubeadm")
BESIDES = {
    # on a host with cgroup v1, according to README
    **{f"{tool} join": "--ignore-preflight-errors SystemVerification" for tool in TOOLS if has_cgroup_v1()},
    # a busy machine exceeds the default of half a minute
    "kubectl wait ": "--timeout=15m",
}
"""What these machines need."""


class Host(Terminal):
    """The reader's terminal outside of the machines.

    `named` maps plain names to those that `make machines` chose, because another bed may have the plain ones.
    """

    def __init__(self, env: Mapping[str, str], named: Mapping[str, str]) -> None:
        super().__init__(["bash", "--noprofile", "--norc"], cwd=ROOT, env=env)
        self._named = named

    def type(self, command: str) -> tuple[int, str]:
        if command.startswith("make copy "):
            command = re.sub(r"\b(\w+):", lambda found: f"{self._named[found[1]]}:", command)
        return super().type(command)


@contextmanager
def booted(making: str) -> Iterator[dict[str, Terminal]]:
    """Boot machines with a command of a page, and enter each."""
    names = re.findall(r"\w+", shlex.split(making)[-1].partition("ARGS=")[2])
    env = environment()
    process = subprocess.Popen(shlex.split(making), cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        told = "".join(takewhile(lambda line: line != "Press Ctrl-C to stop and remove them.\n", process.stdout))
        named = dict(re.findall(r"^(\w+) .* MACHINE=(\S+)$", told, re.MULTILINE))
        assert list(named) == names, told
        with ExitStack() as stack:
            entered = {name: Terminal(["make", "-s", "enter", f"MACHINE={where}"], cwd=ROOT, env=env) for name, where in named.items()}
            terminals = {**entered, "here": Host(env, named)}
            yield {name: stack.enter_context(closing(terminal)) for name, terminal in terminals.items()}
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=900)


def follow(page: Path) -> list[str]:
    """Follow a page from `make machines` on, on fresh machines. Returns the commands that were typed."""
    found = list(steps(page))
    start = next(number for number, step in enumerate(found) if step.terminal == "machines")
    [making], entering, rest = _sorted(found[start:])
    assert [step.command for step in entering] == ["make enter MACHINE=one"]
    with booted(shlex.join(shlex.split(making.command, comments=True))) as terminals:
        reader = Reader(terminals)
        reader.follow(iter(rest), besides=BESIDES)
    return reader.done


def _sorted(found: list[Step]) -> tuple[list[Step], list[Step], list[Step]]:
    """Return the commands that boot machines, those that enter them, and all others."""
    special = {name: [step for step in found if step.terminal == name] for name in ("machines", "enter")}
    return special["machines"], special["enter"], [step for step in found if step.terminal not in special]


def test_the_commands_of_the_readme_make_a_cluster_of_two_machines(parts: Parts) -> None:
    assert len(follow(ROOT / "README.md")) == 11


@pytest.mark.parametrize(("page", "commands"), [("agent.md", 13), ("controllers.md", 15), ("hub.md", 26), ("machines.md", 26)])
def test_the_commands_of_a_guide_work_on_fresh_machines(parts: Parts, page: str, commands: int) -> None:
    assert len(follow(GUIDE / page)) == commands
