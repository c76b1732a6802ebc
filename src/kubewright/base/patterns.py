"""Regular expressions that are compiled when they are first used.

Compiling one takes 0.1 ms or more, modules have seventy of them in tables and constants, and most commands use ten.
Importing `re` takes 8 ms; it is imported together with the first pattern that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import re


class Pattern:
    """The part of `re.compile`'s result that we use. An invalid pattern fails only at its first use, so every one needs a test."""

    def __init__(self, pattern: str, flags: int = 0) -> None:
        self.pattern = pattern
        self._flags = flags
        self._made: re.Pattern[str] | None = None

    @property
    def _compiled(self) -> re.Pattern[str]:
        if self._made is None:
            import re

            self._made = re.compile(self.pattern, self._flags)
        return self._made

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match anywhere in a text."""
        return self._compiled.search(text)

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        """Return the match at the start."""
        return self._compiled.match(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of the whole text."""
        return self._compiled.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the matches, from left to right."""
        return self._compiled.finditer(text)

    def findall(self, text: str) -> list[str]:
        """Return the texts of all matches."""
        return self._compiled.findall(text)

    def split(self, text: str) -> list[str]:
        """Return the texts between the matches."""
        return self._compiled.split(text)

    def sub(self, replacement: str | Callable[[re.Match[str]], str], text: str) -> str:
        """Replace all matches."""
        return self._compiled.sub(replacement, text)
