"""The command table: every command that kubewright has. Help, completion, parsing and the documentation all come from its rows.

The rows are in modules of their own (`*_rows`), imported when they are needed.
"""

from __future__ import annotations

from kubewright.cli.model import Command
from kubewright.cli.toplevel import GLOBAL_FLAGS, HEADS, ROOT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kubewright.cli.toplevel import Head

__all__ = ["GLOBAL_FLAGS", "ROOT", "below", "children", "command", "every"]


def below(parent: Command, word: str) -> Command | None:
    """Return the command that a word means directly below another one; aliases count."""
    if not parent.words:
        head = next((head for head in HEADS.values() if word and word in {head.word, head.alias}), None)
        return _rows(head)[0] if head else None
    return next((row for row in _directly_below(parent) if word == row.words[-1] or word in row.aliases), None)


def children(parent: Command, *, hidden: bool = False) -> tuple[Command, ...]:
    """Return the commands directly below one, in the table's order; of the program itself only what help needs: path and summary."""
    if not parent.words:
        return tuple(Command(head.word, head.summary, hidden=head.hidden) for head in HEADS.values() if hidden or not head.hidden)
    return tuple(row for row in _directly_below(parent) if hidden or not row.hidden)


def command(*words: str) -> Command:
    """Return the command with a path; aliases count. Raises KeyError if there is none."""
    found = ROOT
    for word in words:
        row = below(found, word)
        if row is None:
            raise KeyError(" ".join(words))
        found = row
    return found


def every() -> tuple[Command, ...]:
    """Return all rows, the program itself first. Imports every row module."""
    return (ROOT, *(row for head in HEADS.values() for row in _rows(head)))


def _directly_below(parent: Command) -> list[Command]:
    depth = len(parent.words)
    return [row for row in _rows(HEADS[parent.words[0]]) if len(row.words) == depth + 1 and row.words[:depth] == parent.words]


def _rows(head: Head) -> tuple[Command, ...]:
    """Return the rows under a first word, its own first."""
    import importlib

    rows: tuple[Command, ...] = importlib.import_module(f"kubewright.cli.{head.rows}").ROWS
    return tuple(row for row in rows if row.words[0] == head.word)
