"""The static pod of kube-apiserver (spec/kubeadm.md 6.4)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.addresses import host_port, url
from kubewright.apis.kubeadm.types import HostPathMount
from kubewright.manifests import volumes
from kubewright.manifests.flags import Flag, Inputs, Value, const
from kubewright.manifests.pods import Component, Probes, probe_host

ENDPOINT: Final = "kubeadm.kubernetes.io/kube-apiserver.advertise-address.endpoint"
"""The annotation that upgrade, join and reset read back."""


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
    """kube-apiserver refuses the two together."""
    return None if inputs.given("authorization-config") is not None else "Node,RBAC"


FLAGS: Final = (
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


def _probes(inputs: Inputs) -> Probes:
    port, host = inputs.addresses.ports.api_server, probe_host(inputs.addresses.advertise)
    return Probes(port=port, host=host, live="/livez", ready="/readyz", start="/livez")


def _mounts(inputs: Inputs) -> list[HostPathMount]:
    return [*volumes.certificates(inputs), *volumes.external_etcd(inputs.cluster.etcd.external, inputs.layout.pki)]


API_SERVER: Final = Component(
    name="kube-apiserver",
    flags=FLAGS,
    settings=lambda c: c.cluster.api_server,
    probes=_probes,
    mounts=_mounts,
    requests={"cpu": "250m"},
    annotations=lambda c: {ENDPOINT: host_port(c.addresses.advertise, c.addresses.ports.api_server)},
)
