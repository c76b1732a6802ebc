"""Rows for `X phase …`: one for each phase that has a command, made from short tuples. Imports nothing heavy."""

from __future__ import annotations

from kubewright.cli.model import KUBEADM, Argument, Command, Flag

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class PhaseRow:
    """A phase: its words below `phase`, and its flags by name, separated by blanks. One with rows below it is a group."""

    def __init__(self, words: str, summary: str, flags: str = "", *, alias: str = "", argument: Argument | None = None) -> None:
        self.words = words
        self.summary = summary
        self.flags = flags
        self.alias = alias
        self.argument = argument


def phase_commands(
    workflow: str, phases: Sequence[PhaseRow], *, flags: Mapping[str, Flag], handler: str, ours: str = ""
) -> tuple[Command, ...]:
    """Return the rows of `WORKFLOW phase` and of everything below it. `ours` are flags that every phase has besides kubeadm's."""
    name = workflow.rpartition(" ")[2]
    groups = {row.words.rpartition(" ")[0] for row in phases}
    found = [Command(f"{workflow} phase", f"Run one phase of {name}", exit_scheme=KUBEADM)]
    for row in phases:
        leaf = row.words not in groups
        found.append(
            Command(
                f"{workflow} phase {row.words}",
                row.summary,
                handler=handler if leaf else "",
                flags=tuple(flags[flag] for flag in f"{row.flags} {ours}".split()) if leaf else (),
                argument=row.argument,
                aliases=(row.alias,) if row.alias else (),
                exit_scheme=KUBEADM,
            )
        )
    return tuple(found)
