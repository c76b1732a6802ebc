"""The command tree compared row by row with `commands.json`, and that file with the real kubeadm.

The file was made with v1.36.2. Real kubeadm v1.36.3 differs from it in nothing that its help shows;
`test_the_data_equals_the_commands_of_real_kubeadm` verifies that. The help does not show hidden commands and flags: `alpha`, and
`--apiserver-extra-args` and similar ones, whose type kubeadm itself calls []kubeadmapiv1.Arg and the file
mapStringString.
"""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from certs_comparison import find_kubeadm

from kubewright.cli.main import main
from kubewright.cli.printers import helptext
from kubewright.cli.rows import commands
from kubewright.cli.rows.model import Command

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "tests" / "data" / "reference" / "commands.json").read_text())
BY_PATH = {row["command"].removeprefix("kubeadm").strip(): row for row in ROWS}
GLOBAL = ["rootfs", "v", "vmodule"]
OF_COBRA = {"help"}
"""Commands that kubeadm has and that are no rows of the file."""
HIDDEN = {"alpha"}
ADDITIONS = [
    (word, re.findall(r"`([^`]+)`", where))
    for word, where in re.findall(
        r"^\| `([^`]+)` \| ([^|]*)\|",
        (ROOT / "docs" / "compat" / "commands.md").read_text().partition("## Additions of kubewright")[2],
        re.MULTILINE,
    )
]
"""Commands (with patterns) and flags of ours, and the commands that have them."""


def command_of(row: dict[str, Any]) -> Command:
    return commands.TABLE.command(*row["command"].split()[1:])


def flags_of(row: dict[str, Any]) -> dict[str, dict[str, Any]]:
    hidden = [{**flag, "hidden": True} for flag in row.get("hidden_deprecated_flags", ())]
    return {flag["name"]: flag for flag in [*row["flags"], *hidden]}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["command"].replace(" ", "-"))
def test_a_command_has_the_same_flags_and_aliases_as_in_kubeadm(row, monkeypatch, capsys):
    ours = command_of(row)
    flags = {flag.name: flag for flag in (commands.GLOBAL_FLAGS if not ours.words else ours.flags)}
    theirs = flags_of(row)
    inherited = [name for name in row["inherited_flags"] if name not in GLOBAL]
    assert set(theirs) | set(inherited) <= set(flags)
    for name, flag in theirs.items():
        found = flags[name]
        shown = {"type": found.kind, "shorthand": found.short, "default": found.default_text, "hidden": found.hidden}
        assert shown == {
            "type": flag["type"],
            "shorthand": flag.get("shorthand", ""),
            "default": flag.get("default", ""),
            "hidden": flag.get("hidden", False),
        }, name
    assert helptext.usage(ours, program="kubeadm") == row["usage"]
    assert [ours.words[-1], *ours.aliases] == row["aliases"] if ours.aliases else "aliases" not in row
    kubeadms = {child.words[-1] for child in commands.TABLE.children(ours) if not added(child.path)}
    assert kubeadms == set(row["subcommands"])
    monkeypatch.setattr("sys.argv", ["/usr/bin/kubeadm"])
    assert main([*ours.words, "--help"]) == row["help_exit_code"]
    out, err = capsys.readouterr()
    assert all(f"  {line}\n" in out for line in row["usage"])
    assert [flag.name for flag in (*commands.GLOBAL_FLAGS, *ours.flags_as("kubeadm")) if (f"--{flag.name}" in out) == flag.hidden] == []
    assert ("kubewright" in out, err) == (False, "")


def added(path: str, flag: str = "") -> bool:
    if flag:
        return any(word == f"--{flag}" and any(fnmatch.fnmatch(path, pattern) for pattern in where) for word, where in ADDITIONS)
    return any(fnmatch.fnmatch(path, word) for word, _ in ADDITIONS if not word.startswith("--"))


def test_additions_to_kubeadm_are_in_the_table_of_additions():
    every = commands.TABLE.every()
    assert [row.path for row in every if row.path not in BY_PATH and row.path not in OF_COBRA | HIDDEN and not added(row.path)] == []
    surplus = [
        (row.path, flag.name)
        for row in every
        if row.path in BY_PATH and row.words
        for flag in row.flags
        if flag.name not in flags_of(BY_PATH[row.path]) and flag.name not in BY_PATH[row.path]["inherited_flags"]
    ]
    assert len(surplus) > 40
    assert [(path, name) for path, name in surplus if not added(path, name)] == []
    assert [flag.name for flag in commands.GLOBAL_FLAGS] == GLOBAL


def test_the_table_of_additions_has_no_unused_row():
    paths = {row.path: {flag.name for flag in row.flags} for row in commands.TABLE.every()}
    assert len(ADDITIONS) > 8
    dead = []
    for word, where in ADDITIONS:
        if not word.startswith("--"):
            dead += [word] if not any(fnmatch.fnmatch(path, word) for path in paths) or word in BY_PATH else []
            continue
        for pattern in where:
            if not any(fnmatch.fnmatch(path, pattern) and word[2:] in flags for path, flags in paths.items()):
                dead.append(f"{word} on {pattern}")
    assert dead == []


def test_hidden_commands_exist_and_are_hidden():
    assert BY_PATH[""]["hidden_commands"] == sorted(HIDDEN)
    assert [row.path for row in commands.TABLE.every() if row.hidden and not added(row.path)] == sorted(HIDDEN)
    assert [flag.name for row in commands.TABLE.every() if row.path in BY_PATH for flag in row.flags if flag.hidden] == [
        flag["name"] for row in ROWS for flag in row.get("hidden_deprecated_flags", ())
    ]


@pytest.mark.parametrize("path", ["init", "join", "reset", "upgrade apply", "upgrade node"])
def test_phases_are_listed_as_by_kubeadm(path):
    shown = (
        helptext.render(commands.TABLE.command(*path.split()), program="kubeadm")
        .partition("Phases")[2]
        .partition("\n\n")[0]
        .splitlines()[1:]
    )
    tree = BY_PATH[path]["phase_tree_printed"]
    assert len(tree) >= 3
    names = [line[2:].split("  ")[0] if line[2] != " " else "  " + line.split()[0] for line in shown if re.match(r"  (?:  /)?[a-z]", line)]
    assert names == tree


_FLAG = re.compile(r"^ +(?:-(?P<short>\w), )?--(?P<name>[\w-]+)(?: (?P<type>\w+))?(?: {2,}| *$)(?P<text>.*)$", re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["command"].replace(" ", "-"))
def test_the_data_equals_the_commands_of_real_kubeadm(row):
    words = row["command"].split()[1:]
    done = subprocess.run([find_kubeadm(), *words, "--help"], capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == row["help_exit_code"]
    usage = done.stdout.partition("\nUsage:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.strip() for line in usage] == row["usage"]
    shown = done.stdout.partition("\nFlags:\n")[2].partition("\n\n")[0]
    flags = {found["name"]: found for found in _FLAG.finditer(shown) if found["name"] != "help"}
    assert set(flags) == {flag["name"] for flag in row["flags"]}
    for flag in row["flags"]:
        found = flags[flag["name"]]
        assert (found["short"] or "") == flag.get("shorthand", "")
        wanted = {"bool": None, "moduleSpec": "pattern"}.get(flag["type"], flag["type"])
        assert found["type"] == wanted or found["type"] is not None, flag["name"]
