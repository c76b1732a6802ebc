"""A machine for checks: only what they read, every part as on a good machine."""

from __future__ import annotations

from pathlib import PurePosixPath

from kubewright.apis.kubeadm.types import ClusterConfiguration, Etcd, LocalEtcd, NodeRegistration
from kubewright.apis.machine import Addresses, Detected, Layout
from kubewright.base.errors import HostError
from kubewright.base.records import dataclass, field, replace
from kubewright.host.facts import Facts, MachineInfo
from kubewright.host.network.interfaces import PortOwner
from kubewright.host.states import Condition, FileState, Kind, RuntimeStatus, ServiceState
from kubewright.preflight.checks import Subject

OPTIONS = (
    *(
        "NAMESPACES",
        "NET_NS",
        "PID_NS",
        "IPC_NS",
        "UTS_NS",
        "CPUSETS",
        "MEMCG",
        "INET",
        "EXT4_FS",
        "PROC_FS",
        "NETFILTER_XT_TARGET_REDIRECT",
    ),
    *("NETFILTER_XT_MATCH_COMMENT", "FAIR_GROUP_SCHED", "CGROUPS", "CGROUP_BPF", "CGROUP_PIDS", "CGROUP_SCHED"),
)
V1_OPTIONS = ("CGROUP_CPUACCT", "CGROUP_DEVICE", "CGROUP_FREEZER")
KERNEL_CONFIG = "".join(f"CONFIG_{name}=y\n" for name in OPTIONS)
GOOD = {
    "/proc/swaps": "Filename Type Size Used Priority\n",
    "/proc/sys/net/ipv4/ip_forward": "1\n",
    "/proc/sys/net/ipv6/conf/default/forwarding": "1\n",
    "/boot/config-6.1.0": KERNEL_CONFIG,
    "/sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory hugetlb pids\n",
}
LAYOUT = Layout()
ADDRESSES = Addresses.of_machine("192.0.2.11")
CLUSTER = ClusterConfiguration(kubernetes_version="v1.36.3", etcd=Etcd(local=LocalEtcd()))


@dataclass()
class FakeRuntime:
    conditions: tuple[Condition, ...] = (Condition(type="RuntimeReady", status=True),)
    driver: str | None = "systemd"
    error: HostError | None = None

    def status(self):
        if self.error:
            raise self.error
        return RuntimeStatus(conditions=self.conditions)

    def cgroup_driver(self):
        if self.error:
            raise self.error
        return self.driver


@dataclass()
class FakePrograms:
    installed: dict[str, str] = field(default_factory=lambda: {"kubelet": "Kubernetes v1.36.3", "losetup": "", "mount": "", "cp": ""})

    def path(self, name):
        return PurePosixPath("/usr/bin", name) if name in self.installed else None

    def version(self, name):
        if name not in self.installed:
            raise HostError(f"{name} is not installed", remedy=f"install {name}")
        return self.installed[name]


@dataclass()
class FakeNetwork:
    taken: dict[int, PortOwner] = field(default_factory=dict)

    def owner_of_port(self, address, port):
        return self.taken.get(port)


@dataclass()
class FakeHost:
    files: dict[str, str] = field(default_factory=lambda: dict(GOOD))
    machine: MachineInfo = MachineInfo(cores=2, memory=2 * 1024**3, kernel="6.1.0")
    services: dict[str, ServiceState] = field(default_factory=lambda: {"kubelet": ServiceState(running=False)})
    runtime: FakeRuntime = field(default_factory=FakeRuntime)
    programs: FakePrograms = field(default_factory=FakePrograms)
    network: FakeNetwork = field(default_factory=FakeNetwork)
    layout: Layout = LAYOUT
    proxies: dict[str, str] = field(default_factory=dict)

    @property
    def facts(self):
        return Facts(detected=Detected(host_name="node1", proxy_environment=self.proxies), machine=self.machine)

    def read(self, path):
        text = self.files.get(str(path))
        return None if text is None else text.encode("latin-1")

    def state(self, path):
        return FileState(kind=Kind.FILE, mode=0o644) if str(path) in self.files else None

    def entries(self, path):
        return [PurePosixPath(name) for name in sorted(self.files) if name.startswith(f"{path}/")]

    def service(self, name):
        return self.services.get(name)


def subject(host=None, **changes: object):
    made = Subject(host=host or FakeHost(), node=NodeRegistration(name="localhost"), addresses=ADDRESSES, cluster=CLUSTER)
    return replace(made, **changes)
