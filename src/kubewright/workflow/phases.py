"""Phases: trees of named steps as plain values, and the rules for selecting some of them (kubeadm v1.36: cmd/phases/workflow).

Cheap to import: a phase may name its function instead of importing it, so that help and completion need only the tree.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from kubewright.base.change import Change
from kubewright.base.errors import UsageError
from kubewright.base.events import Waited
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from dataclasses import KW_ONLY

Context_contra = TypeVar("Context_contra", contravariant=True)
"""The context type of phase functions: a phase that needs less of the context fits into any tree."""

Step = Change | Waited
"""The values that a phase's function yields: one for each target that it ensured, and for each wait."""


@dataclass(frozen=True)
class Phase(Generic[Context_contra]):
    """One step of a workflow, or a group of them.

    `run` takes the context of the workflow and yields its steps, before the children run; written as `module:function`,
    it is imported only then.
    `condition` returns None if the phase applies, else the reason why it and its children are skipped.
    `depends` are full names of phases that must run if this one runs.
    `flags` names the flags of the phase's own command, separated by spaces, `argument` its positional argument; the
    command table defines both. A `hidden` phase has no command and no line in the help.
    `every` marks a leaf `all`: as a command it runs its parent with all children; in a run of the workflow it does not
    exist.
    """

    name: str
    summary: str
    _: KW_ONLY
    aliases: tuple[str, ...] = ()
    run: Callable[[Context_contra], Iterable[Step]] | str | None = None
    children: tuple[Phase[Context_contra], ...] = ()
    condition: Callable[[Context_contra], str | None] | str | None = None
    depends: tuple[str, ...] = ()
    flags: str = ""
    argument: str = ""
    hidden: bool = False
    every: bool = False

    @property
    def word(self) -> str:
        """The name as typed on the command line: in lower case."""
        return self.name.lower()

    def action(self) -> Callable[[Context_contra], Iterable[Step]] | None:
        """Return the function to run, imported now if it is only named."""
        return cast("Callable[[Context_contra], Iterable[Step]] | None", resolved(self.run))

    def left_out(self, context: Context_contra) -> str | None:
        """Return why the phase does not apply, or None if it does."""
        condition = cast("Callable[[Context_contra], str | None] | None", resolved(self.condition))
        return None if condition is None else condition(context)


@dataclass(frozen=True)
class Node(Generic[Context_contra]):
    """A phase at its place in the tree. `above` are the nodes from the root down to its parent."""

    phase: Phase[Context_contra]
    above: tuple[Node[Context_contra], ...] = ()

    @property
    def name(self) -> str:
        """The full name, such as `certs/apiserver`."""
        return "/".join(node.phase.word for node in self.line)

    @property
    def line(self) -> tuple[Node[Context_contra], ...]:
        """The nodes above and this one."""
        return (*self.above, self)

    def within(self, names: frozenset[str]) -> bool:
        """Return whether this phase or one above it is among the names."""
        return any(node.name in names for node in self.line)

    def below(self) -> Iterator[Node[Context_contra]]:
        """Yield this node and all below it, parents first."""
        yield self
        for child in self.phase.children:
            yield from Node(child, self.line).below()


class Phases(Generic[Context_contra]):
    """The tree of a workflow. Raises ValueError for an inconsistent tree, which is a bug in the program."""

    def __init__(self, *phases: Phase[Context_contra]) -> None:
        self.roots = phases
        self._all = {node.name: node for phase in phases for node in Node(phase).below()}
        self._check()

    @property
    def nodes(self) -> tuple[Node[Context_contra], ...]:
        """All nodes that a run of the workflow visits, in order: parents before children, including hidden phases, without `all`."""
        return tuple(node for node in self._all.values() if not node.phase.every)

    @property
    def commands(self) -> tuple[Node[Context_contra], ...]:
        """All nodes that have their own command, in order: including groups and their `all`, without hidden ones."""
        return tuple(node for node in self._all.values() if not any(above.phase.hidden for above in node.line))

    def find(self, name: str) -> Node[Context_contra]:
        """Return the node with a full name.

        Raises UsageError if there is none; aliases and other spellings do not count.
        """
        if name not in self._all:
            from kubewright.base.messages import closest

            known = [node.name for node in self.nodes if not node.phase.hidden]
            meant = closest(name, known)
            remedy = f"did you mean {meant}? The phases are: " if meant else "the phases are: "
            raise UsageError(f"invalid phase name: {name}", remedy=remedy + ", ".join(known))
        return self._all[name]

    def named(self, words: Sequence[str]) -> Node[Context_contra] | None:
        """Return the node for the words after `phase` on a command line, aliases included; None if there is no such command."""
        level, found = self.roots, None
        for word in words:
            phase = next((phase for phase in level if not phase.hidden and word in {phase.word, *phase.aliases}), None)
            if phase is None:
                return None
            found = Node(phase, found.line if found else ())
            level = phase.children
        return found

    def select(self, *, only: Sequence[str] = (), skip: Sequence[str] = ()) -> tuple[Node[Context_contra], ...]:
        """Select the nodes to run, in order.

        `only` names phases that run with all below them, without their parents; `X/all` is all of X. `skip` names
        phases that are skipped with all below them. Raises UsageError for an unknown name, or if a phase is selected
        without those that it depends on.
        """
        wanted = frozenset(self._meant(name) for name in only)
        unwanted = frozenset(self.find(name).name for name in skip)
        chosen = tuple(node for node in self.nodes if (not wanted or node.within(wanted)) and not node.within(unwanted))
        _check_dependencies(chosen)
        return chosen

    def load(self) -> None:
        """Import all functions that phases only name, for a process that cannot import them later."""
        for node in self._all.values():
            resolved(node.phase.run)
            resolved(node.phase.condition)

    def _meant(self, name: str) -> str:
        node = self.find(name)
        return node.above[-1].name if node.phase.every and node.above else name

    def _check(self) -> None:
        count = sum(1 for phase in self.roots for _ in Node(phase).below())
        if count != len(self._all):
            raise ValueError("two phases have the same full name")


def _check_dependencies(chosen: Sequence[Node[Context_contra]]) -> None:
    names = {node.name for node in chosen}
    lacking = [(node.name, [name for name in node.phase.depends if name not in names]) for node in chosen]
    lines = [f'missing [{" ".join(missing)}] phase(s) needed by "{name}" phase' for name, missing in lacking if missing]
    if lines:
        raise UsageError(
            "unresolved dependencies",
            detail="\n".join(lines),
            remedy="run the whole workflow, or leave out the phases that need the missing ones as well",
        )


def resolved(target: object) -> object:
    """Import an object named as `module:function`; return anything else unchanged."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)
