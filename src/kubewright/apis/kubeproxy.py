"""KubeProxyConfiguration: its fields, kubeadm's defaults, writing it as Go would (spec/kubeadm.md 3.13), and what kube-proxy refuses when it starts.

The fields are those of k8s.io/kube-proxy v0.36; nearly all are written even when empty. The rules are those of proxy/apis/config/validation, v1.36, on Linux.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.components import (
    CLIENT_CONNECTION,
    LOGGING,
    Default,
    Row,
    address,
    address_and_port,
    fields_of,
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
from kubewright.apis.findings import Place
from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig
from kubewright.apis.scalars import FLAG, INT32, SPAN, TEXT
from kubewright.apis.schema import Field, List, Map, Plain, Pointer
from kubewright.base.durations import SECOND, Duration
from kubewright.base.versions import RELEASES, Version

API_VERSION: Final = "kubeproxy.config.k8s.io/v1alpha1"
KIND: Final = "KubeProxyConfiguration"
KUBECONFIG: Final = "/var/lib/kube-proxy/kubeconfig.conf"

_NUMBER: Final = Pointer(INT32)
_IPTABLES: Final = Plain(
    (
        *fields_of(_NUMBER, "masqueradeBit", keep=True),
        *fields_of(FLAG, "masqueradeAll", keep=True),
        *fields_of(Pointer(FLAG), "localhostNodePorts", keep=True),
        *fields_of(SPAN, "syncPeriod minSyncPeriod"),
    ),
)
_IPVS: Final = Plain(
    (
        *fields_of(SPAN, "syncPeriod minSyncPeriod tcpTimeout tcpFinTimeout udpTimeout"),
        *fields_of(TEXT, "scheduler", keep=True),
        *fields_of(List(TEXT), "excludeCIDRs", keep=True),
        *fields_of(FLAG, "strictARP", keep=True),
    ),
)
_NFTABLES: Final = Plain(
    (
        *fields_of(_NUMBER, "masqueradeBit", keep=True),
        *fields_of(FLAG, "masqueradeAll", keep=True),
        *fields_of(SPAN, "syncPeriod minSyncPeriod"),
    ),
)
_CONNTRACK: Final = Plain(
    (
        *fields_of(_NUMBER, "maxPerCore min", keep=True),
        *fields_of(Pointer(SPAN), "tcpEstablishedTimeout tcpCloseWaitTimeout", keep=True),
        *fields_of(FLAG, "tcpBeLiberal", keep=True),
        *fields_of(SPAN, "udpTimeout udpStreamTimeout"),
    ),
)
_WINKERNEL: Final = Plain(
    (
        *fields_of(TEXT, "networkName sourceVip rootHnsEndpointName", keep=True),
        *fields_of(FLAG, "enableDSR forwardHealthCheckVip", keep=True),
    ),
)
_TEXTS: Final = """
    hostnameOverride bindAddress healthzBindAddress metricsBindAddress showHiddenMetricsForVersion mode detectLocalMode clusterCIDR
    portRange
"""
KUBE_PROXY: Final = Plain(
    (
        *fields_of(TEXT, _TEXTS, keep=True),
        *fields_of(FLAG, "bindAddressHardFail enableProfiling", keep=True),
        Field("featureGates", Map(FLAG)),
        Field("clientConnection", CLIENT_CONNECTION),
        Field("logging", LOGGING),
        Field("iptables", _IPTABLES),
        Field("ipvs", _IPVS),
        Field("nftables", _NFTABLES),
        Field("winkernel", _WINKERNEL),
        Field("detectLocal", Plain(fields_of(TEXT, "bridgeInterface interfaceNamePrefix", keep=True))),
        Field("nodePortAddresses", List(TEXT), keep=True),
        Field("oomScoreAdj", _NUMBER, keep=True),
        Field("conntrack", _CONNTRACK),
        Field("configSyncPeriod", SPAN),
        Field("windowsRunAsService", FLAG),
    ),
)
"""All fields but apiVersion and kind."""


def decode(value: object, at: Place) -> dict[str, Any]:
    """Read a document without its apiVersion and kind into a map with all fields.

    What is wrong is noted at its place; a value that the component would refuse when it starts is a warning, because kubeadm takes it.
    """
    found = dict(KUBE_PROXY.decode(value, at))
    warn(KIND, found, at, rows=ROWS, several=SEVERAL)
    return found


def defaulted(
    user: Mapping[str, Any] | None, cluster: ClusterConfiguration, *, advertise_address: str
) -> tuple[ComponentConfig, list[str]]:
    """Return the kube-proxy configuration of a cluster, and warnings about values that kubeadm advises against.

    `user` is what `decode` returned, or None.
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
    """Return the mode that a release wants to have written down; '' for what is no version, which others say."""
    try:
        release = RELEASES.get(Version.parse(kubernetes_version).line)
    except ValueError:
        return ""
    return release.proxy_mode if release else ""


def document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a decoded configuration, as Go's encoder writes it: zero values that Go keeps are there."""
    return {"apiVersion": API_VERSION, "kind": KIND, **KUBE_PROXY.encode(config)}


ROWS: Final = (
    Row("mode", one_of("iptables", "ipvs", "nftables")),
    Row("detectLocalMode", one_of("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")),
    Row("bindAddress", address),
    *rows_of("healthzBindAddress metricsBindAddress", address_and_port),
    Row("iptables.masqueradeBit", within(0, 31)),
    Row("oomScoreAdj", within(-1000, 1000)),
    *rows_of("conntrack.maxPerCore conntrack.min clientConnection.burst", within(0)),
    *rows_of("conntrack.tcpEstablishedTimeout conntrack.tcpCloseWaitTimeout conntrack.udpTimeout conntrack.udpStreamTimeout", lasting(0)),
    Row("configSyncPeriod", lasting(1)),
    Row("showHiddenMetricsForVersion", previous_minor),
    Row("nodePortAddresses", lambda values: networks([value for value in values if value != "primary"])),
    Row("logging.format", one_of("text", "json")),
)


_OF_MODES: Final = {
    "iptables": (Row("iptables.syncPeriod", lasting(1)), Row("iptables.minSyncPeriod", lasting(0))),
    "ipvs": (
        *rows_of("ipvs.tcpTimeout ipvs.tcpFinTimeout ipvs.udpTimeout ipvs.minSyncPeriod", lasting(0)),
        Row("ipvs.syncPeriod", lasting(1)),
        Row("ipvs.excludeCIDRs", networks),
    ),
    "nftables": (
        Row("nftables.masqueradeBit", within(0, 31)),
        Row("nftables.syncPeriod", lasting(1)),
        Row("nftables.minSyncPeriod", lasting(0)),
    ),
}
"""What is judged only where the mode is chosen; an empty mode is iptables."""
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
        from kubewright.apis.feature_gates import gate_rules  # a long table, for documents that set gates

        yield from gate_rules(proxy["featureGates"])


def _logs(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from log_rules(proxy["logging"], proxy["featureGates"] or {})


SEVERAL: Final = (_of_mode, _local, _ranges, _known, _logs)
