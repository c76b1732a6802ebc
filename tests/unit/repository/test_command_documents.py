"""docs/compat/commands.md matches the command table: every command of kubeadm has its row, and every row its test."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kubewright.cli.rows import commands

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "compat" / "commands.md").read_text()
KUBEADMS = [row["command"] for row in json.loads((ROOT / "tests" / "data" / "reference" / "commands.json").read_text())]
ROWS = re.findall(r"^\| `(kubeadm[^`]*)` \| ([^|]+) \| `([^`|]+)` \|$", PAGE.partition("## Commands of kubeadm")[2], re.MULTILINE)
TESTS = sorted(set(re.findall(r"`((?:unit|compat|controlplane|machines)/[^`]+\.py::[^`]+)`", PAGE)))
REFUSES = re.compile(r"\brefuses\b")


def test_every_command_of_kubeadm_has_exactly_one_row():
    documented = [command for command, _, _ in ROWS]
    assert sorted(documented) == sorted([*KUBEADMS, "kubeadm help", "kubeadm alpha"])
    assert len(documented) == 136


def test_every_row_is_about_a_command_that_exists():
    for command, _, _ in ROWS:
        assert commands.TABLE.command(*command.split()[1:]) is not None


def test_every_state_is_complete_or_names_refusals():
    assert {state for _, state, _ in ROWS if not state.startswith("complete") and not REFUSES.search(state)} == set()
    assert sum(state == "complete" for _, state, _ in ROWS) > 60


@pytest.mark.parametrize("test", TESTS)
def test_every_named_test_exists(test):
    path, _, name = test.partition("::")
    assert re.search(rf"^def {name}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE)


def test_the_page_names_tests():
    assert len(TESTS) > 25


def test_a_phase_whose_test_runs_phases_alone_is_one_of_them():
    text = (ROOT / "tests" / "machines" / "test_init_machines.py").read_text()
    [table] = re.findall(r"^PHASES = \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    claimed = [
        command.removeprefix("kubeadm init phase ")
        for command, _, test in ROWS
        if test.endswith("::test_a_phase_that_uses_the_cluster_can_run_alone")
    ]
    assert sorted(claimed) == sorted(re.findall(r'^    "([^"]+)":', table, re.MULTILINE))
    assert [
        command for command, _, test in ROWS if " init phase " in command and test.endswith("::test_the_node_and_the_add_ons_become_ready")
    ] == []


def test_a_phase_of_join_whose_test_makes_a_machine_by_phases_is_run_there():
    text = (ROOT / "tests" / "machines" / "test_join_worker.py").read_text()
    [body] = re.findall(r"^def test_a_machine_joins_by_single_phases\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    run = set(re.findall(r'\bphase\("([^"]+)"', body))
    rows = {command.removeprefix("kubeadm join phase "): test for command, _, test in ROWS if command.startswith("kubeadm join phase ")}
    assert {name for name, test in rows.items() if test.endswith("::test_a_machine_joins_by_single_phases")} == run
    groups = {name.rpartition(" ")[0] for name in rows}
    assert rows.keys() - groups == run
