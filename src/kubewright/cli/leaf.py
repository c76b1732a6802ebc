"""The argparse parser of one command, built from its row when it is called. Raises UsageError and never leaves the process."""

from __future__ import annotations

import argparse

from kubewright.base.errors import UsageError
from kubewright.cli.model import BOOL, DURATION, INT, LIST, Command, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}


def read(command: Command, flags: Sequence[Flag], arguments: Sequence[str], *, program: str) -> dict[str, object]:
    """Return the values of all flags and arguments; None for what was not given."""
    found, surplus = _build(command, flags, program=program).parse_known_intermixed_args(list(arguments))
    if surplus:
        raise UsageError(f"unexpected argument {surplus[0]!r}", remedy=f"see `{' '.join((program, *command.words))} --help`")
    return vars(found)


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises instead of printing and leaving the process."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, remedy=f"see `{self.prog} --help`")


def _build(command: Command, flags: Sequence[Flag], *, program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=" ".join((program, *command.words)), add_help=False, allow_abbrev=False)
    for flag in flags:
        parser.add_argument(
            f"--{flag.name}",
            dest=flag.dest,
            type=_reader(flag),
            default=None,
            action="extend" if flag.kind == LIST else "store",
        )
    for argument in command.arguments:
        count = "*" if argument.many else ("?" if argument.optional else None)
        parser.add_argument(argument.name, nargs=count, default=None)
    return parser


def _reader(flag: Flag) -> Callable[[str], object]:
    def read(text: str) -> object:
        if flag.kind == BOOL:
            return _boolean(text, flag)
        if flag.kind == INT:
            return _integer(text, flag)
        if flag.kind == LIST:
            return [item for item in text.split(",") if item]
        if flag.kind == DURATION:
            return _duration(text, flag)
        if flag.choices and text not in flag.choices:
            raise _invalid(flag, text, f"choose one of {', '.join(choice for choice in flag.choices if choice)}")
        return text

    return read


def _boolean(text: str, flag: Flag) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _invalid(flag, text, "write true or false")


def _integer(text: str, flag: Flag) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise _invalid(flag, text, "write a whole number") from None


def _duration(text: str, flag: Flag) -> str:
    from kubewright.base.durations import Duration

    try:
        Duration.parse(text)
    except ValueError:
        raise _invalid(flag, text, "write a duration like 90s, 2m or 1h30m") from None
    return text


def _invalid(flag: Flag, text: str, remedy: str) -> UsageError:
    return UsageError(f'invalid argument "{text}" for "--{flag.name}"', remedy=remedy)
