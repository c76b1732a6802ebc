"""The shape of the command table: commands, flags and arguments as plain values.

`kubewright --help` and `version` must start as fast as kubeadm does, so nothing here may import `typing`, `dataclasses` or `enum`
(12 ms together); a test keeps the list of modules that the cheap commands load.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

STRING = "string"
BOOL = "bool"
INT = "int"
LIST = "strings"
DURATION = "duration"

OWN = "own"
"""Exit codes by the class of the error."""
KUBEADM = "kubeadm"
"""Exit code 1 for every error, as kubeadm has it."""
DIFF = "diff"
"""1 is the command's own answer (there are differences), as with `diff`; errors whose class says 1 exit 2, all others as with OWN."""


class Flag:
    """One flag. `kind` is one of STRING, BOOL, INT, LIST (comma lists, repeatable) and DURATION (Go's form); the default fits the kind."""

    def __init__(
        self,
        name: str,
        summary: str,
        *,
        kind: str = STRING,
        default: object = None,
        short: str = "",
        metavar: str = "",
        choices: Sequence[str] = (),
        hidden: bool = False,
    ) -> None:
        self.name = name
        self.summary = summary
        self.kind = kind
        self.default = default
        self.short = short
        self.metavar = metavar or kind
        self.choices = tuple(choices)
        self.hidden = hidden

    @property
    def dest(self) -> str:
        """The attribute that holds the value after parsing."""
        return self.name.replace("-", "_")


class Argument:
    """One positional argument; `many` takes all that are left."""

    def __init__(self, name: str, summary: str, *, optional: bool = False, many: bool = False) -> None:
        self.name = name
        self.summary = summary
        self.optional = optional
        self.many = many


class Command:
    """One command, a row of the table.

    `path` is the words that call it, `handler` is `module:function`, imported only when the command runs; a row without one is a group.
    """

    def __init__(
        self,
        path: str,
        summary: str,
        *,
        handler: str = "",
        flags: Sequence[Flag] = (),
        arguments: Sequence[Argument] = (),
        description: str = "",
        examples: Sequence[str] = (),
        exit_scheme: str = OWN,
        hidden: bool = False,
    ) -> None:
        self.path = path
        self.summary = summary
        self.handler = handler
        self.flags = tuple(flags)
        self.arguments = tuple(arguments)
        self.description = description
        self.examples = tuple(examples)
        self.exit_scheme = exit_scheme
        self.hidden = hidden

    @property
    def words(self) -> tuple[str, ...]:
        """The path as words; empty for the program itself."""
        return tuple(self.path.split())
