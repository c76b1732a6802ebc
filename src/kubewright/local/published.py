"""Ports of the host that a cluster of machines publishes, as users write them: `[ADDRESS:]HOST:TARGET[/udp]`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from kubewright.apis import formats
from kubewright.base.errors import UsageError
from kubewright.base.messages import quoted
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass

LOOPBACK: Final = "127.0.0.1"
TCP: Final = "tcp"
_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not bound
_SPEC: Final = Pattern(r"(?:(\[[^\]]*\]|[^:\[\]]*):)?([0-9]{1,5}):([0-9]{1,5})(?:/(tcp|udp))?")
_HOST: Final = Pattern(r"(?:(\[[^\]]*\]|[^:\[\]]*):)?([0-9]{1,5})(?::[0-9]{1,5})?(?:/(tcp|udp))?")
_REMEDY: Final = "write HOST:TARGET, for example 8080:30080, 8080:30080/udp or 192.0.2.7:8080:30080"


@dataclass(frozen=True, kw_only=True)
class PublishedPort:
    """A port of the host, and the port of the machines, a NodePort or a hostPort, to which its connections go."""

    address: str
    port: int
    target: int
    protocol: str = TCP

    def __str__(self) -> str:
        return f"{self.listener}:{self.target}/{self.protocol}"

    @property
    def listener(self) -> str:
        """The address and the port on the host."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def blocks(self, other: PublishedPort) -> bool:
        """Return whether another port cannot be published next to this one."""
        if (self.port, self.protocol) != (other.port, other.protocol) or (":" in self.address) != (":" in other.address):
            return False
        return self.address == other.address or bool(_WILDCARDS & {self.address, other.address})


def parse(text: str, *, address: str = LOOPBACK) -> PublishedPort:
    """Parse what a user writes; `address` applies where the text has none. Raises UsageError."""
    found = _SPEC.fullmatch(text)
    if found is None:
        raise UsageError(f"{quoted(text)} does not publish a port", remedy=_REMEDY)
    listen, port, target, protocol = found.groups()
    return PublishedPort(
        address=_address(listen if listen is not None else address, text),
        port=_port(port, text),
        target=_port(target, text),
        protocol=protocol or TCP,
    )


def parse_all(texts: Sequence[str], *, address: str = "") -> tuple[PublishedPort, ...]:
    """Parse several; `address` applies to those without one. Raises UsageError, also for an address without any port."""
    if address and not texts:
        raise UsageError("--address is where published ports listen, but no port is given", remedy=f"{_REMEDY}; or leave --address out")
    return tuple(parse(text, address=address or LOOPBACK) for text in texts)


def added(published: Sequence[PublishedPort], wanted: Iterable[PublishedPort]) -> tuple[PublishedPort, ...]:
    """Return the ports with further ones; those that are published already are left out.

    Raises UsageError for a port of the host that is published to another one.
    """
    found = list(published)
    for one in wanted:
        other = next((other for other in found if other.blocks(one)), None)
        if other is None:
            found.append(one)
        elif other != one:
            raise UsageError(
                f"{one.listener}/{one.protocol} is published to port {other.target} already",
                remedy=f"choose another port of the host; `kubewright local publish --remove {other.port}` frees one",
            )
    return tuple(found)


def without(published: Sequence[PublishedPort], texts: Iterable[str]) -> tuple[PublishedPort, ...]:
    """Return the ports without those that texts name: `8080`, `8080/udp`, or all of a published port.

    Raises UsageError for a text that names none.
    """
    found = list(published)
    for text in texts:
        named = _HOST.fullmatch(text)
        if named is None:
            raise UsageError(f"{quoted(text)} is not a port of the host", remedy="use one like 8080 or 8080/udp")
        listen, port, protocol = named.groups()
        chosen = [one for one in found if one.port == int(port) and protocol in {None, one.protocol}]
        chosen = [one for one in chosen if listen is None or one.address == _address(listen, text)]
        if not chosen:
            there = ", ".join(map(str, published))
            raise UsageError(f"port {text} is not published", remedy=f"these are: {there}" if there else "no port is published")
        found = [one for one in found if one not in chosen]
    return tuple(found)


def _address(text: str, spec: str) -> str:
    found = formats.address(text.removeprefix("[").removesuffix("]"))
    if found is None:
        raise UsageError(f"{quoted(spec)} has no address to listen on: {quoted(text)} is none", remedy=_REMEDY)
    return str(found)


def _port(text: str, spec: str) -> int:
    if not 0 < int(text) < 65536:
        raise UsageError(f"{quoted(spec)}: {text} is not a port", remedy="ports are 1 to 65535")
    return int(text)
