"""From argv to a command and its values: pflag's habits on top of argparse, built for the one leaf that is called.

pflag's habits (spec/kubeadm.md 1.1): flags and arguments may be mixed; a bare boolean means true and takes a value only with `=`; list flags
may be repeated and hold commas; `-v5`, `-v=5` and `-v 5` are the same; no abbreviations; `--` ends the flags.
"""

from __future__ import annotations

import sys

from kubewright.base.errors import UsageError
from kubewright.cli import commands
from kubewright.cli.model import BOOL, LIST, Command, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


class Parsed:
    """A command with its values. `given` holds the names of the flags that the user typed."""

    def __init__(self, command: Command, values: dict[str, object], given: frozenset[str], *, wants_help: bool = False) -> None:
        self.command = command
        self.values = values
        self.given = given
        self.wants_help = wants_help

    def __getitem__(self, name: str) -> object:
        return self.values[name.replace("-", "_")]

    def text(self, name: str) -> str:
        """Return the value of a string flag or argument; an absent one is empty."""
        value = self[name]
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return the value of a boolean flag."""
        return self[name] is True

    def number(self, name: str) -> int | None:
        """Return the value of an integer flag; None where it was not given and has no default."""
        value = self[name]
        return value if isinstance(value, int) else None

    def strings(self, name: str) -> tuple[str, ...]:
        """Return the values of a list flag or of an argument that takes many."""
        value = self[name]
        return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


class Found:
    """The command that a command line means, and what is left to read: the words behind it, and those among them that are flags."""

    def __init__(self, command: Command, left: Sequence[str], rest: Sequence[str]) -> None:
        self.command = command
        self.left = tuple(left)
        self.rest = tuple(rest)


def parse(argv: Sequence[str], *, program: str) -> Parsed:
    """Find the command and read its flags and arguments.

    Raises UsageError, naming the word or flag that is wrong.
    """
    return read(find(argv), program=program)


def read(found: Found, *, program: str) -> Parsed:
    """Read the flags and arguments of the command that was found. Raises UsageError."""
    command = found.command
    wants_help = any(word in {"-h", "--help"} for word in _before_dashes(found.rest))
    if not command.handler and not wants_help:
        _refuse_unknown(command, found.left, found.rest, program=program)
    if wants_help or not command.handler:
        return Parsed(command, {"v": 0}, frozenset(), wants_help=wants_help)
    flags = (*commands.GLOBAL_FLAGS, *command.flags)
    arguments = _normalise(found.rest, flags)
    values = _read(command, flags, arguments, program=program)
    given = frozenset(flag.name for flag in flags if values[flag.dest] is not None)
    for flag in flags:
        if values[flag.dest] is None:
            values[flag.dest] = flag.default if flag.kind != LIST else ()
    return Parsed(command, values, given)


def _read(command: Command, flags: Sequence[Flag], arguments: list[str], *, program: str) -> dict[str, object]:
    from kubewright.cli import leaf

    return leaf.read(command, flags, arguments, program=program)


def find(argv: Sequence[str]) -> Found:
    """Take the words of the longest known command off the front; flags may stand between them. Never fails."""
    if argv[:1] and argv[0] == "help":
        argv = [*argv[1:], "--help"]
    words: tuple[str, ...] = ()
    rest: list[str] = []
    index = 0
    while index < len(argv):
        word = argv[index]
        command = commands.BY_WORDS[words]
        if word == "--" or (not word.startswith("-") and (*words, word) not in commands.BY_WORDS):
            break
        if word.startswith("-"):
            rest.append(word)
            if _takes_next(word, (*commands.GLOBAL_FLAGS, *command.flags)) and index + 1 < len(argv):
                index += 1
                rest.append(argv[index])
        else:
            words = (*words, word)
        index += 1
    command = commands.BY_WORDS[words]
    return Found(command, argv[index:], [*rest, *argv[index:]])


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


def _refuse_unknown(command: Command, left: Sequence[str], rest: Sequence[str], *, program: str) -> None:
    called = " ".join((program, *command.words))
    if left:
        known = [row.words[-1] for row in commands.children(command)]
        raise UsageError(f'unknown command "{left[0]}" for "{called}"', remedy=_did_you_mean(left[0], known) or _see_help(command, program))
    if rest:
        raise UsageError(f"unknown flag: {rest[0]}", remedy=_see_help(command, program))


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def _see_help(command: Command, program: str) -> str:
    return f"see `{' '.join((program, *command.words))} --help`"


def _takes_next(word: str, flags: Sequence[Flag]) -> bool:
    flag = _named(word, flags)
    return flag is not None and flag.kind != BOOL


def _named(word: str, flags: Sequence[Flag]) -> Flag | None:
    for flag in flags:
        if word == f"--{flag.name}" or (flag.short and word == f"-{flag.short}"):
            return flag
    return None


def _normalise(words: Sequence[str], flags: Sequence[Flag]) -> list[str]:
    """Give bare booleans their `=true`, and write every flag in its long form with `=`."""
    out: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--":
            return [*out, word, *words[index:]]
        if not word.startswith("-") or word == "-":
            out.append(word)
            continue
        name, equals, value = _split(word)
        flag = _named(name, flags)
        if flag is None:
            names = [f"--{known.name}" for known in flags]
            raise UsageError(f"unknown flag: {name}", remedy=_did_you_mean(name, names) or "see --help")
        if not equals:
            if flag.kind == BOOL:
                value = "true"
            elif index < len(words):
                value = words[index]
                index += 1
            else:
                raise UsageError(f"flag needs an argument: {name}", remedy="write it as --flag=value or --flag value")
        out.append(f"--{flag.name}={value}")
    return out


def _split(word: str) -> tuple[str, bool, str]:
    """Split `--name=value`, `-n=value` and `-nvalue` into name, whether a value was given, and the value."""
    name, equals, value = word.partition("=")
    if equals or word.startswith("--") or len(word) == 2:
        return name, bool(equals), value
    return word[:2], True, word[2:]


def program_name() -> str:
    """Return the name that we were called by; `python -m kubewright` counts as kubewright."""
    name = sys.argv[0].rsplit("/", 1)[-1] if sys.argv else ""
    return name if name and not name.startswith(("__main__", "-")) else "kubewright"
