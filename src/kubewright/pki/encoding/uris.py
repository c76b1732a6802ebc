"""URIs as Go's net/url parses and formats them: kube-controller-manager copies URI names into certificates in that form.

`HTTPS://h/x` becomes `https://h/x`, `urn:x#` loses its `#`, characters that need no escaping stay as they were. Go
1.26.
"""

from __future__ import annotations

import ipaddress
import re
import string
from typing import Final, NamedTuple

_UNRESERVED: Final = string.ascii_letters + string.digits + "-_.~"
_PATH: Final = frozenset((_UNRESERVED + "$&+,/:;=@").encode())
_USER: Final = frozenset((_UNRESERVED + "$&+,;=").encode())
_HOST: Final = frozenset((_UNRESERVED + "!$&'()*+,;=:[]<>\"").encode())
_FRAGMENT: Final = frozenset((_UNRESERVED + "!()*$&+,/:;=?@").encode())
_TOLERATED: Final = frozenset(b"!$&'()*+,;=:@[]%")
"""Characters that may be unescaped in an encoded path or fragment."""
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})?")
_PORT: Final = re.compile(r"(?::[0-9]*)?")
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")


class URIError(ValueError):
    """Go's net/url does not accept this text as a URI."""


class URI(NamedTuple):
    """A parsed URI. `host` has its escapes resolved; `text` is the whole as Go formats it."""

    host: str
    text: str


def parse(text: str) -> URI:
    """Parse a URI of ASCII characters. Raises URIError for anything that Go refuses."""
    rest, _, fragment = text.partition("#")
    if any(mark < " " or mark == "\x7f" for mark in rest):
        raise URIError("a control character")
    written, host = _main(rest)
    if fragment:
        written += "#" + _normal(fragment, _FRAGMENT)
    return URI(host, written)


def written(text: str) -> str:
    """Return a URI name of a certificate or request as Go formats it.

    Raises URIError for anything that Go's crypto/x509 refuses.
    """
    found = parse(text)
    if found.host and not _is_domain(found.host):
        raise URIError("the host of a URI name is not a domain name")
    return found.text


def _is_domain(host: str) -> bool:
    """Go's crypto/x509 `domainNameValid`, without a limit on lengths."""
    return all(label and all("!" <= mark <= "~" for mark in label) for label in host.split("."))


def _main(text: str) -> tuple[str, str]:
    """Format everything before the fragment, and return the host."""
    if text == "*":
        return "*", ""
    scheme, rest = _scheme(text)
    head = f"{scheme}:" if scheme else ""
    if rest.endswith("?") and rest.count("?") == 1:
        rest, query = rest[:-1], "?"
    else:
        rest, mark, given = rest.partition("?")
        query = mark + given if given else ""
    if not rest.startswith("/"):
        if scheme:
            return head + rest + query, ""
        if ":" in rest.partition("/")[0]:
            raise URIError("the first part of a path without scheme holds a colon")
    user, host, authority = None, "", False
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority = True
        place, slash, path = rest[2:].partition("/")
        rest = slash + path
        user, host = _authority(place, scheme)
    path = _normal(rest, _PATH)
    # With a scheme Go remembers whether there was an (empty) authority; it writes "//" for every other URI that has a host, a user or a scheme.
    if (user is not None or host) or (authority and scheme and path):
        head += "//" + (f"{user}@" if user is not None else "") + _escape(host.encode("latin-1"), _HOST)
    if path and not path.startswith("/") and host:
        head += "/"
    if not head and ":" in path.partition("/")[0]:
        head = "./"
    return head + path + query, host


def _scheme(text: str) -> tuple[str, str]:
    if text.startswith(":"):
        raise URIError("the scheme is missing")
    found = _SCHEME.fullmatch(text)
    return (found[1].lower(), found[2]) if found else ("", text)


def _authority(text: str, scheme: str) -> tuple[str | None, str]:
    before, at, place = text.rpartition("@")
    host = _host(place, scheme)
    if not at:
        return None, host
    if not _USERINFO.fullmatch(before):
        raise URIError("the user contains a character that is not allowed")
    name, colon, password = before.partition(":")
    written = _escape(_unescape(name), _USER) + (":" + _escape(_unescape(password), _USER) if colon else "")
    return written, host


def _host(text: str, scheme: str) -> str:
    bracket = text.rfind("[")
    if bracket > 0:
        raise URIError("an address in brackets after other text")
    if bracket == 0:
        inside, closed, port = text[1:].rpartition("]")
        if not closed or not _PORT.fullmatch(port):
            raise URIError("an address in brackets without end, or with a wrong port")
        zone = inside.find("%25")
        found = _unescape_host(inside if zone < 0 else inside[:zone])
        if zone >= 0:
            found += _unescape_host(inside[zone:], zone=True)
        _require_ipv6(found)
        return f"[{found}]{port}"
    colon = text.find(":") if scheme in {"http", "https"} else text.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(text[colon:]):
        raise URIError("a wrong port")
    return _unescape_host(text)


def _require_ipv6(text: str) -> None:
    try:
        ipaddress.IPv6Address(text)
    except ValueError as error:
        raise URIError("the text in brackets is not an IPv6 address") from error


def _unescape_host(text: str, *, zone: bool = False) -> str:
    """Resolve the escapes of a host: only non-ASCII bytes may be escaped there, `%25` before a zone, and more inside one."""
    for found in _ESCAPE.finditer(text.encode()):
        value = int(found[1], 16) if found[1] else -1
        if value < 0 or not (value >= 0x80 or value == 0x25 or (zone and (value == 0x20 or value in _HOST))):
            raise URIError("a wrong escape in a host")
    if not _HOST.issuperset(_ESCAPE.sub(b"", text.encode())):
        raise URIError("a character that is not allowed in a host")
    return _unescape(text).decode("latin-1")


def _unescape(text: str) -> bytes:
    raw = text.encode()
    if any(found[1] is None for found in _ESCAPE.finditer(raw)):
        raise URIError("a wrong escape")
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), raw)


def _escape(raw: bytes, plain: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in plain else f"%{byte:02X}" for byte in raw)


def _normal(text: str, plain: frozenset[int]) -> str:
    """Format a path or fragment: unchanged if it is validly encoded, otherwise escaped again (Go's EscapedPath)."""
    raw = _unescape(text)
    if (plain | _TOLERATED).issuperset(text.encode()):
        return text
    return "*" if raw == b"*" else _escape(raw, plain)
