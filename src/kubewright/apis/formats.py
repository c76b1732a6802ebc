"""Formats of single values, validated as kubeadm does: names, addresses, host and port, image repositories, subnets, URLs.

Upstream: apimachinery `validation`, k8s.io/utils `net` (the "sloppy" parsers, which allow leading zeros), Go's
`net.SplitHostPort` and `net/url.Parse` (Go 1.26), distribution's reference grammar.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final
from urllib.parse import unquote

from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern

IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = Pattern(rf"{_LABEL}(?:\.{_LABEL})*", re.ASCII)
_QUAD: Final = Pattern(r"0*(\d{1,3})\.0*(\d{1,3})\.0*(\d{1,3})\.0*(\d{1,3})", re.ASCII)
_LEADING_ZEROS: Final = Pattern(r"(?<![0-9A-Fa-f.])0+(?=[0-9A-Fa-f])")
_DIGITS: Final = Pattern(r"0*([0-9]{1,5})", re.ASCII)

_DOMAIN: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST: Final = rf"(?:{_DOMAIN}(?:\.{_DOMAIN})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_PATH: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_IMAGE_NAME: Final = Pattern(rf"(?:{_HOST}/)?{_PATH}(?:/{_PATH})*", re.ASCII)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
API_SERVER_INDEX: Final = 1
DNS_INDEX: Final = 10
_MOST: Final = 10
"""More than two are never valid, and a text may contain a million."""
_MASK: Final = Pattern(r"0*([0-9]{1,3})", re.ASCII)
_CONTROL: Final = Pattern(r"[\x00-\x1f\x7f]")
_SCHEME: Final = Pattern(r"([A-Za-z][A-Za-z0-9+.-]*):", re.ASCII)
_PORT: Final = Pattern(r"(?::[0-9]*)?", re.ASCII)
_USER: Final = Pattern(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})*", re.ASCII)
# In a host, only non-ASCII bytes and the percent sign itself may be percent-encoded.
_URL_HOST: Final = Pattern(r"""(?:[A-Za-z0-9._~!$&'()*+,;=:<>"\[\]-]|[^\x00-\x7f]|%25|%[89A-Fa-f][0-9A-Fa-f])*""")
_BAD_ESCAPE: Final = Pattern(r"%(?![0-9A-Fa-f]{2})", re.ASCII)


def subdomain_problems(name: str) -> list[str]:
    """Return why a text is not a DNS-1123 subdomain: its length, its characters, or both; nothing if it is one."""
    problems = []
    if len(name) > 253:
        problems.append("must be no more than 253 characters")
    if _SUBDOMAIN.fullmatch(name) is None:
        problems.append("must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit")
    return problems


def is_host_pattern(name: str) -> bool:
    """Return whether a text is a DNS-1123 subdomain, optionally beginning with `*.`."""
    return not subdomain_problems(name) or (name.startswith("*.") and not subdomain_problems(name[2:]) and len(name) <= 253)


@functools.lru_cache(maxsize=256)  # each rule for names parses the same few again
def address(text: str) -> IPAddress | None:
    """Parse an IP address, leading zeros allowed, no zone. An IPv4-mapped IPv6 address is returned as IPv4."""
    if ":" in text:
        return _ipv6(text)
    quad = _QUAD.fullmatch(text)
    return _ipv4(quad) if quad else None


def _ipv6(text: str) -> IPAddress | None:
    head, colon, tail = text.rpartition(":")
    if "." in tail:
        quad = _QUAD.fullmatch(tail)
        tail = str(_ipv4(quad) if quad else "")
    try:
        found = ipaddress.IPv6Address(_LEADING_ZEROS.sub("", head + colon) + _LEADING_ZEROS.sub("", tail))
    except ValueError:
        return None
    return None if found.scope_id else found.ipv4_mapped or found


def _ipv4(quad: re.Match[str]) -> ipaddress.IPv4Address | None:
    parts = [int(part) for part in quad.groups()]
    return ipaddress.IPv4Address(bytes(parts)) if max(parts) <= 255 else None


def split_host_port(text: str) -> tuple[str, str]:
    """Split `host:port` as Go's `net.SplitHostPort`.

    Raises ValueError without a port, or with colons outside brackets.
    """
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"{quoted(text)} has no port")
    if host.startswith("["):
        if not host.endswith("]") or "]" in host[:-1]:
            raise ValueError(f"{quoted(text)} is not a host and a port")
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{quoted(text)} has too many colons")
    if set("[]") & set(host + port):
        raise ValueError(f"{quoted(text)} has brackets in the wrong place")
    return host, port


def host_port(text: str) -> tuple[str, str]:
    """Split `host[:port]` as kubeadm does.

    Raises ValueError, with the reason, unless the host is an IP or a DNS-1123 subdomain.
    """
    try:
        host, port = split_host_port(text)
    except ValueError:
        host, port = text, ""
    if port and not is_port(port):
        raise ValueError("the port must be a number between 1 and 65535")
    if address(host) is None and subdomain_problems(host):
        raise ValueError("the host must be an IP address or a DNS-1123 subdomain in lower case")
    return host, port


def is_port(text: str) -> bool:
    """Return whether a text is a port number from 1 to 65535."""
    found = _DIGITS.fullmatch(text)
    return found is not None and 1 <= int(found[1]) <= 65535


def is_image_repository(text: str) -> bool:
    """Return whether `TEXT/name:tag` is a valid image reference."""
    return _IMAGE_NAME.fullmatch(f"{text}/name") is not None


def subnets(text: str) -> list[Network]:
    """Parse a comma-separated list of CIDRs without spaces. Raises ValueError, naming the invalid one."""
    parts = text.split(",", _MOST)
    if len(parts) > _MOST:
        raise ValueError(f"more than {_MOST} CIDRs")
    return [_network(part) for part in parts]


def _network(text: str) -> Network:
    host, slash, mask = text.partition("/")
    base, bits = address(host), _MASK.fullmatch(mask)
    if not slash or base is None or bits is None:
        raise ValueError(f"{quoted(text)} is not a CIDR")
    if ":" in host and base.version == 4:  # written as ::ffff:a.b.c.d, which Go treats as an IPv6 range
        base = ipaddress.IPv6Address((0xFFFF << 32) + int(base))
    if int(bits[1]) > base.max_prefixlen:
        raise ValueError(f"{quoted(text)} is not a CIDR; the mask of an IPv{base.version} range is at most {base.max_prefixlen}")
    return ipaddress.ip_network((base, int(bits[1])), strict=False)


def subnet_family(network: Network) -> int:
    """Return 4 or 6. A range of IPv4-mapped IPv6 addresses is of family 4, as in Go."""
    return 4 if network.version == 4 or network.network_address.ipv4_mapped is not None else 6


def address_at(network: Network, index: int) -> IPAddress:
    """Return the address with an index, counted from the network's own address.

    Raises ValueError outside the network.
    """
    if index >= network.num_addresses:
        raise ValueError(f"{network} has no address number {index}")
    return network.network_address + index


def service_address(service_subnet: str, index: int) -> IPAddress:
    """Return an address of the first service CIDR: index 1 is the API server's, index 10 is DNS. Raises ValueError."""
    return address_at(subnets(service_subnet)[0], index)


def url_scheme(text: str) -> str:
    """Return the scheme of a URL in lower case, '' for a relative one. Raises ValueError if Go's parser fails."""
    head, _, fragment = text.partition("#")
    if _CONTROL.search(head):
        raise ValueError("it contains a control character")
    if head.startswith(":"):
        raise ValueError("the scheme is missing before the colon")
    found = _SCHEME.match(head)
    scheme = found[1].lower() if found else ""
    rest = (head[found.end() :] if found else head).partition("?")[0]
    opaque = bool(scheme) and not rest.startswith("/")
    if not opaque:
        _check_hierarchy(rest, scheme)
    if _BAD_ESCAPE.search(fragment):
        raise ValueError("it contains a percent sign without two hexadecimal digits")
    return scheme


def url_path(text: str) -> str:
    """Return the decoded path of a URL that `url_scheme` can parse; '' if it has none (`file:name`)."""
    rest = text.partition("#")[0].partition("?")[0].partition(":")[2]
    if rest.startswith("//"):
        _, slash, path = rest[2:].partition("/")
        return unquote(slash + path)
    return unquote(rest) if rest.startswith("/") else ""


def _check_hierarchy(rest: str, scheme: str) -> None:
    if not scheme and ":" in rest.partition("/")[0]:
        raise ValueError("the first part contains a colon, but is not a scheme")
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, _, path = rest[2:].partition("/")
        _check_authority(authority, scheme)
    else:
        path = rest
    if _BAD_ESCAPE.search(path):
        raise ValueError("it contains a percent sign without two hexadecimal digits")


def _check_authority(authority: str, scheme: str) -> None:
    user, at, host = authority.rpartition("@")
    if at and _USER.fullmatch(user) is None:
        raise ValueError("the user part contains a character that is not allowed")
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
    if not host.startswith("[") and _URL_HOST.fullmatch(host) is None:
        raise ValueError("the host contains a character that is not allowed")


def _check_literal(text: str) -> None:
    address, _, zone = text.partition("%25")
    if "%" in address:
        raise ValueError("the address in brackets is not complete")
    try:
        ipaddress.IPv6Address(f"{address}%{zone}" if zone else address)
    except ValueError:
        raise ValueError(f"{quoted(text[:50])} in brackets is not an IPv6 address") from None
