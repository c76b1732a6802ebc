"""Which known name a wrong one probably stands for."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 80


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name that a wrong one probably stands for, or ''."""
    names = list(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    if name.casefold() in folded:
        return folded[name.casefold()]
    import difflib  # takes its time to load, and is for wrong names only

    near = difflib.get_close_matches(name[:_LONGEST], names, n=1, cutoff=0.7)
    return near[0] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that names what was perhaps meant, or ''."""
    meant = closest(name, known)
    return f'; did you mean "{meant}"?' if meant else ""
