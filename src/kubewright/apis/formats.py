"""Forms of single values, with kubeadm's verdict on each: names, addresses, host and port, image repositories.

Upstream: apimachinery `validation`, k8s.io/utils `net` (the "sloppy" parsers, which allow leading zeros), Go's `net.SplitHostPort`,
distribution's reference grammar.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Final

from kubewright.base.patterns import Pattern
from kubewright.base.quoting import quoted

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


def subdomain_problems(name: str) -> list[str]:
    """Return what keeps a text from being a DNS-1123 subdomain: nothing, its length, its characters, or both."""
    problems = []
    if len(name) > 253:
        problems.append("must be no more than 253 characters")
    if _SUBDOMAIN.fullmatch(name) is None:
        problems.append("must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit")
    return problems


def is_host_pattern(name: str) -> bool:
    """Tell whether a text is a DNS-1123 subdomain, also one that begins with `*.`."""
    return not subdomain_problems(name) or (name.startswith("*.") and not subdomain_problems(name[2:]) and len(name) <= 253)


def address(text: str) -> IPAddress | None:
    """Read an IP address, leading zeros allowed, no zone. An IPv4 address that is mapped into IPv6 is that IPv4 address."""
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
    """Split `host:port` as Go's `net.SplitHostPort`. Raises ValueError without a port, or with colons outside of brackets."""
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
    """Split `host[:port]` as kubeadm does. Raises ValueError, with the reason, unless the host is an IP or a DNS-1123 subdomain."""
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
    """Tell whether a text is a port number from 1 to 65535."""
    found = _DIGITS.fullmatch(text)
    return found is not None and 1 <= int(found[1]) <= 65535


def is_image_repository(text: str) -> bool:
    """Tell whether `TEXT/name:tag` is a valid image reference."""
    return _IMAGE_NAME.fullmatch(f"{text}/name") is not None
