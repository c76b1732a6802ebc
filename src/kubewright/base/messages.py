"""Format the parts of messages.

Texts of users are put in double quotes, as in YAML and in the messages of Kubernetes, never in Python's notation.
Names of files, processes and interfaces are bytes in an unknown encoding. URLs are shown without their secrets, and
unknown names together with the known one that was probably meant.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kubewright.base.patterns import Pattern

if TYPE_CHECKING:
    import re


ESCAPING = "kubewright.escaping"
"""The error handler for streams: characters that their encoding cannot represent are written as by `printable`."""

_ESCAPES = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("\r"): "\\r", ord("\t"): "\\t"}
# Carriage returns within a line, C1, and characters that change the direction of text. Our own colours stay; others
# could hide what follows.
_CONTROLS = Pattern(r"(?P<colour>\x1b\[(?:0|1|2|31|32|33)m)|\r(?!\n)|[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

_LONGEST = 80
_SHORT = 64


def one_line(text: str) -> str:
    r"""Return a text that stays on its line: line ends, tabs and other unprintable characters become `\n`, `\t`, `\u009b`.

    For texts of other authors next to ours, such as cells of a table. A printable text is unchanged, including
    backslashes and quotes.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else _ESCAPES.get(ord(one)) or _escaped(ord(one)) for one in text)


def indented(text: str) -> str:
    """Return a text with all lines after the first indented by two spaces, so that none of them looks like a line of ours."""
    return "\n  ".join(text.split("\n")) if "\n" in text else text


def reason_of(error: Exception) -> str:
    """Return the text of a system or library error without its number: `No such file or directory`."""
    return getattr(error, "strerror", None) or str(error)


def quoted(text: object) -> str:
    """Return a text in double quotes; quotes, backslashes and unprintable characters are escaped."""
    escaped = str(text).translate(_ESCAPES)
    if escaped.isprintable():
        return f'"{escaped}"'
    return '"' + "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped) + '"'


def short(text: str) -> str:
    """Return at most 64 characters of unchecked text: it ends up in terminals and logs of people with more permissions than its author."""
    return text if len(text) <= _SHORT else f"{text[: _SHORT - 1]}…"


def printable(text: str) -> str:
    r"""Return a text that can be written as UTF-8. A byte of a name that is not UTF-8 becomes `\xe9`, as systemd and shells write it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors=ESCAPING).decode()
    return text


def without_controls(text: str) -> str:
    r"""Return a text that a terminal only displays: control characters except tabs and line ends become `\u001b`, as in JSON."""
    if text.replace("\n", "").replace("\t", "").isprintable():  # true for most texts, without importing `re`
        return text
    return _CONTROLS.sub(_shown_control, text)


def _shown_control(found: re.Match[str]) -> str:
    return found[0] if found["colour"] else f"\\u{ord(found[0]):04x}"


def each_text(value: object, change: Callable[[str], str], *, keys: bool = False) -> object:
    """Return a JSON value with each of its texts changed; keys are changed only with `keys`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(name) if keys else name: each_text(part, change, keys=keys) for name, part in value.items()}
    return [each_text(part, change, keys=keys) for part in value] if isinstance(value, list | tuple) else value


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_escaped(ord(one)) for one in error.object[error.start : error.end]), error.end


def _escaped(number: int) -> str:
    if 0xDC80 <= number <= 0xDCFF:  # how Python represents a byte that is not UTF-8 (PEP 383)
        return f"\\x{number - 0xDC00:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def shown_url(text: str) -> str:
    """Return the parts of a URL that may be shown: scheme, host, port and path. User and query may be secret; the fragment does not matter.

    Accepts any text, including an invalid URL; a text that is not a URL, such as a path, is returned unchanged.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        return text
    end = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    authority, after = rest[:end], rest[end:]
    if "@" not in authority and "@" in after and not _has_port(authority):
        return f"{scheme}://..."  # a password that contains one of these characters
    path = after.partition("?")[0].partition("#")[0]
    return f"{scheme}://{authority.rpartition('@')[2]}{path}"


def _has_port(authority: str) -> bool:
    """Whether a port follows the host's colon, or there is no colon."""
    _, colon, port = authority.rpartition("]")[2].partition(":")
    return not colon or port.isdigit()


codecs.register_error(ESCAPING, _escape)


def closest(name: str, known: Iterable[str]) -> str:
    """Return the known name closest to an unknown one, or ''."""
    names = list(known)
    folded = {candidate.casefold(): candidate for candidate in names}
    if name.casefold() in folded:
        return folded[name.casefold()]
    import difflib  # slow to import, and needed only for unknown names

    near = difflib.get_close_matches(name[:_LONGEST], names, n=1, cutoff=0.7)
    return near[0] if near else ""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return an addition to a sentence that suggests a known name, or ''."""
    meant = closest(name, known)
    return f'; did you mean "{meant}"?' if meant else ""
