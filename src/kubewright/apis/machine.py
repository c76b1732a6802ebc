"""One machine as values: its paths (`Layout`), its listening addresses (`Addresses`), and its facts (`Detected`).

kubeadm's directories, ports and loopback addresses are the defaults. A local machine has all of them below its state
directory, and at its own address.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.formats import address
from kubewright.base.records import dataclass, field, replace

CRI_SOCKET: Final = "unix:///var/run/containerd/containerd.sock"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The directories of one machine. Every renderer uses it; no path is hard-coded."""

    kubernetes: PurePosixPath = PurePosixPath("/etc/kubernetes")
    pki: PurePosixPath = PurePosixPath("/etc/kubernetes/pki")
    kubelet: PurePosixPath = PurePosixPath("/var/lib/kubelet")
    etcd_data: PurePosixPath = PurePosixPath("/var/lib/etcd")
    run: PurePosixPath = PurePosixPath("/run/kubewright")
    """Files that need not survive a boot: locks."""
    state: PurePosixPath = PurePosixPath("/var/lib/kubewright")
    """Our files that outlive a run: `kept_files`, and those that are not this machine's, such as the state of a hub."""
    cri_socket: str = ""
    """The socket of its container runtime, `unix://` and a path; empty: the one that exists."""
    etc: PurePosixPath = PurePosixPath("/etc")
    """The directory of the machine's users and groups."""
    oneinfra: PurePosixPath = PurePosixPath("/etc/oneinfra")
    """The files of a machine that has joined through a hub, where stock nodes have them."""

    @classmethod
    def below(cls, root: PurePosixPath) -> Layout:
        """Return a layout with kubeadm's tree below our own directory: `ROOT/kubernetes`, `ROOT/kubelet`, and so on."""
        return cls(
            kubernetes=root / "kubernetes",
            pki=root / "kubernetes" / "pki",
            kubelet=root / "kubelet",
            etcd_data=root / "etcd",
            run=root / "run",
            state=root / "state",
            etc=root / "etc",
            oneinfra=root / "oneinfra",
        )

    def at(self, *, pki: str, etcd_data: str | None) -> Layout:
        """Return the layout with the two paths that a ClusterConfiguration may change: certificatesDir and etcd.local.dataDir."""
        moved = replace(self, pki=PurePosixPath(pki))
        return moved if etcd_data is None else replace(moved, etcd_data=PurePosixPath(etcd_data))

    @property
    def machine_record(self) -> PurePosixPath:
        """The record of the configuration that the machine was created with."""
        return self.state / "machine.json"

    @property
    def join_key(self) -> PurePosixPath:
        """The key of a join through a hub, until the join is complete."""
        return self.state / "node-join.key"

    @property
    def tunnel_key(self) -> PurePosixPath:
        """The key of this machine's end of a VPN until the hub has answered: the only file left by a refused join."""
        return self.state / "node-tunnel.key"

    @property
    def next_tunnel_key(self) -> PurePosixPath:
        """The next tunnel key, until the hub has accepted it."""
        return self.state / "node-tunnel-next.key"

    @property
    def kubelet_service(self) -> PurePosixPath:
        """Records whether the kubelet's service was enabled before a join through a hub enabled it."""
        return self.state / "kubelet-service.json"

    @property
    def checkpoints(self) -> PurePosixPath:
        """The directory of files that operations have replaced."""
        return self.state / "checkpoints"

    @property
    def patches(self) -> PurePosixPath:
        """The directory with the patches of the last run."""
        return self.state / "patches"

    @property
    def patches_list(self) -> PurePosixPath:
        """The file with the source and the hashes of the patches of the last run."""
        return self.state / "patches.json"

    @property
    def kept_files(self) -> tuple[PurePosixPath, ...]:
        """Our files that are kept between runs; the record is removed last."""
        secrets = (self.join_key, self.tunnel_key, self.next_tunnel_key)
        return (*secrets, self.kubelet_service, self.patches, self.patches_list, self.checkpoints, self.machine_record)

    @property
    def units(self) -> PurePosixPath:
        """The directory of the administrator's units of systemd."""
        return self.etc / "systemd" / "system"

    @property
    def cni(self) -> PurePosixPath:
        """The directory where container runtimes look for the configuration of pod networks."""
        return self.etc / "cni" / "net.d"

    @property
    def manifests(self) -> PurePosixPath:
        """The static pod directory."""
        return self.kubernetes / "manifests"

    def manifest(self, component: str) -> PurePosixPath:
        """The static pod manifest of a component."""
        return self.manifests / f"{component}.yaml"

    def kubeconfig(self, name: str) -> PurePosixPath:
        """The kubeconfig of a name such as `admin` or `controller-manager`."""
        return self.kubernetes / f"{name}.conf"

    def certificate(self, base: str) -> PurePosixPath:
        """The certificate file of a base name such as `apiserver` or `etcd/server`."""
        return self.pki / f"{base}.crt"

    def key(self, base: str) -> PurePosixPath:
        """The private key file of a base name."""
        return self.pki / f"{base}.key"

    @property
    def kubelet_config(self) -> PurePosixPath:
        """The kubelet's configuration file."""
        return self.kubelet / "config.yaml"

    @property
    def kubelet_instance_config(self) -> PurePosixPath:
        """The kubelet's per-machine configuration, which kubeadm merges in."""
        return self.kubelet / "instance-config.yaml"

    @property
    def kubelet_flags(self) -> PurePosixPath:
        """The environment file that the kubelet's unit reads."""
        return self.kubelet / "kubeadm-flags.env"

    @property
    def kubelet_client_current(self) -> PurePosixPath:
        """The link to the kubelet's current client certificate and key."""
        return self.kubelet / "pki" / "kubelet-client-current.pem"


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

    `advertise` is the IP at which others reach it. `loopback` is used wherever kubeadm writes 127.0.0.1, and
    `etcd_loopback` where it writes 127.0.0.1 or, on a machine with an IPv6 advertise address, ::1 (only etcd follows
    the family; kubeadm v1.36).
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
    """Return a URL without a path from a host and a port."""
    return f"{scheme}://{host_port(host, port)}"


@dataclass(frozen=True, kw_only=True)
class Detected:
    """Facts of one machine, gathered once by `host.facts`."""

    host_name: str
    default_ipv4: str | None = None
    default_ipv6: str | None = None
    loopback_global: str | None = None
    """A global address configured on the loopback interface, if any (it replaces a loopback advertise address)."""
    cri_sockets: tuple[str, ...] = ()
    """The known container runtime sockets that exist."""
    systemd_resolved: bool = False
    ca_directories: tuple[str, ...] = ()
    """Those of the host's well-known CA directories that exist (kubeadm v1.36: phases/controlplane/volumes.go)."""
    proxy_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of our own environment whose name ends in `_proxy`, any case, not empty."""
