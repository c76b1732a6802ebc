"""Go's `fmt`: Sprint and Sprintf for the values of templates. Mistakes in a format become text, as there: `%!d(string=x)`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from kubewright.cli.printers import gotypes
from kubewright.cli.printers.gotypes import MISSING
from kubewright.manifests.kubelet import go_quoted

_DIRECTIVE: Final = re.compile(r"%([-+# 0]*)(\*|[0-9]+)?(?:\.(\*|[0-9]*))?(.?)", re.DOTALL)
_WIDEST: Final = 10_000
_INTEGER_VERBS: Final = {"d": "d", "b": "b", "o": "o", "x": "x", "X": "X"}


def value_text(value: object) -> str:
    """Write one value as Print does."""
    return gotypes.text(value)


def sprint(arguments: Sequence[object]) -> str:
    """Write values one after the other, with a blank between two that are no texts."""
    out = ""
    for place, argument in enumerate(arguments):
        if place and not isinstance(argument, str) and not isinstance(arguments[place - 1], str):
            out += " "
        out += value_text(argument)
    return out


def sprintf(format: str, arguments: Sequence[object]) -> str:
    """Write values by a format: %v %s %q %d %b %o %x %X %c %U %t %f %F %e %g %T %%, with flags, width and precision."""
    writer = _Writer(arguments)
    out = _DIRECTIVE.sub(writer.directive, format)
    return out + writer.surplus()


class _Writer:
    def __init__(self, arguments: Sequence[object]) -> None:
        self._left = list(arguments)

    def surplus(self) -> str:
        """Tell arguments that no directive asked for."""
        if not self._left:
            return ""
        return f"%!(EXTRA {', '.join(_typed(argument) for argument in self._left)})"

    def directive(self, found: re.Match[str]) -> str:
        """Write one directive."""
        flags, width, precision, verb = found.groups()
        note = ""
        if width == "*":
            number, note = self._number("%!(BADWIDTH)")
            flags, width = (flags + "-", -number) if number is not None and number < 0 else (flags, number)
        if precision == "*":
            number, bad = self._number("%!(BADPREC)")
            precision, note = number, note + bad
        if not verb:
            return note + "%!(NOVERB)"
        if verb == "%":
            return note + "%"
        if not self._left:
            return f"{note}%!{verb}(MISSING)"
        places = None if precision is None else int(precision or 0)
        return note + _padded(self._left.pop(0), verb, flags, int(width or 0), places)

    def _number(self, otherwise: str) -> tuple[int | None, str]:
        value = self._left.pop(0) if self._left else None
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1_000_000
        return (value, "") if fits and isinstance(value, int) else (None, otherwise)


def _padded(value: object, verb: str, flags: str, width: int, precision: int | None) -> str:
    if isinstance(value, list) and verb not in "Tp":
        return f"[{' '.join(_padded(item, verb, flags, width, precision) for item in value)}]"
    if isinstance(value, dict) and verb not in "Tp":
        pairs = ((_padded(key, verb, flags, width, precision), _padded(value[key], verb, flags, width, precision)) for key in sorted(value))
        return f"map[{' '.join(f'{key}:{part}' for key, part in pairs)}]"
    text = _one(value, verb, flags, None if precision is None else min(precision, _WIDEST))
    width = min(width, _WIDEST)
    if "-" in flags:
        return text.ljust(width)
    if "0" in flags and not text.startswith("%!"):
        sign = text[:1] if text[:1] in {"-", "+"} and not isinstance(value, str) else ""
        return sign + text[len(sign) :].rjust(width - len(sign), "0")
    return text.rjust(width)


def _one(value: object, verb: str, flags: str, precision: int | None) -> str:
    if verb == "T":
        return gotypes.type_name(value)
    if value is None or value is MISSING:
        return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
    written: str | None = None
    if isinstance(value, bool):
        written = gotypes.text(value) if verb in "vt" else None
    elif isinstance(value, int):
        written = _integer(value, verb, flags, precision)
    elif isinstance(value, float):
        written = _float(value, verb, flags, precision)
    elif isinstance(value, str):
        written = _string(value, verb, flags, precision)
    return f"%!{verb}({_typed(value)})" if written is None else written


def _typed(value: object) -> str:
    return "<nil>" if value is None or value is MISSING else f"{gotypes.type_name(value)}={gotypes.text(value)}"


def _signed(text: str, flags: str) -> str:
    if text.startswith("-"):
        return text
    return f"+{text}" if "+" in flags else f" {text}" if " " in flags else text


def _integer(value: int, verb: str, flags: str, precision: int | None) -> str | None:
    if verb in "cqU":
        valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF
        char = chr(value) if valid else "\ufffd"
        if verb == "U":
            return f"U+{value:04X}" if value >= 0 else None
        return char if verb == "c" else "'" + go_quoted(char)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    code = _INTEGER_VERBS.get("d" if verb == "v" else verb)
    if code is None:
        return None
    digits = format(abs(value), code)
    digits = digits.rjust(precision, "0") if precision else digits
    prefix = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}.get(verb, "") if "#" in flags else ""
    return _signed(f"{'-' if value < 0 else ''}{prefix}{digits}", flags)


def _float(value: float, verb: str, flags: str, precision: int | None) -> str | None:
    if verb in "vgG":
        if precision is None:
            return _signed(gotypes.text(value), flags).replace("e", "E" if verb == "G" else "e")
        return _signed(format(value, f".{precision or 1}{'G' if verb == 'G' else 'g'}"), flags)
    if verb not in "feEF":
        return None
    return _signed(format(value, f".{6 if precision is None else precision}{verb}"), flags)


def _string(value: str, verb: str, flags: str, precision: int | None) -> str | None:
    if verb in "xX":
        shown = value.encode(errors="surrogatepass")[:precision].hex()
        return shown.upper() if verb == "X" else shown
    cut = value if precision is None else value[:precision]
    if verb == "q":
        return f"`{cut}`" if "#" in flags and "`" not in cut and cut.isprintable() else go_quoted(cut)
    return cut if verb in "vs" else None
