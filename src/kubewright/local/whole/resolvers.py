"""The name servers that machines use: those of the host that machines can reach, with its search domains and options."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from kubewright.apis import formats
from kubewright.base.records import dataclass
from kubewright.machines.network import is_ipv6

_FILES: Final = ("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf")
"""Files with name servers; the services of the last two know the real ones if the first one names a server of the host itself."""
_SETTINGS: Final = frozenset({"search", "domain", "options"})
_NO_DOMAIN: Final = "."
"""systemd-resolved writes it if there are no search domains; the kubelet would pass it on to pods."""


@dataclass(frozen=True, kw_only=True)
class Resolvers:
    """The addresses of name servers, and the lines of resolv.conf(5) that say how names are looked up."""

    servers: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    def text(self, *, ipv6: bool) -> str:
        """Return the resolv.conf of machines, which may have IPv6; '' if there is no name server for them."""
        servers = [f"nameserver {server}" for server in self.servers if ipv6 or not is_ipv6(server)]
        return "".join(f"{line}\n" for line in (*servers, *self.settings)) if servers else ""


def of_host() -> Resolvers:
    """Return the name servers of this host."""
    paths = map(Path, _FILES)
    return parse({str(path): path.read_text(encoding="utf-8", errors="replace") for path in paths if path.exists()})


def parse(files: Mapping[str, str]) -> Resolvers:
    """Return the resolvers of the first of these texts of resolv.conf that names a server which machines can reach."""
    for text in files.values():
        lines = [line.split() for line in text.splitlines()]
        given = [formats.address(line[1]) for line in lines if len(line) > 1 and line[0] == "nameserver"]
        servers = tuple(str(server) for server in given if server is not None and _is_reachable(server))
        if servers:
            kept = [[word for word in line if word != _NO_DOMAIN] for line in lines if line and line[0] in _SETTINGS]
            return Resolvers(servers=servers, settings=tuple(" ".join(words) for words in kept if len(words) > 1))
    return Resolvers()


def _is_reachable(server: IPv4Address | IPv6Address) -> bool:
    """Return whether machines may reach a server.

    Clouds have name servers at link-local addresses of IPv4, to which hosts forward packets.
    """
    return not server.is_loopback and not (server.version == 6 and server.is_link_local)
