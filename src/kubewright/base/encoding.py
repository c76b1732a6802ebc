"""Base64 (RFC 4648, section 4) in the one form that all decoders accept.

Python's decoder accepts surplus padding (`AAAA=`) and Go's does not; both accept trailing bits that are not zero. If
one program checks a text and another one uses it, such a difference is a way around the check. This module refuses
everything that Go's `encoding/base64` refuses.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

_LINE_ENDS: Final = str.maketrans("", "", "\r\n")


def decode_base64(text: str | bytes) -> bytes:
    """Decode base64 with its padding. Line ends are skipped, as in Go, but nothing else. Raises ValueError for any other form."""
    compact = text.translate(_LINE_ENDS).encode("ascii") if isinstance(text, str) else text.translate(None, b"\r\n")
    try:
        content = base64.b64decode(compact, validate=True)
    except binascii.Error as error:
        raise ValueError("not base64") from error
    if base64.b64encode(content) != compact:
        raise ValueError("not base64 as encoders write it: the padding or the last bits are wrong")
    return content
