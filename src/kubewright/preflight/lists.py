"""The checks of each command, in kubeadm's order (kubeadm v1.36: preflight/checks.go).

A row is a check; to add one, add a row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.machine import Addresses, Layout
from kubewright.base.checks import PRIVILEGED, Finding
from kubewright.base.versions import Version
from kubewright.preflight import components, machine, network, system
from kubewright.preflight.checks import Check, Subject

FORWARDING: Final = {
    4: PurePosixPath("/proc/sys/net/ipv4/ip_forward"),
    6: PurePosixPath("/proc/sys/net/ipv6/conf/default/forwarding"),
}
STATIC_PODS: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
TOOLS: Final = ("losetup", "mount", "cp")

Find = Callable[[Subject], Iterable[Finding]]
ROOT: Final = Check(name=PRIVILEGED, find=machine.privileged, comes_first=True)
"""Without root, the other checks would only report missing permissions."""


def _runtime_and_system(verification: Find) -> tuple[Check, ...]:
    return (
        Check(name="CRI", find=components.runtime_answers),
        Check(name="ContainerRuntimeVersion", find=components.runtime_version),
        Check(name="Swap", find=machine.swap),
        *(machine.in_path(program) for program in TOOLS),
        Check(name="SystemVerification", find=verification, evidence=system.report),
        machine.hostname(),
    )


UPGRADE: Final = (
    ROOT,
    Check(name="SystemVerification", find=functools.partial(system.verification, minors=1), evidence=system.report),
    Check(name="ContainerRuntimeVersion", find=components.runtime_version),
)
"""The checks of a machine before an upgrade."""


def hub_join(addresses: Addresses, *, resumed: bool = False) -> tuple[Check, ...]:
    """Return the checks before a machine contacts a hub: all common ones except the kubelet's, which the hub defines.

    See `given_kubelet`.
    """
    return (ROOT, *_runtime_and_system(system.kernel), network.port(addresses.ports.kubelet, ours="kubelet" if resumed else ""))


def given_kubelet(configuration: Mapping[str, Any], version: Version) -> tuple[Check, ...]:
    """Return the checks that depend on the version and the configuration of the machine's kubelet."""
    refuses_v1, refuses_swap = (configuration.get(name) is not False for name in ("failCgroupV1", "failSwapOn"))
    return (
        Check(name="Swap", find=functools.partial(machine.kubelet_takes_swap, refuses=refuses_swap)),
        Check(name="SystemVerification", find=functools.partial(system.kubelet_takes_cgroups, kubelet=version, refuses_v1=refuses_v1)),
    )


def common(addresses: Addresses, *, resumed: bool = False) -> tuple[Check, ...]:
    """Return the checks of every machine, regardless of its role."""
    return (
        *_runtime_and_system(system.verification),
        Check(name="KubeletVersion", find=components.kubelet_fits),
        Check(name="Service-kubelet", find=components.kubelet_service),
        network.port(addresses.ports.kubelet, ours="kubelet" if resumed else ""),
    )


def init(cluster: ClusterConfiguration, addresses: Addresses, layout: Layout, *, resumed: bool = False) -> tuple[Check, ...]:
    """Return the checks of `init`. If a run is resumed, the results of the earlier one are not problems."""
    return (
        ROOT,
        *_control_plane(cluster, addresses, layout, resumed=resumed),
        *common(addresses, resumed=resumed),
        *(machine.switched_on(FORWARDING[family]) for family in _families(cluster, addresses)),
        *_external_etcd(cluster),
        *_etcd(cluster, addresses, layout, resumed=resumed),
    )


def control_plane_join(
    cluster: ClusterConfiguration, addresses: Addresses, layout: Layout, *, has_certificate_key: bool, resumed: bool = False
) -> tuple[Check, ...]:
    """Return the additional checks of a joining control plane, which need the cluster's configuration."""
    external = cluster.etcd.external
    of_etcd = () if external is not None and has_certificate_key else _etcd(cluster, addresses, layout, resumed=resumed)
    return (*_control_plane(cluster, addresses, layout, resumed=resumed), *of_etcd)


def join(
    addresses: Addresses,
    layout: Layout,
    *,
    control_plane: bool,
    ca_path: PurePosixPath,
    endpoint_host: str = "",
    resumed: bool = False,
) -> tuple[Check, ...]:
    """Return the checks of `join` before it contacts the cluster.

    `endpoint_host` is that of token discovery, otherwise empty.
    """
    written = (layout.kubeconfig("kubelet"), layout.kubeconfig("bootstrap-kubelet"))
    return (
        ROOT,
        *(() if resumed else map(machine.file_available, written)),
        *common(addresses, resumed=resumed),
        *(() if control_plane or resumed else (machine.file_available(ca_path),)),
        *_towards(endpoint_host),
    )


def _control_plane(cluster: ClusterConfiguration, addresses: Addresses, layout: Layout, *, resumed: bool = False) -> tuple[Check, ...]:
    ports, networking = addresses.ports, cluster.networking
    listening = {ports.api_server: STATIC_PODS[0], ports.scheduler: STATIC_PODS[2], ports.controller_manager: STATIC_PODS[1]}
    return (
        Check(name="NumCPU", find=machine.cores),
        Check(name="Mem", find=machine.memory),
        Check(name="KubernetesVersion", find=components.kubernetes_version),
        Check(name="Firewalld", find=network.firewall),
        *(network.port(number, ours=program if resumed else "") for number, program in listening.items()),
        *(() if resumed else (machine.file_available(layout.manifest(component)) for component in STATIC_PODS)),
        network.proxied_host(addresses.advertise),
        *(network.proxied_range(subnet) for subnet in _ranges(networking.service_subnet, networking.pod_subnet)),
    )


def _etcd(cluster: ClusterConfiguration, addresses: Addresses, layout: Layout, *, resumed: bool = False) -> tuple[Check, ...]:
    external = cluster.etcd.external
    if external is not None:
        paths = (external.ca_file, external.cert_file, external.key_file)
        return tuple(machine.file_existing(PurePosixPath(path), name="ExternalEtcdClientCertificates") for path in paths if path)
    ports = (addresses.ports.etcd_client, addresses.ports.etcd_peer)
    data = () if resumed else (machine.directory_empty(layout.etcd_data),)
    return (*(network.port(number, ours=STATIC_PODS[3] if resumed else "") for number in ports), *data)


def _external_etcd(cluster: ClusterConfiguration) -> Iterator[Check]:
    if cluster.etcd.external is not None:
        yield network.external_version(cluster.etcd.external)


def _families(cluster: ClusterConfiguration, addresses: Addresses) -> Sequence[int]:
    """Return the cluster's address families: forwarding is needed for each."""
    found = {
        formats.subnet_family(part)
        for text in _ranges(cluster.networking.service_subnet, cluster.networking.pod_subnet)
        for part in formats.subnets(text)
    }
    own = formats.address(addresses.advertise)
    found |= set() if own is None else {own.version}
    return sorted(found)


def _towards(host: str) -> Iterator[Check]:
    if host:
        yield network.proxied_host(host)
        address = formats.address(host)
        if address is not None:
            yield machine.switched_on(FORWARDING[address.version])


def _ranges(*texts: str) -> list[str]:
    return [part for text in texts for part in text.split(",") if part]
