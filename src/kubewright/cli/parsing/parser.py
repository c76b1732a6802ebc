"""Converts argv to a command and its values, as cobra and pflag do for kubeadm v1.36: find the command, parse the following words."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.base.records import dataclass
from kubewright.cli.parsing import pflag
from kubewright.cli.rows.commands import GLOBAL_FLAGS, ROOT, TABLE, Table
from kubewright.cli.rows.model import ANY, BOOL, LIST, PAIRS, Argument, Command, Flag

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

HELP = Flag("help", "show this help", kind=BOOL, default=False, short="h")


@dataclass(eq=False)
class Parsed:
    """A command with its values.

    `given` contains the names of the flags that the user typed, `notices` are messages about them.
    """

    command: Command
    values: dict[str, object]
    given: frozenset[str]
    _: KW_ONLY
    wants_help: bool = False
    notices: Sequence[str] = ()
    table: Table = TABLE

    def __getitem__(self, name: str) -> object:
        return self.values[name.replace("-", "_")]

    def text(self, name: str) -> str:
        """Return the value of a string flag or argument; empty if it was not given."""
        value = self[name]
        return "" if value is None else str(value)

    def flag(self, name: str) -> bool:
        """Return the value of a boolean flag."""
        return self[name] is True

    def number(self, name: str) -> int | None:
        """Return the value of an integer flag; None if it was not given and has no default."""
        value = self[name]
        return value if isinstance(value, int) else None

    def strings(self, name: str) -> tuple[str, ...]:
        """Return the values of a list flag or of an argument that accepts several."""
        value = self[name]
        return tuple(str(item) for item in value) if isinstance(value, (list, tuple)) else ()


@dataclass(eq=False)
class Found:
    """The command of a command line, and the words still to parse: those after it, and the flags among them."""

    command: Command
    left: Sequence[str]
    rest: Sequence[str]
    table: Table


def parse(argv: Sequence[str], *, program: str) -> Parsed:
    """Find the command and parse its flags and arguments. Raises UsageError, naming the wrong word or flag."""
    return read(find(argv), program=program)


def find(argv: Sequence[str], *, table: Table = TABLE) -> Found:
    """Remove the words of the longest known command from the line; flags may be between them. Never fails.

    As in cobra, each command on the way scans the whole rest of the line with its own flags, and a flag that it does
    not know consumes the next word; so does `--help`.
    """
    command, rest = ROOT, list(argv)
    while (index := _first_word(rest, _flags(command))) is not None:
        row = table.below(command, rest[index])
        if row is None:
            return Found(command, rest[index:], rest, table)
        del rest[index]
        command = row
    return Found(command, (), rest, table)


def _first_word(words: Sequence[str], flags: Sequence[Flag]) -> int | None:
    """Return the index of the first word that is neither a flag nor the value of one; None if there is none before `--`."""
    index = 0
    while index < len(words) and words[index] != "--":
        word = words[index]
        if word and not word.startswith("-"):
            return index
        index += 2 if word not in {"", "-"} and pflag.takes_next(word, flags) else 1
    return None


def read(found: Found, *, program: str) -> Parsed:
    """Parse the flags and arguments of the command that was found. Raises UsageError."""
    command = found.command
    if not command.words and found.left:
        raise _unknown(command, found.left, program=program, table=found.table)
    flags = (*_flags(command), HELP)
    scanned = pflag.scan(found.rest, flags, see=_see_help(command, program), gone=lambda name: _gone_flag(command, name))
    wants_help = scanned.values.pop("help", False) is True
    if not wants_help:
        _check_arguments(found, scanned.arguments, program=program)
        _check_choices(flags, scanned)
    values: dict[str, object] = {flag.dest: _default(flag) for flag in flags}
    values |= {name.replace("-", "_"): value for name, value in scanned.values.items()}
    if command.argument is not None:
        values[command.argument.name.replace("-", "_")] = _value(command.argument, scanned.arguments)
    return Parsed(command, values, frozenset(scanned.values), wants_help=wants_help, notices=scanned.notices, table=found.table)


def _flags(command: Command) -> tuple[Flag, ...]:
    return (*GLOBAL_FLAGS, *command.flags_as(program_name()))


def _default(flag: Flag) -> object:
    return () if flag.default is None and flag.kind in {LIST, PAIRS} else flag.default


def _value(argument: Argument, words: Sequence[str]) -> object:
    if argument.most == 1:
        return words[0] if words else None
    return tuple(words)


def _check_arguments(found: Found, words: Sequence[str], *, program: str) -> None:
    """Refuse a wrong number of arguments, with cobra's message (spf13/cobra v1.10, args.go). Raises UsageError."""
    command = found.command
    see = _see_help(command, program)
    if command.argument is None:
        if words and command.words:
            raise _unknown(command, words, program=program, table=found.table)
        return
    least, most = command.argument.least, command.argument.most
    if least <= len(words) and (most == ANY or len(words) <= most):
        return
    if most == ANY:
        raise UsageError(f"requires at least {least} arg(s), only received {len(words)}", remedy=see)
    wanted = f"accepts {most} arg(s)" if least == most else f"accepts at most {most} arg(s)"
    raise UsageError(f"{wanted}, received {len(words)}", remedy=see)


def _check_choices(flags: Sequence[Flag], scanned: pflag.Scanned) -> None:
    """Refuse a value that is not one of a flag's choices.

    Only the last value counts, so this follows parsing. Raises UsageError.
    """
    for flag in flags:
        if flag.choices and flag.name in scanned.values:
            pflag.check_choice(flag, str(scanned.values[flag.name]))


def _unknown(command: Command, words: Sequence[str], *, program: str, table: Table) -> UsageError:
    """Return the error for words after a command that does not accept them; removed words of kubeadm are explained."""
    from kubewright.cli.parsing.removed_flags import command_hint

    called = " ".join((program, *command.words))
    known = [row.words[-1] for row in table.children(command)]
    remedy = command_hint([*command.words, *words]) or _did_you_mean(words[0], known) or _see_help(command, program)
    return UsageError(f'unknown command {pflag.quoted(words[0])} for "{called}"', remedy=remedy)


def _gone_flag(command: Command, name: str) -> str:
    from kubewright.cli.parsing.removed_flags import flag_hint

    return flag_hint(command.words, name)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {quoted(close[0])}?" if close else ""


def _see_help(command: Command, program: str) -> str:
    return f"see `{' '.join((program, *command.words))} --help`"


def program_name() -> str:
    """Return the name by which we were called; `python -m kubewright` counts as kubewright."""
    name = sys.argv[0].rsplit("/", 1)[-1] if sys.argv else ""
    return name if name and not name.startswith(("__main__", "-")) else "kubewright"


def as_called(text: str) -> str:
    """Return a text with the program's name in its commands: `kubewright up` becomes `kubeadm up` for a link named kubeadm."""
    program = program_name()
    if program == "kubewright" or "kubewright" not in text:
        return text
    for row in TABLE.children(ROOT, hidden=True):
        text = text.replace(f"kubewright {row.path}", f"{program} {row.path}")
    return text
