"""What kube-proxy refuses in its configuration when it starts (proxy/apis/config/validation, v1.36, on Linux)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis.component_rules import (
    Row,
    address,
    address_and_port,
    lasting,
    log_rules,
    networks,
    one_of,
    previous_minor,
    rows_of,
    value_at,
    within,
)
from kubewright.base.durations import SECOND, Duration

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
        from kubewright.apis.component_gates import gate_rules  # a long table, for documents that set gates

        yield from gate_rules(proxy["featureGates"])


def _logs(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield from log_rules(proxy["logging"], proxy["featureGates"] or {})


SEVERAL: Final = (_of_mode, _local, _ranges, _known, _logs)
