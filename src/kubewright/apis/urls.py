"""Which texts are URLs to Go's `net/url.Parse` (Go 1.26): kubeadm's verdict on sockets and etcd endpoints."""

from __future__ import annotations

import ipaddress
import re
from typing import Final
from urllib.parse import unquote

from kubewright.base.patterns import Pattern
from kubewright.base.quoting import quoted

_CONTROL: Final = Pattern(r"[\x00-\x1f\x7f]")
_SCHEME: Final = Pattern(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_PORT: Final = Pattern(r"(?::[0-9]*)?", re.ASCII)
_USER: Final = Pattern(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*", re.ASCII)
# In a host only bytes beyond ASCII and the percent sign itself may be written with a percent sign.
_HOST: Final = Pattern(r"""(?:[A-Za-z0-9._~!$&'()*+,;=:<>"\[\]-]|[^\x00-\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*""")
_BAD_ESCAPE: Final = Pattern(r"%(?![0-9A-Fa-f]{2})", re.ASCII)


def scheme_of(text: str) -> str:
    """Return the scheme of a URL in lower case, '' for a relative one. Raises ValueError where Go's parser fails."""
    head, _, fragment = text.partition("#")
    if _CONTROL.search(head):
        raise ValueError("it holds a control character")
    if head.startswith(":"):
        raise ValueError("the scheme is missing before the colon")
    found = _SCHEME.match(head)
    scheme = found[1].lower() if found else ""
    rest = (head[found.end() :] if found else head).partition("?")[0]
    opaque = bool(scheme) and not rest.startswith("/")
    if not opaque:
        _check_hierarchy(rest, scheme)
    if _BAD_ESCAPE.search(fragment):
        raise ValueError("it holds a percent sign without two hexadecimal digits")
    return scheme


def path_of(text: str) -> str:
    """Return the path of a URL that `scheme_of` can read, decoded; '' where it has none (`file:name`)."""
    rest = text.partition("#")[0].partition("?")[0].partition(":")[2]
    if rest.startswith("//"):
        _, slash, path = rest[2:].partition("/")
        return unquote(slash + path)
    return unquote(rest) if rest.startswith("/") else ""


def _check_hierarchy(rest: str, scheme: str) -> None:
    if not scheme and ":" in rest.partition("/")[0]:
        raise ValueError("the first part holds a colon, but is no scheme")
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, _, path = rest[2:].partition("/")
        _check_authority(authority, scheme)
    else:
        path = rest
    if _BAD_ESCAPE.search(path):
        raise ValueError("it holds a percent sign without two hexadecimal digits")


def _check_authority(authority: str, scheme: str) -> None:
    user, at, host = authority.rpartition("@")
    if at and _USER.fullmatch(user) is None:
        raise ValueError("the user part holds a character that is not allowed")
    literal = host.rpartition("]")
    if "[" in host and (not host.startswith("[") or host.rfind("[") > 0 or not literal[1]):
        raise ValueError("the address in brackets is not complete")
    if host.startswith("["):
        _check_literal(literal[0][1:])
        port = literal[2]
    else:
        colon = host.find(":") if scheme in {"http", "https"} else host.rfind(":")
        port = host[colon:] if colon >= 0 else ""
    if _PORT.fullmatch(port) is None:
        raise ValueError(f"{quoted(port[:20])} is not a port")
    if not host.startswith("[") and _HOST.fullmatch(host) is None:
        raise ValueError("the host holds a character that is not allowed")


def _check_literal(text: str) -> None:
    address, _, zone = text.partition("%25")
    if "%" in address:
        raise ValueError("the address in brackets is not complete")
    try:
        ipaddress.IPv6Address(f"{address}%{zone}" if zone else address)
    except ValueError:
        raise ValueError(f"{quoted(text[:50])} in brackets is not an IPv6 address") from None
