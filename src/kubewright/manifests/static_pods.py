"""The static pods of a control plane: one row each, and one function that renders them (kubeadm v1.36: phases/controlplane/manifests.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from kubewright.apis.kubeadm.types import Configuration, HostPathMount, LocalEtcd
from kubewright.apis.machine import Addresses, Detected, Layout, Ports, host_port, url
from kubewright.base.records import replace
from kubewright.manifests import pods
from kubewright.manifests.pods import Component, Flag, Inputs, Probes, Value, changed_port, const, pod, probe_host

ENDPOINT: Final = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
"""An annotation that upgrade, join and reset read."""

CLIENT_URLS: Final = "kubeadm.kubernetes.io/etcd.advertise-client-urls"
"""An annotation that upgrade, join and reset read."""
_NO_OVERRIDES: Final[Mapping[str, str]] = {}


def _etcd_servers(inputs: Inputs) -> Value:
    etcd = inputs.cluster.etcd
    if etcd.external is not None:
        return ",".join(etcd.external.endpoints)
    advertised = [arg.value for arg in etcd.local.extra_args if arg.name == "advertise-client-urls"] if etcd.local else []
    return advertised[-1] if advertised else url(inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_client)


def _etcd_ca(inputs: Inputs) -> Value:
    external = inputs.cluster.etcd.external
    return inputs.layout.certificate("etcd/ca") if external is None else external.ca_file or None


def _etcd_certificate(inputs: Inputs) -> Value:
    external = inputs.cluster.etcd.external
    return inputs.layout.certificate("apiserver-etcd-client") if external is None else external.cert_file or None


def _etcd_key(inputs: Inputs) -> Value:
    external = inputs.cluster.etcd.external
    return inputs.layout.key("apiserver-etcd-client") if external is None else external.key_file or None


def _authorization_mode(inputs: Inputs) -> Value:
    """Return the modes, or None with a configuration file: kube-apiserver refuses both together."""
    return None if inputs.given("authorization-config") is not None else "Node,RBAC"


API_SERVER_FLAGS: Final = (
    Flag("advertise-address", lambda c: c.addresses.advertise),
    Flag("allow-privileged", const("true")),
    Flag("authorization-mode", _authorization_mode),
    Flag("client-ca-file", lambda c: c.layout.certificate("ca")),
    Flag("enable-admission-plugins", const("NodeRestriction")),
    Flag("enable-bootstrap-token-auth", const("true")),
    Flag("etcd-cafile", _etcd_ca),
    Flag("etcd-certfile", _etcd_certificate),
    Flag("etcd-keyfile", _etcd_key),
    Flag("etcd-servers", _etcd_servers),
    Flag("kubelet-client-certificate", lambda c: c.layout.certificate("apiserver-kubelet-client")),
    Flag("kubelet-client-key", lambda c: c.layout.key("apiserver-kubelet-client")),
    Flag("kubelet-preferred-address-types", const("InternalIP,ExternalIP,Hostname")),
    Flag("proxy-client-cert-file", lambda c: c.layout.certificate("front-proxy-client")),
    Flag("proxy-client-key-file", lambda c: c.layout.key("front-proxy-client")),
    Flag("requestheader-allowed-names", const("front-proxy-client")),
    Flag("requestheader-client-ca-file", lambda c: c.layout.certificate("front-proxy-ca")),
    Flag("requestheader-extra-headers-prefix", const("X-Remote-Extra-")),
    Flag("requestheader-group-headers", const("X-Remote-Group")),
    Flag("requestheader-username-headers", const("X-Remote-User")),
    Flag("secure-port", lambda c: c.addresses.ports.api_server),
    Flag("service-account-issuer", lambda c: f"https://kubernetes.default.svc.{c.cluster.networking.dns_domain}"),
    Flag("service-account-key-file", lambda c: c.layout.pki / "sa.pub"),
    Flag("service-account-signing-key-file", lambda c: c.layout.key("sa")),
    Flag("service-cluster-ip-range", lambda c: c.cluster.networking.service_subnet),
    Flag("tls-cert-file", lambda c: c.layout.certificate("apiserver")),
    Flag("tls-private-key-file", lambda c: c.layout.key("apiserver")),
)


def _api_server_probes(inputs: Inputs) -> Probes:
    port, host = inputs.addresses.ports.api_server, probe_host(inputs.addresses.advertise)
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/livez")


def _api_server_mounts(inputs: Inputs) -> list[HostPathMount]:
    return [*pods.certificates(inputs), *pods.external_etcd(inputs.cluster.etcd.external, inputs.layout.pki)]


API_SERVER: Final = Component(
    name="kube-apiserver",
    flags=API_SERVER_FLAGS,
    settings=lambda c: c.cluster.api_server,
    probes=_api_server_probes,
    mounts=_api_server_mounts,
    requests={"cpu": "250m"},
    annotations=lambda c: {ENDPOINT: host_port(c.addresses.advertise, c.addresses.ports.api_server)},
)


def _controller_manager_kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig("controller-manager")


CONTROLLER_MANAGER_FLAGS: Final = (
    Flag("allocate-node-cidrs", lambda c: "true" if c.cluster.networking.pod_subnet else None),
    Flag("authentication-kubeconfig", _controller_manager_kubeconfig),
    Flag("authorization-kubeconfig", _controller_manager_kubeconfig),
    Flag("bind-address", lambda c: c.addresses.loopback),
    Flag("client-ca-file", lambda c: c.layout.certificate("ca")),
    Flag("cluster-cidr", lambda c: c.cluster.networking.pod_subnet or None),
    Flag("cluster-name", lambda c: c.cluster.cluster_name),
    Flag("cluster-signing-cert-file", lambda c: "" if c.external_ca else c.layout.certificate("ca")),
    Flag("cluster-signing-key-file", lambda c: "" if c.external_ca else c.layout.key("ca")),
    Flag("controllers", const("*,bootstrapsigner,tokencleaner")),
    Flag("kubeconfig", _controller_manager_kubeconfig),
    Flag("leader-elect", const("true")),
    Flag("requestheader-client-ca-file", lambda c: c.layout.certificate("front-proxy-ca")),
    Flag("root-ca-file", lambda c: c.layout.certificate("ca")),
    Flag("secure-port", lambda c: changed_port(c.addresses.ports.controller_manager, Ports.controller_manager)),
    Flag("service-account-private-key-file", lambda c: c.layout.key("sa")),
    Flag("service-cluster-ip-range", lambda c: c.cluster.networking.service_subnet if c.cluster.networking.pod_subnet else None),
    Flag("use-service-account-credentials", const("true")),
)


def _controller_manager_probes(inputs: Inputs) -> Probes:
    host = probe_host(inputs.bind_address(inputs.addresses.loopback))
    return Probes(port=inputs.secure_port(inputs.addresses.ports.controller_manager), host=host, live="/healthz", start="/healthz")


def _controller_manager_mounts(inputs: Inputs) -> list[HostPathMount]:
    kubeconfig = pods.mounted("kubeconfig", inputs.layout.kubeconfig("controller-manager"), pods.FILE)
    return [*pods.certificates(inputs), kubeconfig]


CONTROLLER_MANAGER: Final = Component(
    name="kube-controller-manager",
    flags=CONTROLLER_MANAGER_FLAGS,
    settings=lambda c: c.cluster.controller_manager,
    probes=_controller_manager_probes,
    mounts=_controller_manager_mounts,
    requests={"cpu": "200m"},
)


def _scheduler_kubeconfig(inputs: Inputs) -> Value:
    return inputs.layout.kubeconfig("scheduler")


SCHEDULER_FLAGS: Final = (
    Flag("authentication-kubeconfig", _scheduler_kubeconfig),
    Flag("authorization-kubeconfig", _scheduler_kubeconfig),
    Flag("bind-address", lambda c: c.addresses.loopback),
    Flag("kubeconfig", _scheduler_kubeconfig),
    Flag("leader-elect", const("true")),
    Flag("secure-port", lambda c: changed_port(c.addresses.ports.scheduler, Ports.scheduler)),
)


def _scheduler_probes(inputs: Inputs) -> Probes:
    host = probe_host(inputs.bind_address(inputs.addresses.loopback))
    port = inputs.secure_port(inputs.addresses.ports.scheduler)
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/livez")


SCHEDULER: Final = Component(
    name="kube-scheduler",
    flags=SCHEDULER_FLAGS,
    settings=lambda c: c.cluster.scheduler,
    probes=_scheduler_probes,
    mounts=lambda c: [pods.mounted("kubeconfig", c.layout.kubeconfig("scheduler"), pods.FILE)],
    requests={"cpu": "100m"},
)


def _client_url(inputs: Inputs) -> str:
    return url(inputs.addresses.advertise, inputs.addresses.ports.etcd_client)


def _peer_url(inputs: Inputs) -> str:
    return url(inputs.addresses.advertise, inputs.addresses.ports.etcd_peer)


def _metrics_url(inputs: Inputs) -> str:
    return url(inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_metrics, scheme="http")


def _listen_client_urls(inputs: Inputs) -> Value:
    """Return the client URLs.

    On a local machine, loopback and advertise address are the same: etcd refuses to listen twice.
    """
    loopback = url(inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_client)
    return ",".join(dict.fromkeys((loopback, _client_url(inputs))))


def _node_name(inputs: Inputs) -> str:
    return inputs.configuration.init.node_registration.name


ETCD_FLAGS: Final = (
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


def _etcd_probes(inputs: Inputs) -> Probes:
    """Return the probes at the first metrics URL; its missing parts, or an invalid one, fall back to kubeadm's values."""
    scheme, host, port = "http", inputs.addresses.etcd_loopback, inputs.addresses.ports.etcd_metrics
    try:
        parsed = urlsplit((inputs.given("listen-metrics-urls") or "").partition(",")[0])
        scheme, host, port = parsed.scheme, parsed.hostname or host, parsed.port or port
    except ValueError:
        pass
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/readyz", scheme="HTTPS" if scheme == "https" else "HTTP")


def _etcd_mounts(inputs: Inputs) -> list[HostPathMount]:
    return [
        pods.mounted("etcd-data", inputs.layout.etcd_data, pods.DIRECTORY, read_only=False),
        pods.mounted("etcd-certs", inputs.layout.pki / "etcd", pods.DIRECTORY, read_only=False),
    ]


def _settings(inputs: Inputs) -> LocalEtcd:
    if inputs.cluster.etcd.local is None:
        raise ValueError("etcd is external: it has no static pod")
    return inputs.cluster.etcd.local


ETCD: Final = Component(
    name="etcd",
    flags=ETCD_FLAGS,
    settings=_settings,
    probes=_etcd_probes,
    mounts=_etcd_mounts,
    requests={"cpu": "100m", "memory": "100Mi"},
    annotations=lambda c: {CLIENT_URLS: _client_url(c)},
    takes_proxies=False,
    sorts_mounts=False,
)


COMPONENTS: Final[Mapping[str, Component]] = {row.name: row for row in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, ETCD)}
"""In kubeadm's order."""


def render(
    component: str,
    configuration: Configuration,
    layout: Layout,
    addresses: Addresses,
    detected: Detected,
    overrides: Mapping[str, str] = _NO_OVERRIDES,
    *,
    external_ca: bool = False,
) -> dict[str, Any]:
    """Return the static pod of a component, one of `COMPONENTS`.

    `overrides` replace or add default flags by name; the user's extraArgs take precedence. `layout` contains the
    effective directories: certificatesDir and etcd's dataDir of the configuration are not used. `external_ca` means
    that the CA's key is not on this machine.
    Raises KeyError for an unknown component, and ValueError for etcd if it is external.
    """
    row = COMPONENTS[component]
    inputs = Inputs(
        configuration=configuration,
        layout=layout,
        addresses=addresses,
        detected=detected,
        overrides=overrides,
        external_ca=external_ca,
    )
    return pod(row, replace(inputs, extra_args=row.settings(inputs).extra_args))
