"""Converts the text of a template to tokens, and tokens to constants as in Go. Handles trim markers and comments."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

from kubewright.base.records import dataclass
from kubewright.cli.printers import go_values
from kubewright.cli.printers.go_values import Int, Problem

KEYWORDS: Final = frozenset({"block", "break", "continue", "define", "else", "end", "if", "nil", "range", "template", "with"})
_BLANKS: Final = " \t\r\n"
_AFTER_NAME: Final = frozenset(" \t\r\n.,|:)(")
_NUMBER: Final = re.compile(
    r"[+-]?(?:0[xX][0-9a-fA-F_]*(?:\.[0-9a-fA-F_]*)?(?:[pP][+-]?[0-9]+)?|0[bBoO][0-9_]*|[0-9_]*(?:\.[0-9_]*)?(?:[eE][+-]?[0-9_]*)?)"
)
_NAME: Final = re.compile(r"[^\W]*")
_QUOTED: Final = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')
_RAW: Final = re.compile(r"`[^`]*`")
_CHARACTER: Final = re.compile(r"'(?:[^'\\\n]|\\[^\n])+'")


@dataclass(frozen=True)
class Token:
    """`kind` is text, open, close, space, name, keyword, bool, field, variable, dot, number, string, raw, character, or the sign itself."""

    kind: str
    text: str
    line: int


def tokens(template: str) -> Iterator[Token]:
    """Yield the tokens of a template. Raises Problem with the line."""
    at, trim = 0, False
    while True:
        begin = template.find("{{", at)
        text = template[at:] if begin < 0 else template[at:begin]
        text = text.lstrip(_BLANKS) if trim else text
        if begin >= 0 and _trims_left(template, begin):
            text = text.rstrip(_BLANKS)
        if text:
            yield Token("text", text, _line(template, at))
        if begin < 0:
            return
        inside = begin + (4 if _trims_left(template, begin) else 2)
        if template.startswith("/*", inside):
            at, trim = _comment_end(template, inside)
            continue
        yield Token("open", "{{", _line(template, begin))
        lexer = _Action(template, inside)
        yield from lexer.tokens()
        at, trim = lexer.position, lexer.trims


def _trims_left(template: str, begin: int) -> bool:
    return template[begin + 2 : begin + 3] == "-" and template[begin + 3 : begin + 4] in tuple(_BLANKS)


def _trims_right(template: str, at: int) -> bool:
    return template[at : at + 1] in tuple(_BLANKS) and template.startswith("-}}", at + 1)


def _line(template: str, at: int) -> int:
    return template.count("\n", 0, at) + 1


def _comment_end(template: str, at: int) -> tuple[int, bool]:
    end = template.find("*/", at)
    if end < 0:
        raise Problem(f"template: output:{_line(template, at)}: unclosed comment")
    if template.startswith("}}", end + 2):
        return end + 4, False
    if _trims_right(template, end + 2):
        return end + 6, True
    raise Problem(f"template: output:{_line(template, at)}: comment ends before closing delimiter")


class _Action:
    """Tokenizes the text between two pairs of braces."""

    def __init__(self, template: str, position: int) -> None:
        self._text = template
        self.position = position
        self.trims = False
        self._open = 0

    def tokens(self) -> Iterator[Token]:
        """Yield tokens up to and including the closing braces; `position` is then after them."""
        while True:
            at = self.position
            if _trims_right(self._text, at) or self._text.startswith("}}", at):
                self.trims = not self._text.startswith("}}", at)
                if self._open:
                    raise self._problem("unclosed left paren")
                self.position += 4 if self.trims else 2
                yield Token("close", "}}", _line(self._text, at))
                return
            yield self._token(at)

    def _problem(self, what: str) -> Problem:
        return Problem(f"template: output:{_line(self._text, self.position)}: {what}")

    def _make(self, kind: str, end: int) -> Token:
        at, self.position = self.position, end
        return Token(kind, self._text[at:end], _line(self._text, at))

    def _token(self, at: int) -> Token:
        char = self._text[at : at + 1]
        if not char:
            raise self._problem("unclosed action")
        if char in _BLANKS:
            return self._space(at)
        if self._text.startswith(":=", at):
            return self._make(":=", at + 2)
        if char in "=|,":
            return self._make(char, at + 1)
        if char in "()":
            return self._parenthesis(char, at)
        if char in "\"`'":
            return self._quoted(char, at)
        if char == "." and not self._text[at + 1 : at + 2].isdecimal():
            return self._named("field", at)
        if char == "$":
            return self._named("variable", at)
        if char in "+-." or char.isdecimal():
            return self._number(at)
        if char == "_" or char.isalpha():
            return self._name(at)
        shown = f" '{char}'" if char.isprintable() else ""
        raise self._problem(f"unrecognized character in action: U+{ord(char):04X}{shown}")

    def _space(self, at: int) -> Token:
        end = at
        while self._text[end : end + 1] in tuple(_BLANKS) and not _trims_right(self._text, end):
            end += 1
        return self._make("space", end)

    def _parenthesis(self, char: str, at: int) -> Token:
        self._open += 1 if char == "(" else -1
        if self._open < 0:
            raise self._problem("unexpected right paren")
        return self._make(char, at + 1)

    def _quoted(self, mark: str, at: int) -> Token:
        pattern, kind, what = {
            '"': (_QUOTED, "string", "quoted string"),
            "`": (_RAW, "raw", "raw quoted string"),
            "'": (_CHARACTER, "character", "character constant"),
        }[mark]
        found = pattern.match(self._text, at)
        if not found:
            raise self._problem(f"unterminated {what}")
        return self._make(kind, found.end())

    def _named(self, kind: str, at: int) -> Token:
        """Parse `.`, `.name`, `$` or `$name`."""
        end = self._name_end(at + 1)
        if end == at + 1 and kind == "field":
            return self._make("dot", end)
        return self._make(kind, end)

    def _name_end(self, at: int) -> int:
        found = _NAME.match(self._text, at)
        end = found.end() if found else at
        char = self._text[end : end + 1]
        if char and char not in _AFTER_NAME and not self._text.startswith("}}", end):
            shown = f" '{char}'" if char.isprintable() else ""
            raise self._problem(f"bad character U+{ord(char):04X}{shown}")
        return end

    def _number(self, at: int) -> Token:
        found = _NUMBER.match(self._text, at)
        end = found.end() if found else at
        following = self._text[end : end + 1]
        if end == at or following == "_" or following.isalnum():
            raise self._problem(f'bad number syntax: "{self._text[at : end + 1]}"')
        return self._make("number", end)

    def _name(self, at: int) -> Token:
        end = self._name_end(at)
        word = self._text[at:end]
        return self._make("keyword" if word in KEYWORDS else "bool" if word in {"true", "false"} else "name", end)


_OCTAL: Final = re.compile(r"[+-]?0[0-7_]+")
_INT64: Final = 1 << 63


def number(text: str) -> object:
    """Return an Int, or a float if there is a point or an exponent. Raises Problem."""
    digits = text.replace("_", "")
    try:
        if _OCTAL.fullmatch(digits):
            return _checked(int(digits, 8))
        if re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO][0-7]+|[0-9]+)", digits):
            return _checked(int(digits, 0))
        return _finite(float.fromhex(digits) if "x" in digits.lower() else float(digits))
    except (ValueError, OverflowError) as error:
        raise Problem(f'bad number syntax: "{text}"') from error


def _checked(value: int) -> Int:
    if not -_INT64 <= value < _INT64:
        raise OverflowError
    return Int(value)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise OverflowError
    return value


def character(text: str) -> Int:
    """Return the code of a character in single quotes. Raises Problem."""
    inside = go_values.unquote(text)
    if len(inside) != 1:
        raise Problem(f"malformed character constant: {text}")
    return Int(ord(inside))


def string(text: str) -> str:
    """Return the value of a text in double quotes or backquotes. Raises Problem."""
    return text[1:-1].replace("\r", "") if text.startswith("`") else go_values.unquote(text)


def parse(kind: str, text: str) -> object:
    """Return the value of a token of kind number, character, string, raw or bool. Raises Problem."""
    if kind == "bool":
        return text == "true"
    return {"number": number, "character": character, "string": string, "raw": string}[kind](text)
