"""What kube-proxy refuses in its configuration when it starts (proxy/apis/config/validation, v1.36, on Linux)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis.component_rules import Row, address, address_and_port, lasting, networks, one_of, rows_of, within

ROWS: Final = (
    Row("mode", one_of("iptables", "ipvs", "nftables")),
    Row("detectLocalMode", one_of("ClusterCIDR", "NodeCIDR", "BridgeInterface", "InterfaceNamePrefix")),
    Row("bindAddress", address),
    *rows_of("healthzBindAddress metricsBindAddress", address_and_port),
    *rows_of("iptables.masqueradeBit nftables.masqueradeBit", within(0, 31)),
    Row("oomScoreAdj", within(-1000, 1000)),
    *rows_of("conntrack.maxPerCore conntrack.min clientConnection.burst", within(0)),
    *rows_of("conntrack.tcpEstablishedTimeout conntrack.tcpCloseWaitTimeout conntrack.udpTimeout conntrack.udpStreamTimeout", lasting(0)),
    *rows_of("ipvs.tcpTimeout ipvs.tcpFinTimeout ipvs.udpTimeout", lasting(0)),
    *rows_of("configSyncPeriod iptables.syncPeriod ipvs.syncPeriod nftables.syncPeriod", lasting(1)),
    *rows_of("iptables.minSyncPeriod ipvs.minSyncPeriod nftables.minSyncPeriod", lasting(0)),
    Row("ipvs.excludeCIDRs", networks),
    Row("nodePortAddresses", lambda values: networks([value for value in values if value != "primary"])),
    Row("logging.format", one_of("text", "json")),
)


def _periods(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in ("iptables", "ipvs", "nftables"):
        least, period = proxy[name]["minSyncPeriod"], proxy[name]["syncPeriod"]
        if 0 < period < least:
            yield f"{name}.syncPeriod", f"{period} must be at least minSyncPeriod, {least}"


def _local(proxy: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    needed = {"BridgeInterface": "bridgeInterface", "InterfaceNamePrefix": "interfaceNamePrefix"}.get(proxy["detectLocalMode"])
    if needed and not proxy["detectLocal"][needed]:
        yield f"detectLocal.{needed}", f"detectLocalMode {proxy['detectLocalMode']} needs it"
    if "primary" in (proxy["nodePortAddresses"] or ()) and len(proxy["nodePortAddresses"]) > 1:
        yield "nodePortAddresses", "primary excludes CIDRs"


SEVERAL: Final = (_periods, _local)
