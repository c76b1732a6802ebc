"""The static pod of a local etcd member (spec/kubeadm.md 6.6)."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from kubewright.apis.addresses import url
from kubewright.apis.kubeadm.types import HostPathMount, LocalEtcd
from kubewright.manifests import volumes
from kubewright.manifests.flags import Flag, Inputs, Value, const
from kubewright.manifests.pods import Component, Probes

CLIENT_URLS: Final = "kubeadm.kubernetes.io/etcd.advertise-client-urls"
"""The annotation that upgrade, join and reset read back."""


def _client_url(inputs: Inputs) -> str:
    return url(inputs.addresses.advertise, inputs.addresses.ports.etcd_client)


def _peer_url(inputs: Inputs) -> str:
    return url(inputs.addresses.advertise, inputs.addresses.ports.etcd_peer)


def _metrics_url(inputs: Inputs) -> str:
    return url(inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_metrics, scheme="http")


def _listen_client_urls(inputs: Inputs) -> Value:
    """On a local machine loopback and advertise address are one: etcd refuses to listen twice."""
    loopback = url(inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_client)
    return ",".join(dict.fromkeys((loopback, _client_url(inputs))))


def _node_name(inputs: Inputs) -> str:
    return inputs.configuration.init.node_registration.name


FLAGS: Final = (
    Flag("advertise-client-urls", _client_url),
    Flag("cert-file", lambda c: c.layout.certificate("etcd/server")),
    Flag("client-cert-auth", const("true")),
    Flag("data-dir", lambda c: c.layout.etcd_data),
    Flag("feature-gates", const("InitialCorruptCheck=true")),
    Flag("initial-advertise-peer-urls", _peer_url),
    Flag("initial-cluster", lambda c: f"{_node_name(c)}={_peer_url(c)}"),
    Flag("key-file", lambda c: c.layout.key("etcd/server")),
    Flag("listen-client-urls", _listen_client_urls),
    Flag("listen-metrics-urls", _metrics_url),
    Flag("listen-peer-urls", _peer_url),
    Flag("name", _node_name),
    Flag("peer-cert-file", lambda c: c.layout.certificate("etcd/peer")),
    Flag("peer-client-cert-auth", const("true")),
    Flag("peer-key-file", lambda c: c.layout.key("etcd/peer")),
    Flag("peer-trusted-ca-file", lambda c: c.layout.certificate("etcd/ca")),
    Flag("snapshot-count", const("10000")),
    Flag("trusted-ca-file", lambda c: c.layout.certificate("etcd/ca")),
    Flag("watch-progress-notify-interval", const("5s")),
)


def _probes(inputs: Inputs) -> Probes:
    """The first of the metrics URLs is asked; what it leaves open, or one that is none, falls back to kubeadm's own."""
    scheme, host, port = "http", inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_metrics
    try:
        parsed = urlsplit((inputs.given("listen-metrics-urls") or "").partition(",")[0])
        scheme, host, port = parsed.scheme, parsed.hostname or host, parsed.port or port
    except ValueError:
        pass
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/readyz", scheme="HTTPS" if scheme == "https" else "HTTP")


def _mounts(inputs: Inputs) -> list[HostPathMount]:
    return [
        volumes.mounted("etcd-data", inputs.layout.etcd_data, volumes.DIRECTORY, read_only=False),
        volumes.mounted("etcd-certs", inputs.layout.pki / "etcd", volumes.DIRECTORY, read_only=False),
    ]


def _settings(inputs: Inputs) -> LocalEtcd:
    if inputs.cluster.etcd.local is None:
        raise ValueError("etcd is external: it has no static pod")
    return inputs.cluster.etcd.local


ETCD: Final = Component(
    name="etcd",
    flags=FLAGS,
    settings=_settings,
    probes=_probes,
    mounts=_mounts,
    requests={"cpu": "100m", "memory": "100Mi"},
    annotations=lambda c: {CLIENT_URLS: _client_url(c)},
    takes_proxies=False,
    sorts_mounts=False,
)
