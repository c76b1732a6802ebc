"""Server addresses: what a base URL may look like."""

from __future__ import annotations

from urllib.parse import urlsplit

from kubewright.base.errors import UsageError


def origin(url: str, *, what: str = "the server's address") -> tuple[str, str, str]:
    """Split a base URL into scheme, `scheme://host:port` and path without a trailing slash.

    Raises UsageError for anything but http and https, and for user information, a query or a fragment; those are not shown, they may
    be secret.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host or any(mark.isspace() or not mark.isprintable() for mark in url):
        raise UsageError(f"{what} is not a URL", remedy="write it like https://10.0.0.1:6443")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(f"{what} may hold only a host, a port and a path", remedy="write it like https://10.0.0.1:6443")
    shown = f"[{host}]" if ":" in host else host
    return parts.scheme, f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else ""), parts.path.rstrip("/")
