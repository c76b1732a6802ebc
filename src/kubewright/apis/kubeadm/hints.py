"""What is said about a field that its kind does not have: what became of it, what was meant, where it belongs. For errors only."""

from __future__ import annotations

from typing import Final

from kubewright.apis.kubeadm import explaining, removed
from kubewright.base.patterns import Pattern

_INDEX: Final = Pattern(r"\[[^\]]*\]")
_MOST: Final = 3
"""A name that more fields than this have says too little about where it belongs."""


def unknown_field(kind: str, path: str, meant: str) -> str:
    """Return the reason of an error; `meant` is the sibling with the nearest name, or ''."""
    plain = _INDEX.sub("", path)
    gone = removed.field_hint(plain, component=kind in explaining.COMPONENTS)
    if gone or meant:
        return gone or f'did you mean "{meant}"?'
    return _elsewhere(kind, plain.rpartition(".")[2])


def _elsewhere(kind: str, name: str) -> str:
    """Say where a name belongs: in the same kind, else in others."""
    same = [found.path for found in explaining.every(kind) if found.path.rpartition(".")[2] == name]
    if same:
        return f"did you mean {' or '.join(same)}?" if len(same) <= _MOST else ""
    others = [
        (found.path, other)
        for other in explaining.KINDS
        if other != kind
        for found in explaining.every(other)
        if found.path.rpartition(".")[2] == name
    ]
    others = [(path, other) for path, other in others if "." not in path] or others
    return f"did you mean {' or '.join(f'{path} of {other}' for path, other in others)}?" if 0 < len(others) <= _MOST else ""
