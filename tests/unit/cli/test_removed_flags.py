"""Flags and commands that kubeadm once had: errors say since when they are gone, and what to use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubewright.cli.parsing.removed_flags import COMMANDS, FLAGS, command_hint, flag_hint

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
KUBEADMS = {row["command"].partition(" ")[2]: row for row in json.loads((REFERENCE / "commands.json").read_text())}


@pytest.mark.parametrize(("owner", "name", "since", "instead"), FLAGS)
def test_a_removed_flag_is_reported_with_release_and_replacement(owner, name, since, instead):
    words = (owner or "join").split()
    hint = flag_hint(words, f"--{name}=value")
    assert f"{name} was removed in {since}; " in hint
    assert hint == flag_hint([*words, "all"], f"--{name}")
    assert instead.removeprefix("nothing") in hint


@pytest.mark.parametrize(("known", "since", "instead"), COMMANDS)
def test_a_removed_command_is_reported_with_release_and_replacement(known, since, instead):
    hint = command_hint([*known.split(), "anything"])
    assert hint.startswith(f"`{known}` was removed in {since}; ")
    assert instead.removeprefix("nothing") in hint


def test_flags_that_never_existed_have_no_hint():
    assert flag_hint(["init"], "--nonsense") == ""
    assert flag_hint(["token", "list"], "--api-port") == ""
    assert command_hint(["config", "nonsense"]) == ""
    assert command_hint([]) == ""


def test_nothing_that_kubeadm_still_has_counts_as_removed():
    assert len(KUBEADMS) > 130
    commands = [words for words in KUBEADMS if command_hint(words.split())]
    flags = [(words, flag["name"]) for words, row in KUBEADMS.items() for flag in row["flags"] if flag_hint(words.split(), flag["name"])]
    assert (commands, flags) == ([], [])


def test_replacements_exist():
    told = {instead.strip("`").split(" --")[0] for _, _, instead in COMMANDS if instead.startswith("`") and "kubectl" not in instead}
    assert {words for words in told if words.partition("` and ")[0] not in KUBEADMS} == set()
    used = {instead.partition("=")[0].removeprefix("--") for _, _, _, instead in FLAGS if instead.startswith("--")}
    known = {flag["name"] for row in KUBEADMS.values() for flag in row["flags"]}
    assert {name for name in used if name.partition(" or ")[0] not in known} == set()
