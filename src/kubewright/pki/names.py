"""Names and addresses in the serving certificates (kubeadm v1.36: util/pkiutil)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kubewright.apis import formats
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.types import Configuration
    from kubewright.apis.machine import Addresses

_KUBEADM_LOOPBACKS: Final = ("127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Names:
    """The names in a certificate: DNS names sorted, addresses in their order, both without duplicates."""

    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dns or self.ips)


NO_NAMES: Final = Names()


def of(dns: Iterable[str], ips: Iterable[str], extra: Iterable[str] = ()) -> Names:
    """Return names; each of `extra` is an address if it parses as one, else a DNS name."""
    names, addresses = list(dns), [_canonical(ip) for ip in ips]
    for one in extra:
        address = formats.address(one)
        if address is None:
            names.append(one)
        else:
            addresses.append(str(address))
    return Names(dns=tuple(sorted(set(names))), ips=tuple(dict.fromkeys(addresses)))


def _canonical(text: str) -> str:
    """Return an address in its shortest form, other text unchanged."""
    return str(formats.address(text) or text)


def api_server(configuration: Configuration, addresses: Addresses) -> Names:
    """Return the names of the API server. The user's own DNS names are lower-cased."""
    cluster = configuration.cluster
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", f"kubernetes.default.svc.{cluster.networking.dns_domain}")
    endpoint = [endpoint_host(cluster.control_plane_endpoint)] if cluster.control_plane_endpoint else []
    return of(
        (configuration.init.node_registration.name, *service),
        (_service_address(cluster.networking.service_subnet), addresses.advertise),
        (*endpoint, *(name.lower() for name in cluster.api_server.cert_sans)),
    )


def etcd_server(configuration: Configuration, addresses: Addresses) -> Names:
    """Return the names of the etcd member for its clients."""
    local = configuration.cluster.etcd.local
    return _etcd(configuration, addresses, local.server_cert_sans if local else ())


def etcd_peer(configuration: Configuration, addresses: Addresses) -> Names:
    """Return the names of the etcd member for other members."""
    local = configuration.cluster.etcd.local
    return _etcd(configuration, addresses, local.peer_cert_sans if local else ())


def _etcd(configuration: Configuration, addresses: Addresses, extra: Iterable[str]) -> Names:
    node = configuration.init.node_registration.name
    return of((node, "localhost"), (addresses.advertise, *_loopbacks(addresses)), extra)


def _loopbacks(addresses: Addresses) -> tuple[str, ...]:
    """Return 127.0.0.1 and ::1 for any family, as kubeadm does.

    On a local machine the machine's own loopback addresses instead.
    """
    own = (addresses.loopback, addresses.etcd_loopback)
    return _KUBEADM_LOOPBACKS if set(own) <= set(_KUBEADM_LOOPBACKS) else own


def endpoint_host(endpoint: str) -> str:
    """Return the host of `host:port` or `[v6]:port`; a bare host or IPv6 address is returned unchanged."""
    if endpoint.startswith("["):
        return endpoint[1:].partition("]")[0]
    host, _, port = endpoint.rpartition(":")
    return host if host and ":" not in host and port.isascii() and port.isdigit() else endpoint


def _service_address(subnets: str) -> str:
    """Return the address of the Service `kubernetes`: the first of the first service subnet."""
    return str(formats.service_address(subnets, formats.API_SERVER_INDEX))


def covers(pattern: str, name: str) -> bool:
    """Whether a certificate's DNS name covers a wanted one: equal ignoring case, or a wildcard for exactly one label."""
    pattern, name = pattern.lower(), name.lower()
    if pattern == name:
        return True
    return pattern.startswith("*.") and name.partition(".")[2] == pattern[2:] and not name.startswith("*.")


def missing(wanted: Names, *, dns: Iterable[str], ips: Iterable[str]) -> list[str]:
    """Return the wanted names that a certificate with these names does not cover, in order."""
    patterns, addresses = list(dns), {_canonical(ip) for ip in ips}
    lacking = [name for name in wanted.dns if not any(covers(pattern, name) for pattern in patterns)]
    return lacking + [ip for ip in wanted.ips if _canonical(ip) not in addresses]
