"""PEM text (RFC 7468) as plain bytes, and errors about its contents.

This parser reads what Go's `encoding/pem` reads, block by block, or refuses the text: text around blocks is skipped,
but Go also skips a broken block, so that two parsers of one text may see different blocks. Here every `-----BEGIN` must
begin a whole block. Exceptions of the X.509 library for unusable input become errors of our tree, and its warnings are
suppressed.
"""

from __future__ import annotations

import base64
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kubewright.base.encoding import decode_base64
from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field
from kubewright.pki.encoding import der

CERTIFICATE: Final = "CERTIFICATE"
REQUEST: Final = "CERTIFICATE REQUEST"
PUBLIC_KEY: Final = "PUBLIC KEY"

MARK: Final = b"-----BEGIN"
"""The first bytes of every block."""
_BEGIN: Final = re.compile(rb"-----BEGIN ([A-Za-z0-9 ]{1,64})-----")
_END: Final = b"\n-----END "
_LINE: Final = 64

_FILTERS: Final = threading.RLock()
"""`warnings.catch_warnings` changes a list of the whole process: only one of our threads at a time."""


@dataclass(frozen=True)
class Block:
    """One PEM block: its label and DER content.

    `headers` means that it has header lines, as encrypted old-style keys do.
    """

    label: str
    der: bytes = field(repr=False)
    headers: bool = False

    def pem(self) -> bytes:
        """Return the block as text with lines of 64 characters and a final newline."""
        return encode(self.label, self.der)

    @property
    def private(self) -> bool:
        """Whether it contains a private key of any form."""
        return self.label.endswith("PRIVATE KEY")


def encode(label: str, content: bytes) -> bytes:
    """Encode one block."""
    body = base64.b64encode(content)
    lines = [body[start : start + _LINE] for start in range(0, len(body), _LINE)]
    name = label.encode()
    return b"\n".join([b"-----BEGIN " + name + b"-----", *lines, b"-----END " + name + b"-----", b""])


def blocks(text: bytes, *, source: str) -> list[Block]:
    """Split PEM text into its blocks, in order; an empty list if there is none.

    Raises CertificateError, naming `source`, for every `-----BEGIN` that Go would not parse as the block that it seems
    to begin.
    """
    return list(_walk(text, source))


def certificates(text: bytes, *, source: str) -> list[bytes]:
    """Return the DER of each CERTIFICATE block of PEM text, in order.

    Raises CertificateError, naming `source`, if there is none, and for a block that parsers treat differently: Go's
    skip one with headers, OpenSSL's skip bytes after the certificate inside a block.
    """
    found = [block for block in blocks(text, source=source) if block.label == CERTIFICATE]
    if not found:
        raise CertificateError(f"{source} contains no certificate", remedy="provide PEM with at least one CERTIFICATE block")
    for block in found:
        if block.headers:
            raise _broken(source, "a CERTIFICATE block has headers")
        try:
            der.one(block.der, "a certificate")
        except der.DERError as error:
            raise CertificateError(
                f"the certificate in {source} cannot be read", detail=str(error), remedy=f"restore {source} from a copy"
            ) from error
    return [block.der for block in found]


def _walk(text: bytes, source: str) -> Iterator[Block]:
    position = 0
    while (begin := text.find(MARK, position)) >= 0:
        block, position = _block(text, begin, source)
        yield block


def _block(text: bytes, begin: int, source: str) -> tuple[Block, int]:
    """Parse the block that begins at a position; return it and the position of the line after it."""
    line, start = _line(text, begin)
    match = _BEGIN.fullmatch(line)
    if match is None or text[max(begin - 1, 0) : begin] not in {b"", b"\n"}:
        raise _broken(source, "a BEGIN line is malformed")
    label = match[1]
    end = text.find(_END, start - 1)  # in an empty block, it begins with the newline of BEGIN
    closing, after = _line(text, end + len(_END)) if end >= 0 else (b"", start)
    if closing != label + b"-----" or text.find(MARK, start, end) >= 0:
        raise CertificateError(f"{source} is cut off: a {label.decode()} block has no end", remedy=f"restore {source} from a copy")
    body = _body(text, start, end)
    if body > max(start, end):
        raise _broken(source, f"a {label.decode()} block holds only headers")
    try:
        content = decode_base64(text[body:end].translate(None, b" \t"))
    except ValueError as error:
        raise _broken(source, f"a {label.decode()} block is not base64") from error
    return Block(label.decode(), content, headers=body > start), after


def _body(text: bytes, start: int, end: int) -> int:
    """Return the position of the first line that is not a header: a line with a colon is one, as in Go."""
    while start < end:
        stop = text.find(b"\n", start, end)
        stop = end if stop < 0 else stop
        if text.find(b":", start, stop) < 0:
            break
        start = stop + 1
    return start


def _line(text: bytes, position: int) -> tuple[bytes, int]:
    """Return a line without its end and trailing spaces, and the position of the next one."""
    end = text.find(b"\n", position)
    if end < 0:
        return text[position:].rstrip(b" \t"), len(text)
    return text[position:end].removesuffix(b"\r").rstrip(b" \t"), end + 1


def _broken(source: str, what: str) -> CertificateError:
    return CertificateError(f"{source} is not valid PEM", detail=what, remedy=f"restore {source} from a copy")


def join(found: Iterable[Block]) -> bytes:
    """Encode several blocks one after the other."""
    return b"".join(block.pem() for block in found)


@contextmanager
def reading(what: str, *, remedy: str = "") -> Iterator[None]:
    """Raise CertificateError, naming the object, for exceptions of the library in the block."""
    try:
        with quiet():
            yield
    except CertificateError:
        raise
    except Exception as error:  # the library documents ValueError and raises a dozen classes: all mean that the input is unusable
        raise CertificateError(f"{what} cannot be read", detail=_first_line(error), remedy=remedy) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress the library's warnings.

    It warns about names that Go's X.509 accepts and clusters have: a common name such as `system:node:` and a long host
    name exceeds the 64 characters of RFC 5280.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: Exception) -> str:
    """Return the reason in one line. The library's messages name structures, never content."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
