"""Parses a command line like pflag, which kubeadm v1.36 uses: the words after a command become values of its flags, and arguments.

Flags and arguments may be mixed; a bare boolean means true and accepts a value only with `=`; list flags may be
repeated and contain commas; `-v5`, `-v=5` and `-v 5` are the same, and `-fy` is `-f -y`; no abbreviations; `--` ends
the flags. Values follow Go's rules for each kind of flag. An error is raised for the first wrong word, with pflag's and
Go's messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kubewright.base.errors import UsageError
from kubewright.base.records import dataclass, field
from kubewright.cli.rows.model import BOOL, DURATION, INT, INT32, LEVEL, LIST, MODULES, PAIRS, Flag

_TRUE = {"1", "t", "T", "true", "TRUE", "True"}
_FALSE = {"0", "f", "F", "false", "FALSE", "False"}
_BITS = {INT: 64, INT32: 32, LEVEL: 32}


def read_value(flag: Flag, text: str, *, before: object = None) -> object:
    """Return the parsed value. `before` is the flag's earlier value on the command line; lists are appended to it.

    Raises UsageError, naming the flag as pflag does.
    """
    try:
        value = _read(flag, text)
    except ValueError as error:
        raise _invalid(flag, text, str(error), _REMEDIES.get(flag.kind, "")) from None
    return (*before, *value) if isinstance(value, tuple) and isinstance(before, tuple) else value


def check_choice(flag: Flag, text: str) -> None:
    """Refuse a text that is not one of the flag's choices. Raises UsageError."""
    if text not in flag.choices:
        raise _invalid(flag, text, "not one of its values", f"choose one of {', '.join(filter(None, flag.choices))}")


def _invalid(flag: Flag, text: str, reason: str, remedy: str) -> UsageError:
    shown = f"-{flag.short}, --{flag.name}" if flag.short else f"--{flag.name}"
    return UsageError(f'invalid argument {quoted(text)} for "{shown}" flag: {reason}', remedy=remedy)


def quoted(text: str) -> str:
    """Return the text in double quotes, as Go's %q does for typical input."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t") + '"'


_REMEDIES = {
    BOOL: "write true or false",
    INT: "write a whole number",
    INT32: "write a whole number",
    LEVEL: "write a whole number",
    DURATION: "write a duration like 90s, 2m or 1h30m",
    MODULES: "write pattern=N,…",
    PAIRS: "write name=value,…",
    LIST: "separate the items by commas",
}


def _read(flag: Flag, text: str) -> object:
    if flag.kind == BOOL:
        return _boolean(text)
    if flag.kind in _BITS:
        return integer(text, bits=_BITS[flag.kind], decimal=flag.kind == LEVEL)
    if flag.kind == LIST:
        return items(text)
    if flag.kind == PAIRS:
        return _pairs(text)
    if flag.kind == DURATION:
        return _duration(text)
    if flag.kind == MODULES:
        return _modules(text)
    return text


def _boolean(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"{quoted(text)} is neither true nor false")


def integer(text: str, *, bits: int, decimal: bool = False) -> int:
    """Parse an integer as strconv.ParseInt does: unless `decimal`, also 0x10, 0o10, 010, 0b1 and 1_000.

    Raises ValueError.
    """
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567_":
        digits = f"0o{digits[1:].removeprefix('_')}" if not decimal else digits.lstrip("0") or "0"
    if not digits.isascii() or not digits[:1].isdigit() or (decimal and not digits.isdigit()) or len(digits) > 100:
        raise ValueError(f"{quoted(text)} is not a whole number")
    try:
        value = int(digits, 0) * (-1 if text[0] == "-" else 1)
    except ValueError:
        raise ValueError(f"{quoted(text)} is not a whole number") from None
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{quoted(text)} is too large or too small")
    return value


def items(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list: one line of CSV, in which items may be quoted.

    An empty text has no items. Raises ValueError.
    """
    if '"' not in text:
        return tuple(text.split(",")) if text else ()
    found, position = [], 0
    while True:
        item, position = _item(text, position)
        found.append(item)
        if position >= len(text):
            return tuple(found)
        position += 1


def _item(text: str, start: int) -> tuple[str, int]:
    """Return the item that starts here, and the position of the comma after it."""
    if text[start : start + 1] != '"':
        end = text.find(",", start)
        end = len(text) if end < 0 else end
        if '"' in text[start:end]:
            raise ValueError(f'parse error on line 1, column {text.index(chr(34), start) + 1}: bare " in non-quoted-field')
        return text[start:end], end
    end = start + 1
    while text[end : end + 1] != '"' or text[end + 1 : end + 2] == '"':
        if end >= len(text):
            raise ValueError(f'parse error on line 1, column {len(text) + 1}: extraneous or missing " in quoted-field')
        end += 2 if text[end] == '"' else 1
    if text[end + 1 : end + 2] not in {"", ","}:
        raise ValueError(f'parse error on line 1, column {end + 1}: extraneous or missing " in quoted-field')
    return text[start + 1 : end].replace('""', '"'), end + 1


def _pairs(text: str) -> tuple[str, ...]:
    pairs = tuple(text.split(","))
    if any(pair.count("=") != 1 for pair in pairs):
        raise ValueError(f"malformed key=value pair in flag value: {text}")
    return pairs


def _duration(text: str) -> str:
    from kubewright.base.durations import Duration

    try:
        Duration.parse(text)
    except ValueError:
        missing = text.lstrip("+-").replace(".", "", 1).isdigit()
        raise ValueError(f"time: {'missing unit in' if missing else 'invalid'} duration {quoted(text)}") from None
    return text


def _modules(text: str) -> str:
    """Validate klog's `pattern=N,…`. Empty parts are skipped, a level of 0 turns a pattern off."""
    for part in filter(None, text.split(",")):
        pattern, _, level = part.partition("=")
        try:
            found = integer(level, bits=32, decimal=True) if pattern else None
        except ValueError:
            found = None
        if found is None:
            raise ValueError("syntax error: expect comma-separated list of filename=N")
        if found < 0:
            raise ValueError("negative value for vmodule level")
    return text


_Remedy = Callable[[str, Callable[[str, Sequence[Flag]], str]], str]


@dataclass(eq=False)
class Scanned:
    """A parsed command line: the values of the given flags, by name, and the arguments.

    `notices` are about deprecated flags.
    """

    values: dict[str, object] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def take(self, flag: Flag, text: str) -> None:
        """Parse the text as the flag's value. Raises UsageError."""
        self.values[flag.name] = read_value(flag, text, before=self.values.get(flag.name))
        if flag.deprecated:
            self.notices.append(f"Flag --{flag.name} has been deprecated, {flag.deprecated}")


def scan(words: Sequence[str], flags: Sequence[Flag], *, see: str, gone: Callable[[str], str] = lambda _: "") -> Scanned:
    """Parse all words. `gone` explains a removed flag, or returns ''; `see` is the default remedy.

    Raises UsageError.
    """
    found = Scanned()

    def remedy(name: str, close: Callable[[str, Sequence[Flag]], str]) -> str:
        return gone(name) or close(name, flags) or see

    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            found.arguments += left
            break
        if not word.startswith("-") or word == "-":
            found.arguments.append(word)
        elif word.startswith("--"):
            _long(word, left, flags, found, remedy=remedy)
        else:
            _short(word[1:], left, flags, found, remedy=remedy)
    return found


def takes_next(word: str, flags: Sequence[Flag]) -> bool:
    """Return whether the next word belongs to this one, as cobra decides while it looks for the sub-command: also after unknown flags."""
    if "=" in word or (not word.startswith("--") and len(word) != 2):
        return False
    flag = named(word[2:], flags) if word.startswith("--") else _lettered(word[1:], flags)
    return flag is None or flag.kind != BOOL


def named(name: str, flags: Sequence[Flag]) -> Flag | None:
    """Return the flag with a long name."""
    return next((flag for flag in flags if flag.name == name), None)


def _lettered(letter: str, flags: Sequence[Flag]) -> Flag | None:
    return next((flag for flag in flags if flag.short == letter), None)


def _long(word: str, left: list[str], flags: Sequence[Flag], found: Scanned, *, remedy: _Remedy) -> None:
    name, equals, text = word[2:].partition("=")
    if not name or name.startswith("-"):
        raise UsageError(f"bad flag syntax: {word}", remedy="write flags as --name or --name=VALUE")
    flag = named(name, flags)
    if flag is None:
        raise UsageError(f"unknown flag: --{name}", remedy=remedy(name, _close))
    if not equals:
        if flag.kind != BOOL and not left:
            raise UsageError(f"flag needs an argument: {word}", remedy=f"write it as --{name}=VALUE or --{name} VALUE")
        text = "true" if flag.kind == BOOL else left.pop(0)
    found.take(flag, text)


def _short(letters: str, left: list[str], flags: Sequence[Flag], found: Scanned, *, remedy: _Remedy) -> None:
    while letters:
        flag = _lettered(letters[0], flags)
        if flag is None:
            raise UsageError(f"unknown shorthand flag: '{letters[0]}' in -{letters}", remedy=remedy(letters, _doubled))
        if len(letters) > 2 and letters[1] == "=":
            found.take(flag, letters[2:])
            return
        if flag.kind == BOOL:
            found.take(flag, "true")
            letters = letters[1:]
            continue
        if len(letters) == 1 and not left:
            raise UsageError(f"flag needs an argument: '{letters}' in -{letters}", remedy=f"write it as -{letters} VALUE")
        found.take(flag, letters[1:] or left.pop(0))
        return


def _close(name: str, flags: Sequence[Flag]) -> str:
    import difflib

    close = difflib.get_close_matches(name.replace("_", "-"), [flag.name for flag in flags if not flag.hidden], n=1)
    return f'did you mean "--{close[0]}"?' if close else ""


def _doubled(letters: str, flags: Sequence[Flag]) -> str:
    """Suggest `--config` for `-config`."""
    name = letters.partition("=")[0]
    return f'did you mean "--{name}"?' if len(name) > 1 and named(name, flags) else ""
