"""Where everything of one machine lies. kubeadm's places are the defaults; a local machine puts all of it below its state directory."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from kubewright.base.records import dataclass, replace

CRI_SOCKET: Final = "unix:///var/run/containerd/containerd.sock"


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The directories of one machine. Every renderer takes it; nothing writes a path out."""

    kubernetes: PurePosixPath = PurePosixPath("/etc/kubernetes")
    pki: PurePosixPath = PurePosixPath("/etc/kubernetes/pki")
    kubelet: PurePosixPath = PurePosixPath("/var/lib/kubelet")
    etcd_data: PurePosixPath = PurePosixPath("/var/lib/etcd")
    run: PurePosixPath = PurePosixPath("/run/kubewright")
    """What need not survive a boot: locks."""
    state: PurePosixPath = PurePosixPath("/var/lib/kubewright")
    """What we keep of the machine between runs."""
    cri_socket: str = ""
    """Where its container runtime answers, `unix://` and a path; empty: the one that is there."""
    etc: PurePosixPath = PurePosixPath("/etc")
    """Where the machine keeps its users and groups."""

    @classmethod
    def below(cls, root: PurePosixPath) -> Layout:
        """Return a layout with kubeadm's tree below a directory of our own: `ROOT/kubernetes`, `ROOT/kubelet`, and so on."""
        return cls(
            kubernetes=root / "kubernetes",
            pki=root / "kubernetes" / "pki",
            kubelet=root / "kubelet",
            etcd_data=root / "etcd",
            run=root / "run",
            state=root / "state",
            etc=root / "etc",
        )

    def at(self, *, pki: str, etcd_data: str | None) -> Layout:
        """Return the layout with the two places that a ClusterConfiguration may move: certificatesDir and etcd.local.dataDir."""
        moved = replace(self, pki=PurePosixPath(pki))
        return moved if etcd_data is None else replace(moved, etcd_data=PurePosixPath(etcd_data))

    @property
    def machine_record(self) -> PurePosixPath:
        """What we keep of what the machine was made of."""
        return self.state / "machine.json"

    @property
    def cni(self) -> PurePosixPath:
        """Where container runtimes look for the configuration of pod networks."""
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
        """The kubelet's per-machine configuration that kubeadm merges in."""
        return self.kubelet / "instance-config.yaml"

    @property
    def kubelet_flags(self) -> PurePosixPath:
        """The environment file that the kubelet's unit reads."""
        return self.kubelet / "kubeadm-flags.env"

    @property
    def kubelet_client_current(self) -> PurePosixPath:
        """The link to the kubelet's present client certificate and key."""
        return self.kubelet / "pki" / "kubelet-client-current.pem"
