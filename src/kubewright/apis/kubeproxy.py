"""KubeProxyConfiguration: its fields, kubeadm's defaults, encoding it as Go would (kubeadm v1.36: componentconfigs), and kube-proxy's own rules.

The fields are those of k8s.io/kube-proxy v0.36; nearly all are written even when empty. The rules are those of
proxy/apis/config/validation, v1.36, on Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.components import (
    Default,
    ValueRule,
    address,
    address_and_port,
    fill,
    lasting,
    log_rules,
    networks,
    one_of,
    previous_minor,
    rows_of,
    value_at,
    warn,
    within,
)
from kubewright.apis.embedded import LOGGING
from kubewright.apis.findings import Place
from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig
from kubewright.apis.schema import table
from kubewright.base.durations import SECOND, Duration
from kubewright.base.versions import RELEASES, Version

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"
KUBECONFIG: Final = "/var/lib/kube-proxy/kubeconfig.conf"

KUBE_PROXY: Final = table(
    """
hostnameOverride | text! | the host's name | | name of the Node
bindAddress | text! | kubeadm: 0.0.0.0, or :: for an IPv6 advertise address | | determines the address family if the Node does not
healthzBindAddress | text! | 0.0.0.0:10256 | | address and port of the health endpoint
metricsBindAddress | text! | 127.0.0.1:10249 | | address and port of the metrics
showHiddenMetricsForVersion | text! | | | show metrics that were hidden in this release
mode | text! | empty: iptables | | how Services reach their pods: iptables, nftables or ipvs (deprecated)
detectLocalMode | text! | ClusterCIDR | | how traffic of local pods is recognized: ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix
clusterCIDR | text! | kubeadm: networking.podSubnet | | range of the pods' addresses
portRange | text! | | | no effect: only the mode userspace used it, which was removed in 1.26
bindAddressHardFail | flag! | false | | exit if one of these ports is not available
enableProfiling | flag! | false | | serve profiles at the metrics' address
featureGates | {}flag | | | feature gates of kube-proxy
clientConnection | struct | | | connection to the API server
clientConnection.kubeconfig | text! | kubeadm: /var/lib/kube-proxy/kubeconfig.conf | | kubeconfig; empty: the pod's service account
clientConnection.acceptContentTypes | text! | | | accepted content types of responses
clientConnection.contentType | text! | application/vnd.kubernetes.protobuf | | content type of requests
clientConnection.qps | float32! | 5 | | requests per second
clientConnection.burst | int32! | 10 | | bursts of requests above qps
logging | logging | | 1.26 | kube-proxy's log
iptables | struct | | | settings of the mode iptables
iptables.masqueradeBit | ?int32! | 14 | | bit of the packet mark that asks for source NAT
iptables.masqueradeAll | flag! | false | | source NAT for all packets to Services
iptables.localhostNodePorts | ?flag! | true | 1.26 | node ports also at 127.0.0.1
iptables.syncPeriod | span | 30s | | longest time between two full updates of the rules
iptables.minSyncPeriod | span | 1s | | shortest time between two updates
ipvs | struct | | | settings of the mode ipvs
ipvs.syncPeriod | span | 30s | | longest time between two full updates
ipvs.minSyncPeriod | span | 0s | | shortest time between two updates
ipvs.tcpTimeout | span | 0s | | timeout of idle TCP connections; 0s: the kernel's
ipvs.tcpFinTimeout | span | 0s | | timeout of TCP connections after FIN
ipvs.udpTimeout | span | 0s | | timeout of UDP packets
ipvs.scheduler | text! | rr | | how connections are distributed
ipvs.excludeCIDRs | []text! | | | ranges of virtual servers that kube-proxy does not clean up
ipvs.strictARP | flag! | false | | answer ARP for addresses of the interface only
nftables | struct | | 1.29 | settings of the mode nftables
nftables.masqueradeBit | ?int32! | 14 | | bit of the packet mark that asks for source NAT
nftables.masqueradeAll | flag! | false | | source NAT for all packets to Services
nftables.syncPeriod | span | 30s | | longest time between two full updates of the rules
nftables.minSyncPeriod | span | 1s | | shortest time between two updates
winkernel | struct | | | settings on Windows
winkernel.networkName | text! | | | name of the network
winkernel.sourceVip | text! | | | source address of a node's traffic to Services
winkernel.rootHnsEndpointName | text! | cbr0 | 1.23 | name of the endpoint of the root network namespace
winkernel.enableDSR | flag! | true | | direct server return
winkernel.forwardHealthCheckVip | flag! | false | 1.23 | forward traffic of health checks to Service addresses
detectLocal | struct | | 1.23 | interface names for detectLocalMode
detectLocal.bridgeInterface | text! | | | name of the bridge, with BridgeInterface
detectLocal.interfaceNamePrefix | text! | | | prefix of interface names, with InterfaceNamePrefix
nodePortAddresses | []text! | all addresses | | ranges of addresses at which node ports are served, or primary: the Node's own addresses
oomScoreAdj | ?int32! | -999 | | out-of-memory score, -1000 to 1000
conntrack | struct | | | the kernel's table of connections
conntrack.maxPerCore | ?int32! | 32768 | | entries per core; 0: unchanged
conntrack.min | ?int32! | 131072 | | minimum number of entries
conntrack.tcpEstablishedTimeout | ?span! | 24h0m0s | | how long idle TCP connections are kept; 0s: unchanged
conntrack.tcpCloseWaitTimeout | ?span! | 1h0m0s | | how long connections in CLOSE_WAIT are kept
conntrack.tcpBeLiberal | flag! | false | 1.29 | accept packets outside the TCP window
conntrack.udpTimeout | span | 0s | 1.29 | how long unanswered UDP entries are kept; 0s: unchanged
conntrack.udpStreamTimeout | span | 0s | 1.29 | how long answered UDP entries are kept; 0s: unchanged
configSyncPeriod | span | 15m0s | | interval between full reads from the API server
windowsRunAsService | flag | false | 1.32 | run as a service of Windows
""",
    logging=LOGGING,
)
"""All fields except apiVersion and kind."""


def decode(value: object, at: Place) -> dict[str, Any]:
    """Decode a document without its apiVersion and kind into a map with all fields.

    Errors are recorded at their place; a value that the component would refuse when it starts is a warning, because
    kubeadm accepts it.
    """
    found = dict(KUBE_PROXY.decode(value, at))
    warn(KIND, found, at, rows=ROWS, several=SEVERAL)
    return found


def defaulted(
    user: Mapping[str, Any] | None, cluster: ClusterConfiguration, *, advertise_address: str
) -> tuple[ComponentConfig, list[str]]:
    """Return the kube-proxy configuration of a cluster, and warnings about values that kubeadm advises against.

    `user` is the result of `decode`, or None.
    """
    address = formats.address(advertise_address)
    pods = cluster.networking.pod_subnet
    defaults = (
        Default("bindAddress", "0.0.0.0" if address is not None and address.version == 4 else "::"),  # noqa: S104 - kubeadm's default
        *((Default("clusterCIDR", pods),) if pods else ()),
        Default("clientConnection.kubeconfig", KUBECONFIG),
        Default("mode", _mode(cluster.kubernetes_version), warn=False),
    )
    config, warnings = fill(KUBE_PROXY.zero() if user is None else user, defaults, kind=KIND)
    return ComponentConfig(document=document(config), user_supplied=user is not None), warnings


def _mode(kubernetes_version: str) -> str:
    """Return the mode that must be set explicitly for a release; '' for an invalid version, which is reported elsewhere."""
    try:
        release = RELEASES.get(Version.parse(kubernetes_version).line)
    except ValueError:
        return ""
    return release.proxy_mode if release else ""


def document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a decoded configuration, as Go's encoder writes it: including zero values that Go keeps."""
    return {"apiVersion": API_VERSION, "kind": KIND, **KUBE_PROXY.encode(config)}


ROWS: Final = (
    ValueRule("mode", one_of("iptables", "ipvs", "nftables")),
    ValueRule("detectLocalMode", one_of("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")),
    ValueRule("bindAddress", address),
    *rows_of("healthzBindAddress metricsBindAddress", address_and_port),
    ValueRule("iptables.masqueradeBit", within(0, 31)),
    ValueRule("oomScoreAdj", within(-1000, 1000)),
    *rows_of("conntrack.maxPerCore conntrack.min clientConnection.burst", within(0)),
    *rows_of("conntrack.tcpEstablishedTimeout conntrack.tcpCloseWaitTimeout conntrack.udpTimeout conntrack.udpStreamTimeout", lasting(0)),
    ValueRule("configSyncPeriod", lasting(1)),
    ValueRule("showHiddenMetricsForVersion", previous_minor),
    ValueRule("nodePortAddresses", lambda values: networks([value for value in values if value != "primary"])),
    ValueRule("logging.format", one_of("text", "json")),
)


_OF_MODES: Final = {
    "iptables": (ValueRule("iptables.syncPeriod", lasting(1)), ValueRule("iptables.minSyncPeriod", lasting(0))),
    "ipvs": (
        *rows_of("ipvs.tcpTimeout ipvs.tcpFinTimeout ipvs.udpTimeout ipvs.minSyncPeriod", lasting(0)),
        ValueRule("ipvs.syncPeriod", lasting(1)),
        ValueRule("ipvs.excludeCIDRs", networks),
    ),
    "nftables": (
        ValueRule("nftables.masqueradeBit", within(0, 31)),
        ValueRule("nftables.syncPeriod", lasting(1)),
        ValueRule("nftables.minSyncPeriod", lasting(0)),
    ),
}
"""Checks that apply only to the chosen mode; an empty mode is iptables."""
_PERIOD: Final = Duration(30 * SECOND)


def _of_mode(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    mode = proxy["mode"] or "iptables"
    for row in _OF_MODES.get(mode, ()):
        value = value_at(proxy, row.path)
        reason = row.check(value) if value else ""
        if reason:
            yield row.path, reason
    if mode in _OF_MODES:
        least, period = proxy[mode]["minSyncPeriod"], proxy[mode]["syncPeriod"] or _PERIOD
        if 0 < period < least:
            yield f"{mode}.syncPeriod", f"{period} must be at least minSyncPeriod, {least}"


def _local(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    needed = {"BridgeInterface": "bridgeInterface", "InterfaceNamePrefix": "interfaceNamePrefix"}.get(proxy["detectLocalMode"])
    if needed and not proxy["detectLocal"][needed]:
        yield f"detectLocal.{needed}", f"detectLocalMode {proxy['detectLocalMode']} needs it"
    if "primary" in (proxy["nodePortAddresses"] or ()) and len(proxy["nodePortAddresses"]) > 1:
        yield "nodePortAddresses", "primary excludes CIDRs"


def _ranges(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if proxy["detectLocalMode"] not in ("", "ClusterCIDR") or not proxy["clusterCIDR"]:
        return
    ranges = proxy["clusterCIDR"].split(",")
    reason = networks(ranges)
    families = [":" in one for one in ranges]
    if reason:
        yield "clusterCIDR", reason
    elif len(ranges) > 2 or (len(ranges) == 2 and families[0] == families[1]):
        yield "clusterCIDR", "it must be one CIDR, or two of different families joined by a comma"


def _known(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if proxy["featureGates"]:
        from kubewright.apis.feature_gates import gate_rules  # a long table, needed only for documents that set gates

        yield from gate_rules(proxy["featureGates"])


def _logs(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from log_rules(proxy["logging"], proxy["featureGates"] or {})


SEVERAL: Final = (_of_mode, _local, _ranges, _known, _logs)
