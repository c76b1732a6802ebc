"""Values of systemd's unit files, written so that systemd reads them as they are (systemd.unit(5), systemd.service(5), systemd.exec(5)). Pure.

Every value of a unit comes from a function of this module. All of them raise UnsafeText for control characters: systemd ends a line at NUL and CR too,
so that quotes do not hold such a value together.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern
from kubewright.base.plain_text import is_one_line, one_line

_WORD: Final = Pattern(r"[^\s\"'\\;]+")
"""What is one word without quotes. A semicolon that stands alone ends a command (systemd.service(5), ExecStart=)."""
_QUOTING: Final = Pattern(r"[\"'\\]")


def program(path: PurePosixPath) -> str:
    """Return the path of a program as the first word of ExecStart=: `%` begins a specifier, blanks end a word, `$` means nothing there.

    systemd takes no program whose path has quotes, backslashes or control characters in it (string_is_safe in src/basic/string-util.c).
    """
    text = str(path)
    if _QUOTING.search(text) or not is_one_line(text):
        raise HostError(
            f"no unit can start {text!r}",
            detail="systemd accepts no path with quotes, backslashes, control characters or bytes that are not UTF-8",
            remedy=f"install {path.name} in another directory",
        )
    escaped = _plain(text)
    return f'"{escaped}"' if any(character.isspace() for character in text) else escaped


def arguments(*words: str) -> str:
    """Return the further words of ExecStart=: a `$` means itself in them."""
    return _words(_plain(word).replace("$", "$$") for word in words)


def variable(name: str, *words: str) -> str:
    """Return an assignment for Environment=, whose value systemd takes to pieces again: each argument is quoted, and then all of them."""
    return _plain(_quoted(f"{name}={_words(words)}"))


def pattern(path: PurePosixPath) -> str:
    """Return a path for EnvironmentFile=, which is the rest of its line and a pattern (glob(3), in which a backslash quotes the next character)."""
    return _plain(glob.escape(str(path).replace("\\", "\\\\")))


def rest_of_line(text: str) -> str:
    """Return a text for a setting that takes the rest of its line, as Description= does. Backslashes become slashes: the last one would join two lines."""
    return _plain(text.replace("\\", "/"))


def _words(words: Iterable[str]) -> str:
    return " ".join(word if _WORD.fullmatch(word) else _quoted(word) for word in words)


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _plain(text: str) -> str:
    """Return a text in which `%` means itself (systemd.unit(5), specifiers). Raises UnsafeText."""
    return one_line(text, what="a value of a unit").replace("%", "%%")
