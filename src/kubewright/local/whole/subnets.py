"""The ranges of pods and Services of a cluster of machines, as its user's documents name them, and the families of both. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Final

from kubewright.apis.kubeadm.types import SERVICE_SUBNET
from kubewright.base.errors import ValidationError
from kubewright.base.fields import FieldError, FieldErrorType, FieldPath
from kubewright.base.records import dataclass
from kubewright.local.user_documents import SOURCE, documents_of, field
from kubewright.machines.network import POD_SUBNET, is_ipv6

_CLUSTER: Final = "ClusterConfiguration"
_PODS: Final = {False: POD_SUBNET, True: "fd00:10:244::/56"}
"""The ranges of pods for IPv4 and IPv6 unless the user names some."""
_SMALLEST: Final = {False: 20, True: 112}
"""The longest prefixes of these ranges: each of 256 machines has a part."""


@dataclass(frozen=True, kw_only=True)
class Subnets:
    """The ranges of a cluster: at most one of each family, that of the first family first."""

    pods: tuple[str, ...]
    services: tuple[str, ...]

    def families_of(self, addresses: Iterable[str]) -> tuple[str, ...]:
        """Return the addresses of the families that pods have."""
        families = set(map(is_ipv6, self.pods))
        return tuple(one for one in addresses if is_ipv6(one) in families)


def of(config: str) -> Subnets:
    """Return the ranges of a cluster with this configuration.

    Pods have at least the families of Services, as kube-proxy requires it. Raises ValidationError, naming every wrong field.
    """
    documents, found, errors = documents_of(config), dict[str, tuple[str, ...]](), list[FieldError]()
    for name in ("serviceSubnet", "podSubnet"):
        given = field(documents, _CLUSTER, "networking", name)
        try:
            found[name] = _ranges(given) if given else ()
        except ValueError as error:
            errors.append(_error(name, str(error), given))
    services = found.get("serviceSubnet") or (SERVICE_SUBNET,)
    pods = found.get("podSubnet") or tuple(_PODS[is_ipv6(one)] for one in services)
    for one in pods:
        if ipaddress.ip_network(one).prefixlen > (longest := _SMALLEST[is_ipv6(one)]):
            errors.append(_error("podSubnet", f"is too small for 256 machines: at most /{longest}", one))
    if len(found) == 2 and (missing := set(map(is_ipv6, services)) - set(map(is_ipv6, pods))):
        family = "IPv6" if True in missing else "IPv4"
        errors.append(_error("podSubnet", f"has no range of {family}, which Services have (networking.serviceSubnet)", ",".join(pods)))
    if not errors:
        return Subnets(pods=pods, services=services)
    raise ValidationError(f"{SOURCE} names ranges that a cluster of machines cannot have", errors, remedy="correct them, or leave them out")


def _ranges(given: object) -> tuple[str, ...]:
    """Return the ranges in a text. Raises ValueError."""
    found = [str(ipaddress.ip_network(one.strip())) for one in str(given).split(",")]
    if len(found) != len(set(map(is_ipv6, found))):
        raise ValueError("has two ranges of the same family")
    return tuple(found)


def _error(name: str, reason: str, value: object) -> FieldError:
    return FieldError(path=FieldPath(f"networking.{name}"), type=FieldErrorType.INVALID, reason=reason, value=value)
