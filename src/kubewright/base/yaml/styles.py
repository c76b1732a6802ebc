"""The form in which goyaml v2 writes a string: style, folding and escapes (its `encode.go` and `emitterc.go`)."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterator
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.yaml.scalars import reads_as_text

WIDTH: Final = 80
"""A space after this column becomes a line break."""

MAX_SIMPLE_KEY: Final = 128
"""Keys of more bytes are written in the long form, with `? `."""

_BREAKS: Final = "\n\r\x85\u2028\u2029"
_SPECIAL_ASCII: Final = Pattern("[^\n\x20-\x7e]")
_SPECIAL: Final = "[^\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd]"
_SIMPLE: Final = Pattern(r"(?:--)?[A-Za-z/](?:[A-Za-z0-9_./=,+-]|:(?=[A-Za-z0-9/]))*")
"""Most strings in our documents match this: they need no quotes unless they are words with a meaning in YAML."""
_BREAK: Final = Pattern(f"[{_BREAKS}]")
_EDGE: Final = Pattern(rf"\A[ {_BREAKS}]|[ {_BREAKS}]\Z")
_BREAK_SPACE: Final = Pattern(f"[{_BREAKS}] ")
_SPACE_BREAK: Final = Pattern(f" [{_BREAKS}]")
_INDICATORS: Final = Pattern(r"\A(?:---|\.\.\.)|\A[#,\[\]{}&*!|>'\"%@`]|\A[?:-](?:[ \t]|\Z)|:(?:[ \t]|\Z)" + f"|[ \t\0{_BREAKS}]#")
_TO_ESCAPE_ASCII: Final = Pattern(r'[^\x20-\x7e]|["\\]')
_TO_ESCAPE: Final = f'{_SPECIAL}|[{_BREAKS}"\\\\]'
_SHORT_ESCAPES: Final = dict(
    zip('\0\a\b\t\n\v\f\r\x1b"\\\x85\xa0\u2028\u2029', '0abtnvfre"\\N_LP', strict=True),
)


class Style(enum.Enum):
    """The styles that goyaml uses for strings."""

    PLAIN = enum.auto()
    SINGLE = enum.auto()
    DOUBLE = enum.auto()
    LITERAL = enum.auto()


def is_simple_key(text: str) -> bool:
    """Return whether a key is written before a colon on one line."""
    return len(text.encode(errors="surrogatepass")) <= MAX_SIMPLE_KEY and _BREAK.search(text) is None


def choose(text: str, *, key: bool = False) -> Style:
    """Return the style of a string; `key` is True for keys in the simple form."""
    if _SIMPLE.fullmatch(text):
        return Style.PLAIN if text.startswith("--") or reads_as_text(text) else Style.DOUBLE
    special = _find_special(text) is not None or _SPACE_BREAK.search(text) is not None
    if "\n" in text:
        return Style.DOUBLE if key or special or text.endswith(" ") else Style.LITERAL
    if not reads_as_text(text):
        return Style.DOUBLE
    if special or _BREAK_SPACE.search(text):
        return Style.DOUBLE
    return Style.SINGLE if _EDGE.search(text) or _BREAK.search(text) or _INDICATORS.search(text) else Style.PLAIN


def _find_special(text: str) -> re.Match[str] | None:
    return (_SPECIAL_ASCII if text.isascii() else _beyond_ascii(_SPECIAL)).search(text)


@functools.cache
def _beyond_ascii(pattern: str) -> re.Pattern[str]:
    """Compile a pattern when the first text needs it: a character class of this size takes 10 ms, and most documents are ASCII."""
    return re.compile(pattern)


class Folder:
    """Builds the text of one scalar that may be folded. Counts columns in characters, not in cells, as the emitter does."""

    def __init__(self, *, column: int, indent: int, folding: bool) -> None:
        self._parts: list[str] = []
        self._column = column
        self._indent = indent
        self._folding = folding

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._parts)

    @property
    def past_width(self) -> bool:
        """Whether a space here would become a line break."""
        return self._folding and self._column > WIDTH

    def put(self, text: str) -> None:
        """Add text without a line break."""
        self._parts.append(text)
        self._column += len(text)

    def break_line(self, mark: str = "\n") -> None:
        """Start a new line, without indentation."""
        self._parts.append(mark)
        self._column = 0

    def indent(self) -> None:
        """Indent a new line."""
        self.put(" " * self._indent)

    def fold(self) -> None:
        """Write a line break instead of a space."""
        self.break_line()
        self.indent()


def plain(text: str, out: Folder) -> None:
    """Write an unquoted scalar."""
    words = text.split(" ")
    for index, word in enumerate(words):
        if index:
            _blank(out, foldable=bool(words[index - 1] and word))
        out.put(word)


def single(text: str, out: Folder) -> None:
    """Write a single-quoted scalar. It contains no newline, but may contain other line breaks of Unicode."""
    out.put("'")
    broken = False
    for index, char in enumerate(text):
        if char in _BREAKS:
            out.break_line(char)
            broken = True
            continue
        if broken and char != " ":
            out.indent()
        if char == " ":
            inner = 0 < index < len(text) - 1
            _blank(out, foldable=inner and text[index - 1] != " " and text[index + 1] != " ")
        else:
            out.put("''" if char == "'" else char)
            broken = False
    out.put("'")


def double(text: str, out: Folder) -> None:
    """Write a double-quoted scalar with escapes."""
    out.put('"')
    words = text.split(" ")
    for index, word in enumerate(words):
        if index:
            _double_blank(out, words, index)
        out.put((_TO_ESCAPE_ASCII if word.isascii() else _beyond_ascii(_TO_ESCAPE)).sub(_escape, word))
    out.put('"')


def _blank(out: Folder, *, foldable: bool) -> None:
    if foldable and out.past_width:
        out.fold()
    else:
        out.put(" ")


def _double_blank(out: Folder, words: list[str], index: int) -> None:
    """Write the space before a word. A fold before another space needs a backslash, or that space would be lost."""
    at_edge = (index == 1 and not words[0]) or (index == len(words) - 1 and not words[-1])
    if out.past_width and words[index - 1] and not at_edge:
        out.fold()
        if not words[index]:
            out.put("\\")
    else:
        out.put(" ")


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    if char in _SHORT_ESCAPES:
        return "\\" + _SHORT_ESCAPES[char]
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02X}"
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def literal(text: str, *, indent: int) -> Iterator[str]:
    """Yield the parts of a block scalar, header line first."""
    yield "|" + ("2" if text[0] == " " or text[0] in _BREAKS else "") + _chomping(text) + "\n"
    fresh = True
    for part in re.split(f"([{_BREAKS}])", text):
        if not part:
            continue
        if part in _BREAKS:
            fresh = True
            yield part
        else:
            yield (" " * indent if fresh else "") + part
            fresh = False


def _chomping(text: str) -> str:
    if text[-1] not in _BREAKS:
        return "-"
    return "+" if len(text) == 1 or text[-2] in _BREAKS else ""
