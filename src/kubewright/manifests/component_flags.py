"""Which flags each component has in each minor release, as the components themselves tell.

The table is `component_flags.txt` beside this file. `python -m tests.compat.flag_collecting` writes it from real binaries, and
tests/compat/test_component_flags.py holds it to them.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kubewright.base.records import dataclass, field

TABLE: Final = Path(__file__).with_name("component_flags.txt")
_EVERY: Final = "*"


@dataclass(frozen=True)
class ComponentFlag:
    """What is known about a flag: the type as the component's help names it ('' if it does not), and why it should not be used any more."""

    type: str
    deprecated: str = ""


@dataclass(frozen=True, kw_only=True)
class ComponentFlags:
    """The flags of one component in one minor release, and the minor releases that have flags which this one does not have."""

    component: str
    line: str
    flags: Mapping[str, ComponentFlag]
    elsewhere: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@functools.cache
def text() -> str:
    """Return the table. It is read once: `--rootfs` does so before the package is out of reach."""
    return TABLE.read_text(encoding="utf-8")


def flags_of(component: str, line: str) -> ComponentFlags | None:
    """Return the flags of a component in a minor release such as `1.36`; None where the table does not have it."""
    rows = iter(text().splitlines())
    lines = next((head[1:] for row in rows if row.startswith("[") and (head := row[1:-1].split())[0] == component), None)
    if lines is None or line not in lines:
        return None
    words: dict[str, str] = {}
    flags: dict[str, ComponentFlag] = {}
    elsewhere: dict[str, tuple[str, ...]] = {}
    for row in rows:
        if row.startswith("["):
            break
        name, *rest = row.split("\t")
        if name.startswith("@"):
            words[name] = rest[0]
            continue
        kind, of, key = (*rest, "")[:3]
        if of == _EVERY or line in of.split(","):
            flags[name] = ComponentFlag(kind, words.get(key, ""))
        else:
            elsewhere[name] = (*elsewhere.get(name, ()), *of.split(","))
    return ComponentFlags(component=component, line=line, flags=flags, elsewhere=elsewhere)
