"""DER, one element at a time, as strict and as lenient as Go's encoding/asn1: anything that Go's X.509 accepts must be readable here.

The X.509 library parses whole structures. It refuses some requests that the API server accepts (odd strings, explicit
defaults, unknown kinds of names), and every part of those must be visible.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTF8_STRING: Final = 0x0C
NUMERIC_STRING: Final = 0x12
PRINTABLE_STRING: Final = 0x13
T61_STRING: Final = 0x14
IA5_STRING: Final = 0x16
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31

_HIGH_TAG: Final = 0x1F
_LONGEST_LENGTH: Final = 1 << 23
_LARGEST_ARC: Final = (1 << 31) - 1
_USUAL_IDENTIFIER: Final = 32
"""In bytes. Longer ones, which an attacker may have generated, are not cached."""
_PRINTABLE: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 '()+,-./:=?")
_PRINTABLE_READ: Final = _PRINTABLE | frozenset(b"*&")
"""Go accepts these two in a PrintableString because certificates contain them."""
_NUMERIC: Final = frozenset(b"0123456789 ")


class DERError(ValueError):
    """The bytes are not DER, or not of the expected form."""


class Element(NamedTuple):
    """An element. `identifier` is its first byte: class, form and, unless all five low bits are set, the tag number."""

    identifier: int
    content: bytes
    whole: bytes

    def children(self) -> Iterator[Element]:
        """Yield the elements inside. Raises DERError."""
        return elements(self.content)

    def require(self, identifier: int, what: str) -> Element:
        """Return the element if it is of the expected kind. Raises DERError, naming that kind."""
        if self.identifier != identifier:
            raise DERError(f"{what} begins with {self.identifier:#04x} instead of {identifier:#04x}")
        return self


def elements(data: bytes) -> Iterator[Element]:
    """Yield consecutive elements. Raises DERError."""
    position = 0
    while position < len(data):
        found, position = _element(data, position)
        yield found


def one(data: bytes, what: str) -> Element:
    """Parse one element with nothing after it. Raises DERError."""
    if not data:
        raise DERError(f"{what} is empty")
    found, end = _element(data, 0)
    if end != len(data):
        raise DERError(f"{what} is followed by {len(data) - end} more bytes")
    return found


def _element(data: bytes, start: int) -> tuple[Element, int]:
    try:
        identifier, position = data[start], start + 1
        if identifier & _HIGH_TAG == _HIGH_TAG:
            number, position = _base128(data, position)
            if number < _HIGH_TAG:
                raise DERError("a tag is longer than it needs to be")
        length, position = _length(data, position)
    except IndexError:
        raise DERError("an element is cut off") from None
    end = position + length
    if end > len(data):
        raise DERError("an element is cut off")
    return Element(identifier, data[position:end], data[start:end]), end


def _length(data: bytes, position: int) -> tuple[int, int]:
    first = data[position]
    position += 1
    if first < 0x80:
        return first, position
    if first == 0x80:
        raise DERError("an element of indefinite length")
    length = 0
    for _ in range(first & 0x7F):
        if length >= _LONGEST_LENGTH:
            raise DERError("an element is too long")
        length = length << 8 | data[position]
        position += 1
        if length == 0:
            raise DERError("a length has leading zeros")
    if length < 0x80:
        raise DERError("a length is longer than it needs to be")
    return length, position


def _base128(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for count in range(6):
        byte = data[position]
        position += 1
        if count == 5 or (count == 0 and byte == 0x80):
            break
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            if value > _LARGEST_ARC:
                break
            return value, position
    raise DERError("a number in seven-bit groups is too large, or has leading zeros")


def identifier_text(content: bytes) -> str:
    """Return an object identifier in dotted form. Raises DERError."""
    return _known_identifier(content) if len(content) <= _USUAL_IDENTIFIER else _dotted(content)


def _dotted(content: bytes) -> str:
    if not content:
        raise DERError("an object identifier is empty")
    arcs: list[int] = []
    position = 0
    try:
        while position < len(content):
            value, position = _base128(content, position)
            if arcs:
                arcs.append(value)
            else:  # the first two arcs share a number (X.690, section 8.19.4)
                first = min(value // 40, 2)
                arcs = [first, value - 40 * first]
    except IndexError:
        raise DERError("an object identifier is cut off") from None
    return ".".join(map(str, arcs))


_known_identifier = functools.lru_cache(maxsize=512)(_dotted)


def identifier_content(dotted: str) -> bytes:
    """Return the content of an object identifier; the inverse of `identifier_text`."""
    first, second, *rest = map(int, dotted.split("."))
    return b"".join(_as_base128(value) for value in (first * 40 + second, *rest))


def _as_base128(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))


def require_integer(content: bytes) -> None:
    """Require that the content of an INTEGER is in its shortest form. Raises DERError."""
    if not content or (len(content) > 1 and ((content[0] == 0 and content[1] < 0x80) or (content[0] == 0xFF and content[1] >= 0x80))):
        raise DERError("an integer is empty or longer than it needs to be")


def boolean(content: bytes) -> bool:
    """Read the content of a BOOLEAN. Raises DERError."""
    if content not in {b"\x00", b"\xff"}:
        raise DERError("a boolean is neither true nor false")
    return content == b"\xff"


def bits(content: bytes) -> bytes:
    """Parse the content of a BIT STRING; a partial byte is aligned to the right, as in Go. Raises DERError."""
    if not content:
        raise DERError("a bit string is empty")
    unused, value = content[0], content[1:]
    if unused > 7 or (unused and not value) or (unused and value[-1] & (1 << unused) - 1):
        raise DERError("a bit string has wrong padding")
    return (int.from_bytes(value) >> unused).to_bytes(len(value)) if unused else value


def string(element: Element) -> str | None:
    """Parse a string of a kind that Go parses where any value is allowed; None for other kinds of values.

    Raises DERError.
    """
    read = _STRINGS.get(element.identifier)
    return None if read is None else read(element.content)


def _printable(content: bytes) -> str:
    return _ascii(content, _PRINTABLE_READ, "PrintableString")


def _numeric(content: bytes) -> str:
    return _ascii(content, _NUMERIC, "NumericString")


def _ascii(content: bytes, allowed: frozenset[int], kind: str) -> str:
    if not allowed.issuperset(content):
        raise DERError(f"a {kind} contains a character that is not allowed")
    return content.decode("ascii")


def _encoded(encoding: str, kind: str, content: bytes) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise DERError(f"a {kind} contains a character that is not allowed") from error


def _bmp(content: bytes) -> str:
    content = content.removesuffix(b"\0\0") if len(content) % 2 == 0 else content
    text = _encoded("utf-16-be", "BMPString", content)
    # 0xFFFE, 0xFFFF and 0xFDD0 to 0xFDEF are not characters; characters with surrogate pairs are outside the basic
    # plane.
    if any(ord(mark) > 0xFFFD or (0xFDD0 <= ord(mark) <= 0xFDEF) or unicodedata.category(mark) == "Cs" for mark in text):
        raise DERError("a BMPString contains a character that is not allowed")
    return text


_STRINGS: Final[Mapping[int, Callable[[bytes], str]]] = {
    PRINTABLE_STRING: _printable,
    NUMERIC_STRING: _numeric,
    IA5_STRING: functools.partial(_encoded, "ascii", "IA5String"),
    T61_STRING: functools.partial(_encoded, "latin-1", "T61String"),
    UTF8_STRING: functools.partial(_encoded, "utf-8", "UTF8String"),
    BMP_STRING: _bmp,
}


def is_printable(text: str) -> bool:
    """Whether Go encodes a text as PrintableString; all others become a UTF8String."""
    return text.isascii() and _PRINTABLE.issuperset(text.encode())


def encode(identifier: int, *contents: bytes) -> bytes:
    """Encode one element."""
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes((identifier, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8)
    return bytes((identifier, 0x80 | len(length))) + length + content
