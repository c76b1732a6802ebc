"""The parser: pflag's rules, and errors that name the word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import UsageError
from kubewright.cli.parsing.parser import Parsed, parse
from kubewright.cli.rows import commands


def read(*argv: str) -> Parsed:
    return parse(list(argv), program="kubewright")


def test_every_command_that_runs_names_a_handler_that_exists():
    import importlib

    handlers = [command.handler for command in commands.TABLE.every() if command.handler]
    found = [getattr(importlib.import_module(module), function) for module, _, function in (name.partition(":") for name in handlers)]
    assert len(found) == len(handlers) > 50
    assert all(callable(handler) for handler in found)


def test_paths_are_unique_and_their_parents_exist():
    paths = [command.words for command in commands.TABLE.every()]
    assert len(set(paths)) == len(paths)
    assert [path for path in paths if path and path[:-1] not in paths] == []


@pytest.mark.parametrize(
    "argv",
    [
        ("up", "--nodes", "5"),
        ("up", "--nodes=5"),
        ("--v=3", "up", "--nodes=5"),
        ("-v", "3", "up", "--nodes", "5"),
        ("-v3", "up", "--nodes", "5"),
    ],
)
def test_flags_may_be_anywhere_with_values_after_a_blank_or_an_equals_sign(argv):
    parsed = read(*argv)
    assert parsed.command.path == "up"
    assert parsed.number("nodes") == 5
    assert "nodes" in parsed.given
    assert "name" not in parsed.given
    assert parsed.text("name") == "default"


def test_a_bare_boolean_is_true_and_takes_a_value_only_with_an_equals_sign():
    assert read("node", "leave", "--drain").flag("drain") is True
    assert read("node", "leave", "--drain=false").flag("drain") is False
    with pytest.raises(UsageError, match='unknown command "false" for "kubewright node leave"'):
        read("node", "leave", "--drain", "false")


def test_list_flags_may_be_repeated_and_contain_commas():
    parsed = read("init", "--skip-phases", "certs,kubeconfig", "--skip-phases=addon")
    assert parsed.strings("skip-phases") == ("certs", "kubeconfig", "addon")


def test_arguments_and_flags_are_mixed():
    parsed = read("local", "logs", "--tail", "3", "kube-apiserver", "-f")
    assert (parsed.text("component"), parsed.number("tail"), parsed.flag("follow")) == ("kube-apiserver", 3, True)


def test_two_dashes_end_the_flags():
    assert read("binaries", "fetch", "--", "kubectl").strings("program") == ("kubectl",)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("lcal",), 'unknown command "lcal" for "kubewright"'),
        (("local", "stats"), 'unknown command "stats" for "kubewright local"'),
        (("up", "--node", "3"), "unknown flag: --node"),
        (("up", "--nodes"), "flag needs an argument: --nodes"),
        (("up", "--nodes", "three"), 'invalid argument "three" for "--nodes" flag: "three" is not a whole number'),
        (("up", "--wait", "soon"), 'invalid argument "soon" for "--wait" flag: time: invalid duration "soon"'),
        (("up", "-o", "xml"), 'invalid argument "xml" for "-o, --output" flag: not one of its values'),
        (("up", "surplus"), 'unknown command "surplus" for "kubewright up"'),
        (("kubeconfig", "nonsense"), 'unknown command "nonsense" for "kubewright kubeconfig"'),
        (("alpha", "nonsense"), 'unknown command "nonsense" for "kubewright alpha"'),
        (("certificates", "nonsense"), 'unknown command "nonsense" for "kubewright certs"'),
        (("init", "phase", "uploadconfig", "nonsense"), 'unknown command "nonsense" for "kubewright init phase upload-config"'),
        (("--dry-run", "token", "generate"), 'unknown command "generate" for "kubewright"'),
        (("join", "a:1", "b:1"), "accepts at most 1 arg(s), received 2"),
        (("config", "explain"), "accepts 1 arg(s), received 0"),
        (("local", "shell"), "requires at least 1 arg(s), only received 0"),
    ],
)
def test_a_wrong_word_is_reported(argv, message):
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert caught.value.what == message
    assert caught.value.remedy


def test_a_misspelt_flag_gets_a_suggestion():
    with pytest.raises(UsageError) as caught:
        read("up", "--ndoes", "3")
    assert caught.value.remedy == 'did you mean "--nodes"?'


@pytest.mark.parametrize(
    ("argv", "remedy"),
    [
        (("init", "--experimental-upload-certs"), "--experimental-upload-certs was removed in v1.16; use --upload-certs"),
        (
            ("join", "phase", "control-plane-join", "etcd"),
            "`join phase control-plane-join etcd` was removed in v1.36; use `join phase etcd-join`",
        ),
        (("alpha", "phase", "x"), "`alpha phase` was removed in v1.14; use `init phase`"),
        (("config", "view"), "`config view` was removed in v1.22; use `kubectl get configmap -n kube-system kubeadm-config -o yaml`"),
    ],
)
def test_removed_commands_and_flags_of_kubeadm_are_explained(argv, remedy):
    with pytest.raises(UsageError) as caught:
        read(*argv)
    assert caught.value.what.startswith("unknown ")
    assert caught.value.remedy == remedy


@given(st.lists(st.text(min_size=1, max_size=12), max_size=6))
def test_any_words_are_read_or_refused_with_a_usage_error(words):
    try:
        parse(words, program="kubewright")
    except UsageError as error:
        assert error.what


@given(st.sampled_from([command for command in commands.TABLE.every() if command.handler]), st.data())
def test_given_values_are_parsed_unchanged(command, data):
    flags = data.draw(st.lists(st.sampled_from(command.flags), unique_by=lambda flag: flag.name)) if command.flags else []
    values = {"string": "x", "bool": "true", "int": "7", "int32": "7", "strings": "a,b", "duration": "1m", "mapStringString": "a=b"}
    words = [f"--{flag.name}={flag.choices[-1] if flag.choices else values[flag.kind]}" for flag in flags]
    arguments = [command.argument.name] * max(1, command.argument.least) if command.argument else []
    parsed = parse([*command.words, *words, *arguments], program="kubewright")
    assert parsed.command is command
    assert parsed.given == {flag.name for flag in flags}


@pytest.mark.parametrize(("alias", "path"), [("certificates", "certs"), ("reset phase pre-flight", "reset phase preflight")])
def test_an_alias_means_the_same_command(alias, path):
    assert commands.TABLE.command(*alias.split()) is commands.TABLE.command(*path.split())


def test_a_command_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        commands.TABLE.command("certs", "nonsense")


def test_every_word_of_the_top_level_has_its_rows_and_its_summary():
    for row in commands.TABLE.children(commands.ROOT, hidden=True):
        full = commands.TABLE.command(row.path)
        assert (full.path, full.summary, full.hidden) == (row.path, row.summary, row.hidden)
    assert len(commands.TABLE.every()) > 134
