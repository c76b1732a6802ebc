"""Where everything of one machine listens. kubeadm's ports and loopback addresses are the defaults."""

from __future__ import annotations

from kubewright.apis.formats import address
from kubewright.base.records import dataclass, field

API_SERVER_PORT = 6443


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports of one machine."""

    api_server: int = API_SERVER_PORT
    etcd_client: int = 2379
    etcd_peer: int = 2380
    etcd_metrics: int = 2381
    controller_manager: int = 10257
    scheduler: int = 10259
    kubelet: int = 10250
    kubelet_health: int = 10248


@dataclass(frozen=True, kw_only=True)
class Addresses:
    """The addresses of one machine.

    `advertise` is the IP that others reach it by. `loopback` stands wherever kubeadm writes 127.0.0.1, and `etcd_loopback` where it
    writes 127.0.0.1 or, on a machine with an IPv6 advertise address, ::1 (only etcd follows the family; kubeadm v1.36).
    On a local machine all three are the machine's own 127.0.0.N.
    """

    advertise: str
    loopback: str = "127.0.0.1"
    etcd_loopback: str = "127.0.0.1"
    ports: Ports = field(default_factory=Ports)

    @classmethod
    def of_machine(cls, advertise: str, *, bind_port: int = API_SERVER_PORT) -> Addresses:
        """Return kubeadm's addresses for a machine."""
        found = address(advertise)
        six = found is not None and found.version == 6
        return cls(advertise=advertise, etcd_loopback="::1" if six else "127.0.0.1", ports=Ports(api_server=bind_port))

    @property
    def api_server(self) -> str:
        """The local API endpoint, `https://IP:PORT`."""
        return url(self.advertise, self.ports.api_server)


def host_port(host: str, port: int) -> str:
    """Join a host and a port, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url(host: str, port: int, *, scheme: str = "https") -> str:
    """Make a URL without a path of a host and a port."""
    return f"{scheme}://{host_port(host, port)}"
