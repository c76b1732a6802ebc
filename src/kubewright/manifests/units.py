"""Values of systemd's unit files, written so that systemd reads them as they are (systemd.unit(5), systemd.service(5), systemd.exec(5)). Pure."""

from __future__ import annotations

import glob
from pathlib import PurePosixPath
from typing import Final

from kubewright.base.errors import HostError
from kubewright.base.patterns import Pattern

_SPECIAL: Final = Pattern(r"[\s\"'\\]")
_UNSPEAKABLE: Final = Pattern(r"[\x00-\x1f\x7f\"'\\\ud800-\udfff]")


def program(path: PurePosixPath) -> str:
    """Return the path of a program as the first word of ExecStart=: `%` begins a specifier, blanks end a word, `$` means nothing there.

    systemd takes no program whose path has quotes, backslashes or control characters in it (string_is_safe in src/basic/string-util.c).
    """
    text = str(path)
    if _UNSPEAKABLE.search(text):
        raise HostError(
            f"no unit can start {text!r}",
            detail="systemd takes no path with quotes, backslashes, control characters or bytes that are no UTF-8",
            remedy=f"install {path.name} in another directory",
        )
    escaped = _plain(text)
    return f'"{escaped}"' if any(character.isspace() for character in text) else escaped


def arguments(*words: str) -> str:
    """Return the further words of ExecStart=: a `$` means itself in them."""
    plain = (_plain(word).replace("$", "$$") for word in words)
    return " ".join(_quoted(word) if _SPECIAL.search(word) else word for word in plain)


def variable(name: str, *words: str) -> str:
    """Return an assignment for Environment=, whose value systemd takes to pieces again: each argument is quoted, and then all of them."""
    value = " ".join(_quoted(word) if _SPECIAL.search(word) else word for word in words)
    return _plain(_quoted(f"{name}={value}"))


def pattern(path: PurePosixPath) -> str:
    """Return a path for EnvironmentFile=, which is the rest of its line and a pattern."""
    return _plain(glob.escape(str(path)))


def _quoted(text: str) -> str:
    inner = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{inner}"'


def _plain(text: str) -> str:
    """Return a text in which `%` means itself (systemd.unit(5), specifiers)."""
    return text.replace("%", "%%")
