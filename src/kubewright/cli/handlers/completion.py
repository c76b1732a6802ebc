"""The `completion` command: scripts generated from the command table, by shtab for bash and zsh, by our own code for fish.

The script for fish has one function that determines the command of the line, and a line for each sub-command and flag.
Names of files are completed where a flag or an argument takes one. With shtab, a command with sub-commands cannot have
arguments. Bash then falls back to names of files, as it does with the script of kubeadm; for zsh, the lists of
sub-commands are replaced by ours, also because shtab 1.13 puts all descendants of a command into them.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kubewright.base.errors import UsageError
from kubewright.cli.parsing.parser import HELP, Parsed, program_name
from kubewright.cli.rows.commands import GLOBAL_FLAGS, ROOT, TABLE, Table
from kubewright.cli.rows.model import BOOL, Argument, Command, Flag

if TYPE_CHECKING:
    import argparse

SHELLS = ("bash", "zsh", "fish")
_FILES = ("file", "archive")
_DIRECTORIES = ("dir", "directory")
_PATHS = (*_FILES, *_DIRECTORIES)
"""How flags and arguments that take a path show it."""


def completion(parsed: Parsed) -> int:
    """Print the completion script of a shell."""
    given = parsed.strings("shell")
    remedy = f"choose one of {', '.join(SHELLS)}"
    if not given:
        raise UsageError("shell not specified", remedy=remedy)
    if len(given) > 1:
        raise UsageError("too many arguments. expected only the shell type", remedy=remedy)
    if given[0] not in SHELLS:
        raise UsageError(f'unsupported shell type "{given[0]}", the supported shell types are [{" ".join(SHELLS)}]', remedy=remedy)
    sys.stdout.write(script(given[0], program=program_name(), table=parsed.table))
    return 0


def script(shell: str, *, program: str, table: Table = TABLE) -> str:
    """Return the script that completes the program's commands and flags."""
    if shell == "fish":
        return fish_script(table, program=program)
    import shtab

    found: str = shtab.complete(_tree(table, program), shell=shell)
    if shell == "zsh":
        return _of_zsh(found, program, table)
    return found.replace("\ncomplete -o ", "\ncomplete -o default -o ")  # shtab has no option for it


def _of_zsh(text: str, program: str, table: Table) -> str:
    """Let a script offer exactly the sub-commands of each command, with files if it takes one, and also work with `source`."""
    text = text.replace("$zsh_eval_context[-1] == eval ", "$zsh_eval_context[-1] == (eval|file*) ")
    for row in table.every():
        children = [child for child in table.children(row) if not child.hidden]
        start = f"\n{_word('_shtab', program, *row.words)}_commands() {{\n"
        before, found, after = text.partition(start)
        if children and found:
            listed = "".join(f"    {shlex.quote(f'{child.words[-1]}:{child.summary}')}\n" for child in children)
            files = "  _files\n" if row.argument and _shown(row.argument) in _PATHS else ""
            body = f"  local _commands=(\n{listed}  )\n  _describe 'commands' _commands\n{files}"
            text = before + start + body + after[after.index("}\n") :]
    return text


def _word(*words: str) -> str:
    """Return words as a part of the name of a function, as shtab does."""
    return "".join(character if character.isalnum() else "_" for character in "_".join(words))


def _tree(table: Table, program: str) -> argparse.ArgumentParser:
    """Build the whole parser for shtab: our own parser needs only one row of the table."""
    import argparse

    parser = argparse.ArgumentParser(prog=program, description=ROOT.summary)
    _fill(parser, ROOT, program, table)
    return parser


def _fill(parser: argparse.ArgumentParser, command: Command, program: str, table: Table) -> None:
    for flag in (*GLOBAL_FLAGS, *command.flags_as(program)):
        if not flag.hidden:
            _add(parser, flag)
    below = table.children(command)
    if command.argument and not below and _shown(command.argument) in _PATHS:
        _completing_paths(parser.add_argument(command.argument.name, nargs="*"), _shown(command.argument))
    if below:
        group = parser.add_subparsers()
        for child in below:
            row = table.below(command, child.words[-1]) or child
            _fill(group.add_parser(row.words[-1], help=row.summary), row, program, table)


def _add(parser: argparse.ArgumentParser, flag: Flag) -> None:
    names = [f"-{flag.short}", f"--{flag.name}"] if flag.short else [f"--{flag.name}"]
    if flag.kind == "bool":
        parser.add_argument(*names, dest=flag.dest, action="store_true", help=flag.summary)
    else:
        _completing_paths(parser.add_argument(*names, dest=flag.dest, choices=flag.choices or None, help=flag.summary), flag.metavar)


def _completing_paths(action: argparse.Action, shown: str) -> None:
    """Let an action complete paths if it takes one."""
    import shtab

    if shown in _PATHS:
        action.complete = shtab.FILE if shown in _FILES else shtab.DIRECTORY  # type: ignore[attr-defined]  # shtab reads it


def _shown(argument: Argument) -> str:
    """Return the first word of an argument's form: `file` for `[FILE]`, `FILE|-` and `file ...`."""
    return argument.shown.strip("[").lower().replace("]", " ").replace("|", " ").partition(" ")[0]


# Words of the line are consumed as long as they lead to a command; a flag with a value consumes the next word too.
_FUNCTION = """\
function __@_at --description 'Test whether the command line is at this command'
    set -l path
    set -l skip no
    for word in (commandline -opc)[2..-1]
        if test $skip = yes
            set skip no
            continue
        end
        switch $word
            case '-*=*'
            case '-*'
                contains -- $word $__@_valued; and set skip yes
            case '*'
                contains -- (string join ' ' $path $word) $__@_paths; and set path $path $word
        end
    end
    test "$path" = "$argv"
end
"""


def fish_script(table: Table, *, program: str) -> str:
    """Return the script for a program of this name."""
    name = _word(program)
    shown = [row for row in table.every() if not row.hidden]
    flags = [flag for row in shown for flag in (*GLOBAL_FLAGS, *row.flags_as(program)) if not flag.hidden]
    valued = sorted({word for flag in flags if flag.kind != BOOL for word in _words(flag)})
    lines = [
        f"set -g __{name}_paths {' '.join(_quoted(row.path) for row in shown if row.path)}",
        f"set -g __{name}_valued {' '.join(valued)}",
        _FUNCTION.replace("@", name),
        f"complete -c {program} -f",
    ]
    for row in shown:
        lines += _of_command(
            table.children(row), row.flags_as(program), f"complete -c {program} -n {_quoted(f'__{name}_at {row.path}'.rstrip())}"
        )
        if row.argument and _shown(row.argument) in _PATHS:
            lines.append(f"complete -c {program} -n {_quoted(f'__{name}_at {row.path}')} -F")
    return "\n".join(lines) + "\n"


def _of_command(children: Sequence[Command], flags: Sequence[Flag], start: str) -> Iterator[str]:
    for child in children:
        yield f"{start} -a {child.words[-1]} -d {_quoted(child.summary)}"
    for flag in (*GLOBAL_FLAGS, *flags, HELP):
        if not flag.hidden:
            yield f"{start} {_of_flag(flag)}"


def _of_flag(flag: Flag) -> str:
    words = [f"-s {flag.short}"] if flag.short else []
    words += [f"-l {flag.name}", *_values(flag), f"-d {_quoted(flag.summary)}"]
    return " ".join(words)


def _values(flag: Flag) -> list[str]:
    """Return how a value is completed: from its choices, or as a path."""
    if flag.kind == BOOL:
        return []
    if flag.choices:
        return ["-x", "-a", _quoted(" ".join(filter(None, flag.choices)))]
    return ["-r", "-F"] if flag.metavar in _PATHS else ["-x"]


def _words(flag: Flag) -> list[str]:
    return [f"--{flag.name}", *([f"-{flag.short}"] if flag.short else [])]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
