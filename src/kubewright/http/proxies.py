"""Validate a server's base URL, and choose the proxy for a URL.

The rules are those of Go's golang.org/x/net/http/httpproxy, so that kubeadm and this program choose the same proxy.
Ranges of addresses are Kubernetes' own addition (apimachinery, `NewProxierWithNoProxyCIDR`): there leading zeros are
allowed, on both sides.

Pure: the environment is an argument.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from kubewright.apis import formats
from kubewright.base.errors import UsageError
from kubewright.base.masking import remember
from kubewright.base.records import dataclass

_SCHEMES: Final = ("http", "https")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Origin(NamedTuple):
    """The parts of a base URL."""

    scheme: str
    server: str
    """`scheme://host:port`, without a port if the URL has none."""
    path: str
    """Without a trailing slash."""


def origin(url: str, *, what: str = "the server's address") -> Origin:
    """Split a base URL.

    Raises UsageError for everything except http and https, and for user information, a query or a fragment; these are
    not shown, because they may be secret.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = urlsplit(""), None, None
    if parts.scheme not in {"http", "https"} or not host or any(mark.isspace() or not mark.isprintable() for mark in url):
        raise UsageError(f"{what} is not a URL", remedy="write it like https://10.0.0.1:6443")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise UsageError(f"{what} may contain only a host, a port and a path", remedy="write it like https://10.0.0.1:6443")
    shown = f"[{host}]" if ":" in host else host
    server = f"{parts.scheme}://{shown}" + (f":{port}" if port is not None else "")
    return Origin(parts.scheme, server, parts.path.rstrip("/"))


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """One proxy: its URL without user information, and the credentials for it. Never print the credentials."""

    url: str
    user: str | None = None
    password: str = ""

    def __repr__(self) -> str:
        return f"Proxy({self.url!r})"

    def authorization(self) -> str | None:
        """Return the value of the header `proxy-authorization`, None if there are no credentials."""
        if self.user is None:
            return None
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def secret_url(self) -> str:
        """Return the URL with the credentials, for a file that only its owner may read."""
        if self.user is None:
            return self.url
        scheme, _, place = self.url.partition("://")
        user, password = quote(self.user, safe=""), quote(self.password, safe="")
        return f"{scheme}://{user}{':' if password else ''}{password}@{place}"


@dataclass(frozen=True, kw_only=True)
class _Rule:
    """One entry of NO_PROXY. `port` None means any."""

    port: int | None
    suffix: str = ""
    exact: bool = False
    address: _Address | None = None
    network: formats.Network | None = None
    everything: bool = False

    def covers(self, host: str, port: int, address: _Address | None) -> bool:
        if self.everything:
            return True
        if self.network is not None:
            sloppy = formats.address(host)
            return sloppy is not None and sloppy in self.network
        if self.port not in {None, port}:
            return False
        if self.address is not None:
            return self.address == address
        return bool(self.suffix) and (host.endswith(self.suffix) or (self.exact and host == self.suffix[1:]))


@dataclass(frozen=True, kw_only=True)
class Proxies:
    """The proxies of an environment. With the default value, every connection is direct.

    An error in place of a proxy is raised for a URL that needs it: others are direct, whatever the variable contains.
    """

    http: Proxy | UsageError | None = None
    https: Proxy | UsageError | None = None
    rules: tuple[_Rule, ...] = ()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Proxies:
        """Read HTTP_PROXY, HTTPS_PROXY and NO_PROXY; an upper-case name takes precedence over the lower-case one."""

        def variable(name: str) -> str:
            return environment.get(name) or environment.get(name.lower()) or ""

        # In a CGI program HTTP_PROXY is a header of the client's (httpoxy); Go ignores it there as well.
        plain = "" if "REQUEST_METHOD" in environment else variable("HTTP_PROXY")
        secure = variable("HTTPS_PROXY")
        return cls(
            http=_proxy_or_error(plain, name="HTTP_PROXY"),
            https=_proxy_or_error(secure, name="HTTPS_PROXY"),
            rules=tuple(rule for entry in variable("NO_PROXY").split(",") if (rule := _rule(entry)) is not None),
        )

    def require_usable(self) -> Proxies:
        """Return this if it contains no error. Raises UsageError, for callers that need the proxies anyway."""
        for one in (self.http, self.https):
            if isinstance(one, UsageError):
                raise UsageError(one.what, remedy=one.remedy)
        return self

    def for_url(self, url: str) -> Proxy | None:
        """Return the proxy for a URL, None for a direct connection. Loopback and `localhost` are always direct.

        Raises UsageError for an unsupported kind of proxy, without its credentials.
        """
        parts = urlsplit(url)
        proxy = {"http": self.http, "https": self.https}.get(parts.scheme)
        host = (parts.hostname or "").strip().lower()
        if proxy is None or not host or host == "localhost":
            return None
        address = _address(host)
        if address is not None and address.is_loopback:
            return None
        port = parts.port or _DEFAULT_PORTS[parts.scheme]
        if any(rule.covers(host, port, address) for rule in self.rules):
            return None
        if isinstance(proxy, UsageError):
            raise UsageError(proxy.what, remedy=proxy.remedy)
        return proxy


def _proxy_or_error(text: str, *, name: str) -> Proxy | UsageError | None:
    try:
        return parse_proxy(text, name=name) if text else None
    except UsageError as error:
        return error


def parse_proxy(text: str, *, name: str) -> Proxy:
    """Parse a proxy's URL; a bare `host:port` is http. `name` is the variable that contains it. Raises UsageError, without credentials."""
    try:
        parts = urlsplit(text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else f"http://{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or parts.scheme not in _SCHEMES:
        raise UsageError(f"{name} is not the URL of an http or https proxy", remedy=f"set it like {name}=http://proxy.example.com:3128")
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    for secret in (password or user, unquote(password or user)):  # a user alone is a token
        remember(secret)
    shown = f"[{host}]" if ":" in host else host
    return Proxy(
        url=f"{parts.scheme}://{shown}:{port or _DEFAULT_PORTS[parts.scheme]}",
        user=unquote(parts.username) if parts.username is not None else None,
        password=unquote(parts.password or ""),
    )


def _rule(entry: str) -> _Rule | None:
    entry = entry.strip().lower()
    if not entry:
        return None
    if entry == "*":
        return _Rule(port=None, everything=True)
    if "/" in entry:
        network = _network(entry)
        if network is not None:
            return _Rule(port=None, network=network)
    host, port = _split_port(entry)
    if not host:
        return None
    address = _address(host.removeprefix("[").removesuffix("]"))
    if address is not None:
        return _Rule(port=port, address=address)
    host = host[1:] if host.startswith("*.") else host
    return _Rule(port=port, suffix=host) if host.startswith(".") else _Rule(port=port, suffix=f".{host}", exact=True)


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split `host:port`; an IPv6 address has brackets if it has a port."""
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*):(\d{1,5})", entry, re.ASCII)
    return (found[1], int(found[2])) if found else (entry, None)


def _network(text: str) -> formats.Network | None:
    try:
        return formats.subnets(text)[0]
    except ValueError:
        return None


def _address(text: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
