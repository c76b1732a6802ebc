"""The addresses that a Node reports. Pure except for the look-up that is passed in.

Source: kubelet v1.36: pkg/kubelet/nodestatus, NodeAddress.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kubewright.apis import formats
from kubewright.base.errors import HostError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.host.readers import Network

if TYPE_CHECKING:
    from kubewright.host.network.interfaces import Family

LookUp = Callable[[str], Sequence[str]]
"""Returns the addresses of a host name, which may be none. Blocks."""

_REMEDY: Final = "set an address of this machine with --node-ip"


def node_addresses(given: Sequence[str], *, name: str, network: Network, look_up: LookUp) -> tuple[str, ...]:
    """Return the InternalIPs of a node.

    They are those given, else the address that its name resolves to, else that of the default route. At most two are
    `given`; an unspecified address means any address of its family. Raises HostError if none is found, or if one does
    not belong to this machine.
    """
    own = {one.address for one in network.interface_addresses()}
    specified = [address for address in given if not ipaddress.ip_address(address).is_unspecified]
    for address in specified:
        if reason := _unusable(address, own):
            raise HostError(f"the node IP {address} cannot be used: {reason}", remedy=_REMEDY)
    if specified:
        return tuple(specified)
    if _is_address(name):
        return canonical((name,))
    first: Family = 6 if given and ":" in given[0] else 4
    found = [address for address in look_up(name) if not _unusable(address, own)]
    by_family = sorted(found, key=lambda address: (6 if ":" in address else 4) != first)
    chosen = by_family[0] if by_family else network.default_address(family=first)
    if chosen is None:
        raise HostError(f"no address of node {name} was found", detail="neither its name nor a default route leads to one", remedy=_REMEDY)
    return (chosen,)


def canonical(given: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of `--node-ip` as Go writes them, without blanks and empty ones; others stay as they are."""
    texts = (text for one in given if (text := one.strip()))
    return tuple(str(formats.address(text) or text) for text in texts)


def node_ip_errors(given: Iterable[str]) -> list[FieldError]:
    """Return the errors in the canonical addresses of `--node-ip`: they must be one, or two of different families."""
    path, values = FieldPath("--node-ip"), list(given)
    bad = [value for value in values if not _is_address(value)]
    if bad:
        return [FieldError(path=path, type=FieldErrorType.INVALID, value=value, reason="must be an IP address") for value in bad]
    families = {":" in value for value in values}
    unspecified = len(values) == 2 and any(ipaddress.ip_address(value).is_unspecified for value in values)
    if len(values) > 2 or (len(values) == 2 and (len(families) == 1 or unspecified)):
        reason = "must be one address, or two of different families, neither of them unspecified"
        return [FieldError(path=path, type=FieldErrorType.INVALID, value=",".join(values), reason=reason)]
    return []


def _is_address(text: str) -> bool:
    return formats.address(text) is not None


def _unusable(address: str, own: set[str]) -> str:
    found = ipaddress.ip_address(address)
    for broken, reason in (
        (found.is_loopback, "it is a loopback address"),
        (found.is_multicast, "it is a multicast address"),
        (found.is_link_local, "it is a link-local address"),
        (found.is_unspecified, "it is not the address of a single machine"),
        (str(found) not in own, "no interface of this machine has it"),
    ):
        if broken:
            return reason
    return ""
