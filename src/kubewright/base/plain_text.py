"""Texts that other programs read line by line or word by word: units, kubeconfigs, the kubelet's configuration, shell commands.

Only this module decides which characters such a text must not contain. All writers pass every value through it, even
if the format could escape it: none of these values needs control characters, and readers disagree on their meaning.
systemd ends a line at NUL and at CR (v252, src/basic/fileio.c, read_line_full), some readers at U+0085, U+2028 and
U+2029.
"""

from __future__ import annotations

from kubewright.base.errors import UnsafeText
from kubewright.base.patterns import Pattern

_UNSAFE = Pattern(r"[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_PLAIN_WORD = Pattern(r"[A-Za-z0-9@%+=:,./_-]+")


def is_one_line(text: str) -> bool:
    """Return whether a text has no control characters, no line or paragraph separators and no halves of surrogate pairs."""
    return text.isprintable() or _UNSAFE.search(text) is None


def one_line(text: str, *, what: str) -> str:
    """Return a text unchanged. Raises UnsafeText, naming `what`, if it would not stay on one line."""
    found = None if text.isprintable() else _UNSAFE.search(text)
    if found is None:
        return text
    raise UnsafeText(  # the text itself may be secret
        f"{what} holds a control character",
        detail=f"U+{ord(found[0]):04X} after {found.start()} characters",
        remedy="remove line ends and other control characters from it",
    )


def require_one_line_each(value: object, *, what: str) -> None:
    """Require that each text and key of a JSON value stays on one line. Raises UnsafeText, naming `what` and the path."""
    if isinstance(value, str):
        one_line(value, what=what)
    elif isinstance(value, dict):
        for name, part in value.items():
            one_line(str(name), what=f"a field's name in {what}")
            require_one_line_each(part, what=f"{what}.{name}")
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            require_one_line_each(part, what=f"{what}[{index}]")


def shell_word(text: str, *, what: str) -> str:
    """Return a text as one word for a POSIX shell, quoted if necessary. Raises UnsafeText, naming `what`."""
    one_line(text, what=what)
    return text if _PLAIN_WORD.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"
