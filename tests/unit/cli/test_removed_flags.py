"""Flags and commands that kubeadm once had: whoever types one is told since when it is gone, and what to use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubewright.cli.parsing.removed_flags import COMMANDS, FLAGS, command_hint, flag_hint

REFERENCE = Path(__file__).parents[2] / "data" / "reference"
KUBEADMS = {row["command"].partition(" ")[2]: row for row in json.loads((REFERENCE / "commands.json").read_text())}


@pytest.mark.parametrize(("owner", "name", "since", "instead"), FLAGS)
def test_a_flag_that_is_gone_says_since_when_and_what_to_use(owner, name, since, instead):
    words = (owner or "join").split()
    hint = flag_hint(words, f"--{name}=value")
    assert f"{name} was removed in {since}; " in hint
    assert hint == flag_hint([*words, "all"], f"--{name}")
    assert instead.removeprefix("nothing") in hint


@pytest.mark.parametrize(("known", "since", "instead"), COMMANDS)
def test_a_command_that_is_gone_says_since_when_and_what_to_use(known, since, instead):
    hint = command_hint([*known.split(), "anything"])
    assert hint.startswith(f"`{known}` was removed in {since}; ")
    assert instead.removeprefix("nothing") in hint


def test_what_was_never_there_has_no_hint():
    assert flag_hint(["init"], "--nonsense") == ""
    assert flag_hint(["token", "list"], "--api-port") == ""
    assert command_hint(["config", "nonsense"]) == ""
    assert command_hint([]) == ""


def test_nothing_that_kubeadm_still_has_counts_as_gone():
    assert len(KUBEADMS) > 130
    commands = [words for words in KUBEADMS if command_hint(words.split())]
    flags = [(words, flag["name"]) for words, row in KUBEADMS.items() for flag in row["flags"] if flag_hint(words.split(), flag["name"])]
    assert (commands, flags) == ([], [])


def test_what_is_to_be_used_instead_exists():
    told = {instead.strip("`").split(" --")[0] for _, _, instead in COMMANDS if instead.startswith("`") and "kubectl" not in instead}
    assert {words for words in told if words.partition("` and ")[0] not in KUBEADMS} == set()
    used = {instead.partition("=")[0].removeprefix("--") for _, _, _, instead in FLAGS if instead.startswith("--")}
    known = {flag["name"] for row in KUBEADMS.values() for flag in row["flags"]}
    assert {name for name in used if name.partition(" or ")[0] not in known} == set()
