"""The tree of phases and the rows of the command table, compared with kubeadm's commands (commands.json of v1.36.2)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubewright.cli.rows import commands
from kubewright.lifecycle.init.phases import PHASES as INIT

KUBEADM = {
    row["command"].removeprefix("kubeadm").strip(): row
    for row in json.loads((Path(__file__).parents[2] / "data" / "reference" / "commands.json").read_text())
}
PHASES = {path: row for path, row in KUBEADM.items() if path.startswith("init phase ")}
OURS = {"plan", "output"}


def test_the_tree_has_the_names_and_order_of_kubeadm():
    printed = KUBEADM["init"]["phase_tree_printed"]
    assert len(printed) == 39
    assert ["  /" * bool(node.above) + node.phase.word for node in INIT.nodes if not node.phase.hidden] == printed


def test_only_our_own_phases_are_hidden():
    assert [node.name for node in INIT.nodes if node.phase.hidden] == ["serving-approver", "control-plane-check"]


def test_every_phase_of_kubeadm_has_a_command_and_is_in_the_tree():
    assert len(PHASES) == 45
    for path in PHASES:
        command, node = commands.TABLE.command(*path.split()), INIT.named(path.split()[2:])
        assert node is not None, path
        assert bool(command.handler) == (not node.phase.children), path


def test_every_phase_command_exists_in_kubeadm():
    rows = [row.path for row in commands.TABLE.every() if row.words[:2] == ("init", "phase") and len(row.words) > 2]
    assert sorted(rows) == sorted(PHASES)


@pytest.mark.parametrize(("alias", "name"), [("uploadconfig kubeadm", "upload-config/kubeadm"), ("bootstraptoken", "bootstrap-token")])
def test_aliases_mean_the_same_phase(alias, name):
    node = INIT.named(alias.split())
    assert node is not None
    assert node.name == name
    assert commands.TABLE.command("init", "phase", *alias.split()) is commands.TABLE.command("init", "phase", *name.split("/"))


@pytest.mark.parametrize("path", ["init", *PHASES])
def test_the_flags_equal_those_of_kubeadm(path):
    theirs = {flag["name"]: flag for flag in KUBEADM[path]["flags"] + KUBEADM[path].get("hidden_deprecated_flags", [])}
    ours = {flag.name: flag for flag in commands.TABLE.command(*path.split()).flags}
    assert set(ours) - OURS - (
        {"adopt", "client-certificates", "controllers-image", "node-cidrs", "serving-certificates"} if path == "init" else set()
    ) == set(theirs)
    assert (set(ours) >= OURS) == bool(theirs or path in {"init phase wait-control-plane", "init phase show-join-command"})
    for name, flag in theirs.items():
        assert str(ours[name].default or "") == flag.get("default", ""), name
        assert ours[name].hidden == (flag in KUBEADM[path].get("hidden_deprecated_flags", []))
