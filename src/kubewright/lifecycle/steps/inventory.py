"""A cluster's files and other traces on a machine that will be removed: the list before the confirmation, and the input of the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.apis.machine import Layout
from kubewright.base.errors import HostError, RuntimeSilent
from kubewright.base.records import dataclass
from kubewright.host.failures import expected
from kubewright.host.seam import Host
from kubewright.host.states import ServiceState
from kubewright.lifecycle.background_task import BackgroundTask
from kubewright.lifecycle.steps.detected_cluster import DetectedCluster, Member

if TYPE_CHECKING:
    from kubewright.host.programs.packet_filter import Rules
    from kubewright.host.states import Sandbox

SERVICE: Final = "kubelet"
KUBECONFIGS: Final = ("admin", "super-admin", "kubelet", "bootstrap-kubelet", "controller-manager", "scheduler")
CONTROLLERS: Final = "kubewright-controllers"
"""The kubeconfig of our controllers, as in `pki.table`; few machines have it."""
CNI_FILES: Final = frozenset({".conf", ".conflist", ".json", ".kubeconfig"})
"""Files of a CNI directory that container runtimes read, and the kubeconfigs of plugins next to them."""
NAMED: Final = 12
"""How many pods the list names."""


@dataclass(frozen=True, kw_only=True)
class CleanupOptions:
    """What is removed in addition to kubeadm's reset.

    `whole_pki` False: the certificate directory was detected, and not named explicitly.
    """

    temporary: bool = False
    cni: bool = False
    packet_filter: bool = False
    node: bool = False
    whole_pki: bool = True


class Inventory:
    """The existing objects, each kind read once, at first use. `host` has the layout with the cluster's own paths."""

    def __init__(self, host: Host, *, detected: DetectedCluster, options: CleanupOptions, default_pki: PurePosixPath) -> None:
        self._host = host
        self._detected = detected
        self._default_pki = default_pki
        self.options = options
        self._pods = BackgroundTask(self._list_pods)

    @property
    def layout(self) -> Layout:
        """The paths of the machine."""
        return self._host.layout

    def _list_pods(self) -> list[Sandbox]:
        return self._host.runtime.sandboxes()

    @property
    def member(self) -> Member | None:
        """The etcd member of this machine."""
        return self._detected.member

    @property
    def etcd_data(self) -> list[PurePosixPath]:
        """The contents of the data directory of this machine's member; none if the directory is not its own."""
        return self._host.entries(self.layout.etcd_data) if self.member is not None else []

    @property
    def foreign_data(self) -> bool:
        """Whether there is data of an etcd that is not this machine's."""
        return self.member is None and bool(self._host.entries(self.layout.etcd_data))

    @functools.cached_property
    def kubelet(self) -> ServiceState | None:
        """The kubelet's service."""
        return self._host.service(SERVICE)

    @functools.cached_property
    def units(self) -> list[PurePosixPath]:
        """The unit files of the kubelet that we installed."""
        from kubewright.manifests.kubelet import OWN_FILES, is_ours

        return [path for path in OWN_FILES if is_ours(self._host.read(path))]

    @functools.cached_property
    def tunnel(self) -> PurePosixPath | None:
        """The unit of the VPN through which this machine was joined, None if there is none."""
        from kubewright.manifests.tunnels import NODE_INTERFACE, is_ours, unit_path

        path = unit_path(NODE_INTERFACE)
        return path if is_ours(self._host.read(path)) else None

    def begin(self) -> None:
        """Start to query the container runtime, which takes as long as everything else together."""
        self._pods.begin()

    @functools.cached_property
    def pods(self) -> list[Sandbox] | HostError:
        """The pods that the container runtime knew when it was first queried, or why they are unknown."""
        try:
            return self._pods.result()
        except HostError as error:
            return error
        except Exception as error:
            return HostError("the pods of this machine are not known", detail=str(expected(error)))

    @property
    def mounts(self) -> list[PurePosixPath]:
        """The mount points below the kubelet's directory, in the order in which they were mounted."""
        return self._host.mounts(self.layout.kubelet)

    @property
    def directories(self) -> list[PurePosixPath]:
        """The directories that are emptied: in kubeadm's order, then that of a machine which has joined through a hub."""
        layout = self.layout
        certificates = layout.pki if self.options.whole_pki else self._default_pki
        kubelet, oneinfra = ([path] if self._host.state(path) is not None else [] for path in (layout.kubelet, layout.oneinfra))
        temporary = [layout.kubernetes / "tmp"] if self.options.temporary else []
        return [layout.manifests, *kubelet, certificates, *temporary, *oneinfra]

    @property
    def kubeconfigs(self) -> list[PurePosixPath]:
        """The kubeconfigs that are removed: kubeadm's, whether they exist or not, and the one of our controllers if there is one."""
        own = self.layout.kubeconfig(CONTROLLERS)
        try:
            is_there = self._host.state(own) is not None
        except HostError:
            is_there = True  # its removal is tried, and the error reported
        return [*map(self.layout.kubeconfig, KUBECONFIGS), *([own] if is_there else [])]

    @functools.cached_property
    def certificates(self) -> list[PurePosixPath]:
        """The cluster's files in a certificate directory that was not named explicitly: ours by their names, no others."""
        layout = self.layout
        if self.options.whole_pki or layout.pki == self._default_pki:
            return []
        from kubewright.pki import table

        bases = [row.base for row in table.CERTIFICATES]
        names = [*(f"{base}{end}" for base in bases for end in (".crt", ".key")), "sa.pub", "sa.key"]
        return [path for name in dict.fromkeys(names) if self._host.state(path := layout.pki / name) is not None]

    @functools.cached_property
    def accounts(self) -> bool:
        """Whether users and groups of a rootless control plane are removed."""
        return self._detected.rootless

    @functools.cached_property
    def cni(self) -> list[PurePosixPath]:
        """The CNI files to remove, if requested."""
        return [path for path in self._host.entries(self.layout.cni) if path.suffix in CNI_FILES] if self.options.cni else []

    @functools.cached_property
    def rules(self) -> list[Rules] | HostError:
        """The packet filter rules to remove, if requested, or why they are unknown."""
        try:
            return self._host.packet_filter.found() if self.options.packet_filter else []
        except HostError as error:
            return error

    def listing(self) -> list[str]:
        """Return what will be removed, one line each; empty if there is nothing.

        Unreadable parts are listed as such, without an error.
        """
        return [f"{kind}: {text}" for kind, look in self._rows() if (text := _described(look))]

    def _rows(self) -> Iterator[tuple[str, Callable[[], str]]]:
        layout, host = self.layout, self._host
        yield "service that is stopped", lambda: SERVICE if (found := self.kubelet) is not None and (found.running or found.again) else ""
        yield "pods", lambda: _pods(self.pods)
        yield "mounts", lambda: _listed(self.mounts)
        yield "etcd member", lambda: self.member.peer_url if self.member else ""
        yield "contents of directories", lambda: _listed([path for path in self._emptied() if host.entries(path)])
        yield "files", lambda: _listed([path for path in (*self.kubeconfigs, *self.certificates) if host.state(path) is not None])
        yield "units of the kubelet that kubewright installed", lambda: _listed(self.units)
        yield "tunnel of a VPN", lambda: str(self.tunnel or "")
        yield "users and groups", lambda: "those of the control plane" if self.accounts else ""
        yield "CNI configuration", lambda: _listed(self.cni)
        yield "packet filter", lambda: "" if isinstance(self.rules, HostError) else ", ".join(rules.target for rules in self.rules)
        yield "kubewright's records of this machine", lambda: _listed([path for path in layout.kept_files if host.state(path) is not None])

    def _emptied(self) -> list[PurePosixPath]:
        return [*([self.layout.etcd_data] if self.member else []), *self.directories]


def _described(look: Callable[[], str]) -> str:
    """Return what is found, or why it is unknown."""
    try:
        return look()
    except Exception as error:
        return f"not known: {expected(error)}"


def _listed(paths: list[PurePosixPath]) -> str:
    return ", ".join(map(str, paths))


def _pods(pods: list[Sandbox] | HostError) -> str:
    if isinstance(pods, HostError):
        return "all pods of the container runtime, which has not answered yet" if isinstance(pods, RuntimeSilent) else ""
    names = [f"{pod.namespace}/{pod.name}" for pod in pods[:NAMED]]
    return ", ".join(names) + (f" and {len(pods) - NAMED} more" if len(pods) > NAMED else "")
