"""Values in systemd's unit files, quoted so that systemd reads them unchanged (systemd.unit(5), systemd.service(5), systemd.exec(5)).

Pure.

Every value of a unit comes from a function of this module. All of them raise UnsafeText for control characters: systemd
ends a line at NUL and CR too, even within quotes.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern
from kubewright.base.plain_text import is_one_line, one_line

_WORD: Final = Pattern(r"[^\s\"'\\;]+")
"""A word that needs no quotes. A single semicolon ends a command (systemd.service(5), ExecStart=)."""
_QUOTING: Final = Pattern(r"[\"'\\]")


def program(path: PurePosixPath) -> str:
    """Return the path of a program as the first word of ExecStart=: `%` begins a specifier, spaces end a word, `$` has no meaning there.

    systemd rejects programs whose path contains quotes, backslashes or control characters (string_is_safe in
    src/basic/string-util.c).
    """
    text = str(path)
    if _QUOTING.search(text) or not is_one_line(text):
        raise HostError(
            f"no unit can start {quoted(text)}",
            detail="systemd accepts no paths with quotes, backslashes, control characters or bytes that are not UTF-8",
            remedy=f"install {path.name} in another directory",
        )
    escaped = _plain(text)
    return f'"{escaped}"' if any(character.isspace() for character in text) else escaped


def arguments(*words: str) -> str:
    """Return the further words of ExecStart=, with `$` escaped."""
    return _words(_plain(word).replace("$", "$$") for word in words)


def variable(name: str, *words: str) -> str:
    """Return an assignment for Environment=, whose value systemd splits again: each argument is quoted, and then the whole."""
    return _plain(_quoted(f"{name}={_words(words)}"))


def pattern(path: PurePosixPath) -> str:
    """Return a path for EnvironmentFile=, which extends to the end of its line and is a pattern (glob(3), in which a backslash quotes the next character)."""
    return _plain(glob.escape(str(path).replace("\\", "\\\\")))


def rest_of_line(text: str) -> str:
    """Return a text for a setting such as Description= that extends to the end of its line.

    Backslashes become slashes: one at the end would join two lines.
    """
    return _plain(text.replace("\\", "/"))


def _words(words: Iterable[str]) -> str:
    return " ".join(word if _WORD.fullmatch(word) else _quoted(word) for word in words)


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _plain(text: str) -> str:
    """Return a text with `%` escaped (systemd.unit(5), specifiers). Raises UnsafeText."""
    return one_line(text, what="a value of a unit").replace("%", "%%")
