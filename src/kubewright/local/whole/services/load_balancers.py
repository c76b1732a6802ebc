"""Addresses for Services of type LoadBalancer, which the host reaches.

Each Service gets, for each of its families, an address of the cluster's bridge that no machine has, and the host gets a
route to it via a machine that runs. kube-proxy of any machine accepts packets for the address, because it is in the
Service's status (kubernetes v1.36: pkg/proxy/nftables/proxier.go), which is the only record of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, Protocol

from kubewright.base.errors import HostError, KubewrightError, NotFound
from kubewright.base.records import dataclass
from kubewright.kube.answers import WatchEvent
from kubewright.kube.api import AsyncKubeAPI
from kubewright.kube.core import Object, metadata
from kubewright.kube.daemons.controller import SharedInformer
from kubewright.kube.daemons.informers import Key, key_of
from kubewright.kube.daemons.recorder import EventRecorder
from kubewright.kube.resources import SERVICE
from kubewright.machines.network import is_ipv6

_log = logging.getLogger(__name__)

Addresses = tuple[str, ...]
"""At most one of each family."""
AGAIN: Final = 10.0
"""Seconds after which routes are compared again without any event, and after which what failed is tried again."""
_EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""The label of Nodes to which load balancers send nothing if there are others; control planes have it."""
_OF_SERVICE: Final = "kubernetes.io/service-name"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A running machine, and the relevant data of its Node. `local` are the Services with a ready endpoint there."""

    addresses: tuple[str, ...]
    ready: bool = True
    excluded: bool = False
    local: frozenset[Key] = frozenset()


class Routes(Protocol):
    """The host's routes to single addresses: `machines.network.Network`."""

    def routes(self) -> dict[str, str]:
        """Return the gateways by address."""
        ...

    def route(self, address: str, via: str) -> None:
        """Create or change a route."""
        ...

    def end_route(self, address: str) -> None:
        """Remove a route."""
        ...


def family_of(address: str) -> str:
    """Return the family of an address, as Services name it."""
    return "IPv6" if is_ipv6(address) else "IPv4"


def assigned(
    services: Iterable[Object], pool: Sequence[str], *, recent: Mapping[Key, Addresses] = MappingProxyType({})
) -> dict[Key, Addresses]:
    """Return the addresses of each LoadBalancer Service, in the order of its families; those for which none is left are missing.

    Services keep theirs, also those in `recent`, which are not in the statuses that we know yet. A new one gets
    `spec.loadBalancerIP` if it is free, else the first free address; older Services come first.
    """
    ours = sorted(
        (one for one in services if _is_ours(one)), key=lambda one: (str(metadata(one).get("creationTimestamp")), str(key_of(one)))
    )
    wanted = [(service, family) for service in ours for family in _families(service)]
    found: dict[tuple[Key, str], str] = {}
    free = list(pool)
    for choose in (_present, lambda service: recent.get(key_of(service), ()), _requested, lambda _: tuple(free)):
        for service, family in wanted:
            given = [one for one in choose(service) if one in free and family_of(one) == family]
            if given and (key_of(service), family) not in found:
                found[key_of(service), family] = given[0]
                free.remove(given[0])
    chosen = {key_of(service): [found.get((key_of(service), family), "") for family in _families(service)] for service in ours}
    return {key: tuple(addresses) for key, addresses in chosen.items() if all(addresses)}


def status_of(service: Object, addresses: Addresses, pool: Sequence[str]) -> Object | None:
    """Return the patch that sets the addresses in a Service's status; None if it is right already.

    Addresses that are not ours are left alone.
    """
    present = _ingress(service)
    wanted = [{"ip": address, "ipMode": "VIP"} for address in addresses]
    if present == wanted or (not addresses and not any(one.get("ip") in pool for one in present)):
        return None
    return {"status": {"loadBalancer": {"ingress": wanted or None}}}


def routed(
    addresses: Mapping[Key, Addresses], services: Mapping[Key, Object], backends: Sequence[Backend], present: Mapping[str, str]
) -> dict[str, str]:
    """Return the machine for each address: the current one unless another one is better suited."""
    found = {}
    for key, address in ((key, address) for key, several in addresses.items() for address in several):
        only_local = services[key].get("spec", {}).get("externalTrafficPolicy") == "Local"

        def rank(backend: Backend, key: Key = key, address: str = address, only_local: bool = only_local) -> tuple[bool, ...]:
            elsewhere = only_local and key not in backend.local
            return elsewhere, not backend.ready, backend.excluded, present.get(address) not in backend.addresses

        best = min(backends, key=rank, default=None)
        via = next((one for one in best.addresses if family_of(one) == family_of(address)), "") if best is not None else ""
        if via:
            found[address] = via
    return found


def backends_of(machines: Mapping[str, Addresses], nodes: Mapping[Key, Object], slices: Iterable[Object]) -> list[Backend]:
    """Return the machines that run, given by name with their addresses, as the cluster sees them."""
    local: dict[str, set[Key]] = {}
    for one in slices:
        namespace = metadata(one).get("namespace")
        name = (metadata(one).get("labels") or {}).get(_OF_SERVICE)
        for endpoint in one.get("endpoints") or ():
            if name and endpoint.get("nodeName") and (endpoint.get("conditions") or {}).get("ready") is not False:
                local.setdefault(endpoint["nodeName"], set()).add((namespace, name))
    return [
        Backend(
            addresses=addresses,
            ready=_is_ready(nodes.get((None, name), {})),
            excluded=_EXCLUDED in (metadata(nodes.get((None, name), {})).get("labels") or {}),
            local=frozenset(local.get(name, ())),
        )
        for name, addresses in machines.items()
    ]


class LoadBalancers:
    """Keeps addresses, statuses and routes up to date. `machines` returns those that run, with their addresses."""

    name = "load balancers"

    def __init__(
        self,
        api: AsyncKubeAPI,
        *,
        services: SharedInformer,
        nodes: SharedInformer,
        slices: SharedInformer,
        machines: Callable[[], Mapping[str, Addresses]],
        routes: Routes,
        pool: Sequence[str],
        events: EventRecorder,
    ) -> None:
        self._api = api
        self._services = services
        self._nodes = nodes
        self._slices = slices
        self._machines = machines
        self._routes = routes
        self._pool = tuple(pool)
        self._events = events
        self._assigned: Mapping[Key, Addresses] = {}
        self._without: set[Key] = set()
        self._due = asyncio.Event()

    def look_again(self, _: WatchEvent | None = None) -> None:
        """Compare again: something may have changed."""
        self._due.set()

    async def run(self) -> None:
        """Work until cancelled; what has been assigned stays."""
        informers = (self._services, self._nodes, self._slices)
        for informer in informers:
            informer.subscribe(self.look_again)
            await informer.wait_synced()
        while True:
            self._due.clear()
            try:
                await self._settle()
            except KubewrightError as error:
                _log.warning("load balancers: tried again in %.0f s: %s", AGAIN, error)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN):
                    await self._due.wait()

    async def _settle(self) -> None:
        services = {key_of(one): one for one in self._services.objects.values()}
        addresses = assigned(services.values(), self._pool, recent=self._assigned)
        backends = backends_of(self._machines(), self._nodes.objects, self._slices.objects.values())
        present = {address: via for address, via in (await asyncio.to_thread(self._routes.routes)).items() if address in self._pool}
        wanted = routed(addresses, services, backends, present)
        for address in present.keys() - wanted.keys():
            with suppress(HostError):  # the kernel has already removed it, together with the bridge
                await asyncio.to_thread(self._routes.end_route, address)
        for address, via in wanted.items():
            if present.get(address) != via:
                await asyncio.to_thread(self._routes.route, address, via)
        for key, service in services.items():  # after the routes: an address that is shown is one that answers
            patch = status_of(service, addresses.get(key, ()), self._pool)
            if patch is not None:
                with suppress(NotFound):
                    await self._api.patch(SERVICE, key[1], patch, key[0], type="merge", subresource="status")
                if key in addresses and self._assigned.get(key) != addresses[key]:
                    self._events.event(
                        service, kind="Normal", reason="AddressAssigned", message=f"the host reaches it at {' and '.join(addresses[key])}"
                    )
        self._assigned = addresses
        self._tell_without({key for key, service in services.items() if _is_ours(service) and key not in addresses}, services)

    def _tell_without(self, without: set[Key], services: Mapping[Key, Object]) -> None:
        """Report each Service for which no address is left, once."""
        for key in without - self._without:
            message = f"all {len(self._pool)} addresses are assigned to other Services"
            self._events.event(services[key], kind="Warning", reason="NoAddressLeft", message=message)
        self._without = without


def _is_ours(service: Object) -> bool:
    spec = service.get("spec", {})
    return spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass") and not metadata(service).get("deletionTimestamp")


def _families(service: Object) -> tuple[str, ...]:
    """Return the families of a Service; an API server of a version that we support always writes them."""
    return tuple(service.get("spec", {}).get("ipFamilies") or ("IPv4",))


def _ingress(service: Object) -> list[dict[str, Any]]:
    return list(((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ())


def _present(service: Object) -> Addresses:
    return tuple(str(one["ip"]) for one in _ingress(service) if "ip" in one)


def _requested(service: Object) -> Addresses:
    return (str(service.get("spec", {}).get("loadBalancerIP") or ""),)


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)
