"""Documents in which one value is not what its reader expects."""

from __future__ import annotations

import copy
from typing import Any

ODD = (None, 0, "", "ü", [], {}, [None], ["x"], [[]], {"x": None})
"""Values of each JSON type."""


def paths(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths to everything in a document."""
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, inner in rows for found in paths(inner, (*path, name)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a path."""
    if not path:
        return value
    made = copy.deepcopy(document)
    here = made
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = value
    return made


def variants(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the document with each of its values replaced by each odd one."""
    return [changed(document, path, value) for path in paths(document)[1:] for value in ODD]
