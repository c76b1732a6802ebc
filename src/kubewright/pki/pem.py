"""PEM text (RFC 7468) as plain bytes, and the errors of what is in it.

Reading is as lenient as Go's `encoding/pem`: text around blocks is skipped, line ends may be of any kind. Unlike Go's it does not skip a
block that is broken: somebody meant it to count. Whatever the X.509 library raises on unusable input becomes an error of our tree, and its
warnings stay unsaid.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field

CERTIFICATE: Final = "CERTIFICATE"
REQUEST: Final = "CERTIFICATE REQUEST"
PUBLIC_KEY: Final = "PUBLIC KEY"

_BEGIN: Final = re.compile(rb"^-----BEGIN ([A-Z0-9 ]{1,64})-----[ \t]*\r?$", re.MULTILINE)
_LINE: Final = 64

_FILTERS: Final = threading.RLock()
"""`warnings.catch_warnings` changes a list of the whole process: only one of our threads at a time."""


@dataclass(frozen=True)
class Block:
    """One PEM block: its label and the DER below it. `headers` tells that it has header lines, as encrypted old-style keys do."""

    label: str
    der: bytes = field(repr=False)
    headers: bool = False

    def pem(self) -> bytes:
        """Return the block as text with lines of 64 characters and a final line break."""
        return encode(self.label, self.der)

    @property
    def private(self) -> bool:
        """Whether it holds a private key of any form."""
        return self.label.endswith("PRIVATE KEY")


def encode(label: str, der: bytes) -> bytes:
    """Write one block."""
    body = base64.b64encode(der)
    lines = [body[start : start + _LINE] for start in range(0, len(body), _LINE)]
    name = label.encode()
    return b"\n".join([b"-----BEGIN " + name + b"-----", *lines, b"-----END " + name + b"-----", b""])


def blocks(text: bytes, *, source: str) -> list[Block]:
    """Cut PEM text into its blocks, in order; an empty list where there is none.

    Raises CertificateError, naming `source`, for a block without end or one that is not base64.
    """
    return list(_walk(text, source))


def _walk(text: bytes, source: str) -> Iterator[Block]:
    position = 0
    while (begin := _BEGIN.search(text, position)) is not None:
        end = text.find(b"-----END " + begin[1] + b"-----", begin.end())
        if end < 0:
            raise CertificateError(f"{source} is cut off: a {begin[1].decode()} block has no end", remedy=f"restore {source} from a copy")
        position = end + 1
        yield _block(begin[1].decode(), text[begin.end() : end], source)


def _block(label: str, content: bytes, source: str) -> Block:
    head, separator, rest = content.replace(b"\r\n", b"\n").strip(b"\n").partition(b"\n\n")
    headers = bool(separator) and b":" in head
    body = b"".join((rest if headers else content).split())
    try:
        return Block(label, base64.b64decode(body, validate=True), headers)
    except binascii.Error as error:
        raise CertificateError(f"{source}: a {label} block is not base64", remedy=f"restore {source} from a copy") from error


def join(found: Iterable[Block]) -> bytes:
    """Write several blocks one after the other."""
    return b"".join(block.pem() for block in found)


@contextmanager
def reading(what: str, *, remedy: str = "") -> Iterator[None]:
    """Raise CertificateError, naming the object, for whatever the library raises inside."""
    try:
        with quiet():
            yield
    except CertificateError:
        raise
    except Exception as error:  # the library documents ValueError and raises a dozen classes: all say that the input is unusable
        raise CertificateError(f"{what} cannot be read", detail=_first_line(error), remedy=remedy) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the library's warnings off the terminal.

    It warns about names that Go's X.509 accepts and clusters have: a common name such as `system:node:` and a long host name exceeds the
    64 characters of RFC 5280.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _first_line(error: Exception) -> str:
    """Say why, in one line. The library's messages name structures, never content."""
    return (str(error) or type(error).__name__).splitlines()[0][:200]
