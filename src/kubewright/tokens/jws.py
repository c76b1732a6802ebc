"""The detached signature of cluster-info: a JSON Web Signature (RFC 7515) with HMAC-SHA256 and an empty middle part.

The value is `b64url(header)..b64url(mac)`, unpadded; the key is the token's secret as bytes (cluster-bootstrap: token/jws).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

from kubewright.tokens.strings import BootstrapTokenString


def sign(content: str, token: BootstrapTokenString) -> str:
    """Sign a text with a token."""
    header = _encode(json.dumps({"alg": "HS256", "kid": token.id}, separators=(",", ":")).encode())
    signed = f"{header}.{_encode(_bytes(content))}".encode()
    mac = hmac.new(token.secret.encode(), signed, hashlib.sha256).digest()
    return f"{header}..{_encode(mac)}"


def verify(signature: str, content: str, token: BootstrapTokenString) -> bool:
    """Whether a signature is this token's over this text: made again and compared as a whole, in constant time."""
    return hmac.compare_digest(sign(content, token).encode(), _bytes(signature))


def _bytes(text: str) -> bytes:
    """Encode a text from a JSON answer, which may hold halves of surrogate pairs."""
    return text.encode("utf-8", "surrogatepass")


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()
