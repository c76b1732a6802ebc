"""KubeProxyConfiguration: read a user's document, put kubeadm's defaults into it, write it as Go would (spec/kubeadm.md 3.13).

The fields are those of k8s.io/kube-proxy v0.36; nearly all are written even when empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.components import CLIENT_CONNECTION, LOGGING, Default, fields_of, fill
from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig
from kubewright.apis.scalars import FLAG, INT32, SPAN, TEXT
from kubewright.apis.schema import Field, List, Map, Plain, Pointer
from kubewright.apis.walking import Place
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
    from kubewright.apis import component_rules, kubeproxy_rules  # for files that hold this kind

    found = dict(KUBE_PROXY.decode(value, at))
    component_rules.warn(KIND, found, at, rows=kubeproxy_rules.ROWS, several=kubeproxy_rules.SEVERAL)
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
