"""What other approvers of serving certificates check, as short models: enough to show what each of them lets through.

postfinance's is kubelet-csr-approver 1.2 (internal/controller/csr_controller.go, regex_ip_checks.go), OpenShift's is
cluster-machine-approver (pkg/controller/csr_check.go); k0s is modelled before and since its change of September 2026.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from kubewright.base.errors import CertificateError
from kubewright.base.records import dataclass, field
from kubewright.controllers.requests import KUBELET_SERVING, SigningRequest

APPROVE, DENY, NOTHING = "approve", "deny", "nothing"
_USER = "system:node:"


@dataclass(frozen=True, kw_only=True)
class World:
    """What a peer sees besides the request: DNS records (None: the server fails), Nodes and Machines with their names and addresses."""

    dns: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    nodes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    machines: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ("0.0.0.0/0", "::/0")
    dns_names: int = 1


Peer = Callable[[SigningRequest, World], str]


def postfinance(csr: SigningRequest, world: World) -> str:
    """Its regular expression is the default, which matches every name."""
    found = csr.details()
    dns, addresses = found.names.dns, found.names.addresses
    if not csr.username.startswith(_USER) or not dns + addresses or found.common_name != csr.username:
        return DENY
    if len(dns) > world.dns_names or not all(name.startswith(csr.username.removeprefix(_USER)) for name in dns):
        return DENY
    resolved = [world.dns.get(name) for name in dns]
    if not all(resolved):
        return DENY
    pooled = {address for one in resolved for address in one or ()}
    if dns and not set(addresses) <= pooled:
        return DENY
    return APPROVE if all(_inside(address, world.prefixes) for address in (*pooled, *addresses)) else DENY


def openshift(csr: SigningRequest, world: World) -> str:
    """It never denies: it returns an error and tries again."""
    found = csr.details()
    needed = {"digital signature", "server auth"}
    usages_pass = len(csr.usages) in {2, 3} and needed <= set(csr.usages)
    if not usages_pass or found.common_name != csr.username or "system:nodes" not in found.organizations:
        return NOTHING
    own = world.machines.get(csr.username.removeprefix(_USER), ())
    sans = [*(name.lower().rstrip(".") for name in found.names.dns), *found.names.addresses]
    return APPROVE if sans and set(sans) <= set(own) else NOTHING


def openshift_pass(pending: Sequence[SigningRequest], world: World) -> list[str]:
    """It approves nothing at all while more requests are open than there are Machines or Nodes, and 100 (maxPendingDelta)."""
    if len(pending) > max(len(world.machines), len(world.nodes)) + 100:
        return []
    return [csr.name for csr in pending if openshift(csr, world) == APPROVE]


def old_k0s_pass(pending: Sequence[SigningRequest], world: World) -> list[str]:
    """A pass goes through the requests by name, and ends with the first approval or error."""
    for csr in sorted(pending, key=lambda one: one.name):
        try:
            if old_k0s(csr, world) == APPROVE:
                return [csr.name]
        except CertificateError:
            return []
    return []


def old_k0s(csr: SigningRequest, world: World) -> str:
    """It compares the name in the request with nothing."""
    return APPROVE if csr.signer == KUBELET_SERVING and csr.details().common_name.startswith(_USER) else NOTHING


def k0s(csr: SigningRequest, world: World) -> str:
    found = csr.details()
    if not csr.username.startswith(_USER) or found.common_name != csr.username:
        return NOTHING
    reported = world.nodes.get(csr.username.removeprefix(_USER), ())
    return APPROVE if {*found.names.dns, *found.names.addresses} <= set(reported) else NOTHING


def talos(csr: SigningRequest, world: World) -> str:
    """It looks the Node up by the first DNS name of the request."""
    found = csr.details()
    if not found.names.dns or any(name == "kubernetes" or name.startswith("kubernetes.") for name in found.names.dns):
        return DENY
    reported = world.nodes.get(found.names.dns[0])
    return APPROVE if reported is not None and set(found.names.addresses) <= set(reported) else DENY


def serving_cert_approver(csr: SigningRequest, world: World) -> str:
    found = csr.details()
    good = found.organizations == ("system:nodes",) and found.common_name == csr.username and csr.username.startswith(_USER)
    some = bool(found.names.dns or found.names.addresses) and not found.names.emails and not found.names.uris
    allowed = {"digital signature", "key encipherment", "server auth"}
    return APPROVE if good and some and set(csr.usages) <= allowed else NOTHING


def _inside(address: str, prefixes: tuple[str, ...]) -> bool:
    found = ipaddress.ip_address(address)
    return any(found in network for network in map(ipaddress.ip_network, prefixes) if network.version == found.version)
