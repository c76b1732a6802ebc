"""Looking up DNS records at servers of one's choice, forward and reverse (docs/decisions/0032-looking-up-dns-records.md).

The system's `getaddrinfo` (`http.resolver`) also reads /etc/hosts and search domains, cannot query servers of a
caller's choice, and does not distinguish a name that does not exist from a server that fails. Evidence requires both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kubewright.base.errors import KubewrightError

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

MACHINE: Final = "/etc/resolv.conf"
_FORWARD: Final = ("A", "AAAA")
MOST_RECORDS: Final = 256
"""Records of one answer. More would be a mistake, or an attempt to keep us busy."""


class DNSUnavailable(KubewrightError):
    """There is no answer from any server. It is unknown whether the name exists."""


class DNSResolver:
    """Asks DNS servers, given as addresses with ports, or the machine's. `timeout` in seconds limits one look-up.

    `machine` is the file with the machine's servers. It is read again when it has changed; while it is missing, the
    previous servers are asked.
    """

    def __init__(self, servers: tuple[tuple[str, int], ...] = (), *, timeout: float, machine: str = MACHINE) -> None:
        self._servers = servers
        self._timeout = timeout
        self._machine = machine
        self._made: Resolver | None = None
        self._made_of: object = None

    async def addresses(self, name: str) -> frozenset[str]:
        """Return the addresses of an absolute name, aliases followed; none if there is no such name. Raises DNSUnavailable."""
        import asyncio

        found = await asyncio.gather(*(self._records(name, kind) for kind in _FORWARD))
        return frozenset[str]().union(*found)

    async def names(self, address: str) -> frozenset[str]:
        """Return the names to which an address leads back, in lower case; none if there are none. Raises DNSUnavailable."""
        from dns import reversename

        found = await self._records(reversename.from_address(address).to_text(), "PTR")
        return frozenset(one.lower().rstrip(".") for one in found)

    async def _records(self, name: str, kind: str) -> frozenset[str]:
        from dns.exception import DNSException
        from dns.resolver import NXDOMAIN

        try:
            answer = await self.resolver().resolve(f"{name.rstrip('.')}.", kind, raise_on_no_answer=False, lifetime=self._timeout)
        except NXDOMAIN:
            return frozenset()
        except (DNSException, OSError) as error:
            raise DNSUnavailable(f"{name}: no DNS server answers", detail=type(error).__name__, remedy="check the DNS servers") from error
        records = list(answer.rrset or ())
        if len(records) > MOST_RECORDS:
            raise DNSUnavailable(f"{name} has {len(records)} records", remedy="correct the zone")
        return frozenset(one.to_text() for one in records)

    def resolver(self) -> Resolver:
        """Return dnspython's resolver for the present servers. Raises DNSException if the machine has none."""
        state = None if self._servers else _state(self._machine)
        if self._made is None or (state is not None and state != self._made_of):
            from dns import asyncresolver
            from dns.nameserver import Do53Nameserver

            made = asyncresolver.Resolver(self._machine, configure=not self._servers)
            if self._servers:
                made.nameservers = [Do53Nameserver(address, port) for address, port in self._servers]
            made.timeout = max(self._timeout / 2, 0.1)  # of one server, so that there is time for a second one
            self._made, self._made_of = made, state
        return self._made


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is replaced or written to, None if there is no file."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
