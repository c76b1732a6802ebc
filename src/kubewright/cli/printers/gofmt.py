"""Go's `fmt`: Sprint and Sprintf for the values of templates.

Mistakes in a format become text, as in Go: `%!d(string=x)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Final

from kubewright.cli.printers import go_values
from kubewright.cli.printers.go_values import MISSING
from kubewright.manifests.kubelet import go_quoted

_DIRECTIVE: Final = re.compile(r"%([-+# 0]*)(\*|[0-9]{1,300})?(?:\.(\*|[0-9]{0,300}))?(.?)", re.DOTALL)
_WIDEST: Final = 10_000
_UINT64: Final = (1 << 64) - 1
_INTEGER_VERBS: Final = {"d": "d", "b": "b", "o": "o", "x": "x", "X": "X"}


def value_text(value: object) -> str:
    """Format one value as Print does."""
    return go_values.text(value)


def sprint(arguments: Sequence[object]) -> str:
    """Format values one after the other, with a space between two that are not texts."""
    out = ""
    for place, argument in enumerate(arguments):
        if place and not isinstance(argument, str) and not isinstance(arguments[place - 1], str):
            out += " "
        out += value_text(argument)
    return out


def sprintf(format: str, arguments: Sequence[object]) -> str:
    """Format values: %v %s %q %d %b %o %x %X %c %U %t %f %F %e %g %T %%, with flags, width and precision."""
    writer = _Writer(arguments)
    out = _DIRECTIVE.sub(writer.directive, format)
    return out + writer.surplus()


class _Writer:
    def __init__(self, arguments: Sequence[object]) -> None:
        self._left = list(arguments)

    def surplus(self) -> str:
        """Report arguments without a directive."""
        if not self._left:
            return ""
        return f"%!(EXTRA {', '.join(_typed(argument) for argument in self._left)})"

    def directive(self, found: re.Match[str]) -> str:
        """Format one directive."""
        flags, width, precision, verb = found.groups()
        note = ""
        if width == "*":
            number, note = self._number("%!(BADWIDTH)")
            flags, width = (flags + "-", -number) if number is not None and number < 0 else (flags, number)
        if precision == "*":
            number, bad = self._number("%!(BADPREC)")
            if number is not None and number < 0:
                number, bad = None, "%!(BADPREC)"
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
    if verb == "v" and "#" in flags:
        return _filled(syntax(value), flags, width, number=False)
    if isinstance(value, list) and verb != "T":
        return f"[{' '.join(_padded(item, verb, flags, width, precision) for item in value)}]"
    if isinstance(value, dict) and verb != "T":
        pairs = ((_padded(key, verb, flags, width, precision), _padded(value[key], verb, flags, width, precision)) for key in sorted(value))
        return f"map[{' '.join(f'{key}:{part}' for key, part in pairs)}]"
    precision, width = None if precision is None else min(precision, _WIDEST), min(width, _WIDEST)
    text = _one(value, verb, flags.replace("+", "") if verb == "v" else flags, precision)
    if text is None:
        return f"%!{verb}({_wrong(value, flags, width, precision)})"
    return text if text.startswith("%!") else _filled(text, flags, width, number=not isinstance(value, str))


def _filled(text: str, flags: str, width: int, *, number: bool) -> str:
    if "-" in flags:
        return text.ljust(width)
    if "0" not in flags:
        return text.rjust(width)
    sign = text[:1] if number and text[:1] in {"-", "+"} else ""
    return sign + text[len(sign) :].rjust(width - len(sign), "0")


def _wrong(value: object, flags: str, width: int, precision: int | None) -> str:
    """Return the text in the parentheses of an unsuitable directive: the type, and the value with the directive's flags."""
    shown = _one(value, "v", flags, precision) or ""
    return f"{go_values.type_name(value)}={_filled(shown, flags, width, number=not isinstance(value, str))}"


def syntax(value: object) -> str:
    """Format a value in Go's source syntax (`%#v`)."""
    if isinstance(value, str):
        return go_quoted(value)
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(_inner_syntax(part) for part in value)}}}"
    if isinstance(value, dict):
        parts = (f"{go_quoted(key)}:{_inner_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{', '.join(parts)}}}"
    return f"0x{value:x}" if isinstance(value, go_values.Byte) else go_values.text(value)


def _inner_syntax(value: object) -> str:
    return "interface {}(nil)" if value is None else syntax(value)


def _one(value: object, verb: str, flags: str, precision: int | None) -> str | None:
    """Format one value; None if the verb is not for its type."""
    if verb == "T":
        return go_values.type_name(value)
    if value is None or value is MISSING:
        return "<nil>" if verb == "v" else f"%!{verb}(<nil>)"
    if isinstance(value, bool):
        return go_values.text(value) if verb in "vt" else None
    if isinstance(value, int):
        return _integer(value, verb, flags, precision)
    if isinstance(value, float):
        return _float(value, verb, flags, precision)
    return _string(value, verb, flags, precision) if isinstance(value, str) else None


def _typed(value: object) -> str:
    return "<nil>" if value is None or value is MISSING else f"{go_values.type_name(value)}={go_values.text(value)}"


def _signed(text: str, flags: str) -> str:
    if text.startswith("-"):
        return text
    return f"+{text}" if "+" in flags else f" {text}" if " " in flags else text


def _integer(value: int, verb: str, flags: str, precision: int | None) -> str | None:
    if verb in "cqU":
        valid = 0 <= value <= 0x10FFFF and not 0xD800 <= value <= 0xDFFF
        char = chr(value) if valid else "\ufffd"
        if verb == "U":
            shown = f" '{char}'" if "#" in flags and char.isprintable() else ""
            return f"U+{value & _UINT64:04X}{shown}"
        return char if verb == "c" else "'" + _quoted(char, flags)[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
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
            return _signed(go_values.text(value), flags).replace("e", "E" if verb == "G" else "e")
        return _signed(format(value, f".{precision or 1}{'G' if verb == 'G' else 'g'}"), flags)
    if verb in "bxX" and math.isfinite(value):
        return _signed(_binary(value) if verb == "b" else _hexadecimal(value, upper=verb == "X"), flags)
    if verb not in "feEF":
        return None
    return _signed(format(value, f".{6 if precision is None else precision}{verb}"), flags)


def _hexadecimal(value: float, *, upper: bool) -> str:
    """Format a float in hexadecimal digits, without trailing zeros, and with an exponent of at least two digits."""
    digits, _, exponent = value.hex().partition("p")
    digits = digits.rstrip("0").rstrip(".") if "." in digits else digits
    text = f"{digits}p{exponent[0]}{exponent[1:]:0>2}"
    return text.upper() if upper else text


def _binary(value: float) -> str:
    """Format a float as a whole number and a power of two."""
    mantissa, exponent = math.frexp(value)
    return f"{int(mantissa * 2**53)}p{exponent - 53:+d}"


def _string(value: str, verb: str, flags: str, precision: int | None) -> str | None:
    if verb in "xX":
        shown = value.encode(errors="surrogatepass")[:precision].hex()
        shown = f"0x{shown}" if shown and "#" in flags else shown
        return shown.upper() if verb == "X" else shown
    cut = value if precision is None else value[:precision]
    if verb == "q":
        return f"`{cut}`" if "#" in flags and "`" not in cut and cut.isprintable() else _quoted(cut, flags)
    return cut if verb in "vs" else None


def _quoted(text: str, flags: str) -> str:
    """Quote as `%q`; with a plus, in ASCII only."""
    quoted = go_quoted(text)
    if "+" not in flags:
        return quoted
    return "".join(char if char.isascii() else f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}" for char in quoted)
