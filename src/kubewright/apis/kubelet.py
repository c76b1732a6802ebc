"""KubeletConfiguration: read a user's document, put kubeadm's defaults into it, write it as Go would (spec/kubeadm.md 3.13)."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from kubewright.apis.components import Default, fill, warn
from kubewright.apis.findings import Place
from kubewright.apis.formats import DNS_INDEX, service_address
from kubewright.apis.kubeadm.types import ClusterConfiguration, ComponentConfig
from kubewright.apis.kubelet_fields import KUBELET

API_VERSION: Final = "kubelet.config.k8s.io/v1beta1"
KIND: Final = "KubeletConfiguration"
MANIFESTS: Final = PurePosixPath("/etc/kubernetes/manifests")
RESOLVED: Final = "/run/systemd/resolve/resolv.conf"
_FALLBACK_DNS: Final = "10.96.0.10"


def decode(value: object, at: Place) -> dict[str, Any]:
    """Read a document without its apiVersion and kind into a map with all fields.

    What is wrong is noted at its place; a value that the component would refuse when it starts is a warning, because kubeadm takes it.
    """
    from kubewright.apis import kubelet_rules  # for files that hold this kind

    found = dict(KUBELET.decode(value, at))
    warn(KIND, found, at, rows=kubelet_rules.ROWS, several=kubelet_rules.SEVERAL)
    return found


def defaulted(
    user: Mapping[str, Any] | None,
    cluster: ClusterConfiguration,
    *,
    manifests: PurePosixPath = MANIFESTS,
    health_address: str = "127.0.0.1",
    health_port: int = 10248,
) -> tuple[ComponentConfig, list[str]]:
    """Return the kubelet configuration of a cluster, and warnings about values that kubeadm advises against.

    `user` is what `decode` returned, or None. The places are a machine's; kubeadm's are the defaults.
    """
    defaults = (
        Default("staticPodPath", str(manifests)),
        Default("clusterDNS", (cluster_dns(cluster),)),
        Default("clusterDomain", cluster.networking.dns_domain),
        Default("authentication.x509.clientCAFile", posixpath.normpath(f"{cluster.certificates_dir}/ca.crt")),
        Default("authentication.anonymous.enabled", False),
        Default("authentication.webhook.enabled", True),
        Default("authorization.mode", "Webhook"),
        Default("healthzBindAddress", health_address),
        Default("healthzPort", health_port),
        Default("readOnlyPort", 0, fill=False),
        Default("cgroupDriver", "systemd", warn=False),
    )
    config, warnings = fill(KUBELET.zero() if user is None else user, defaults, kind=KIND)
    config["rotateCertificates"] = True
    return ComponentConfig(document=document(config), user_supplied=user is not None), warnings


def cluster_dns(cluster: ClusterConfiguration) -> str:
    """Return the DNS service's address: the tenth of the first service subnet."""
    try:
        return str(service_address(cluster.networking.service_subnet, DNS_INDEX))
    except ValueError:
        return _FALLBACK_DNS


def document(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document of a decoded configuration, as Go's encoder writes it: zero values that Go keeps are there."""
    return {"apiVersion": API_VERSION, "kind": KIND, **KUBELET.encode(config)}


def for_machine(document: Mapping[str, Any], *, systemd_resolved: bool) -> dict[str, Any]:
    """Return a document as one machine gets it: resolvConf follows systemd-resolved unless it is set. Never uploaded."""
    resolver = {} if "resolvConf" in document or not systemd_resolved else {"resolvConf": RESOLVED}
    return {**document, **resolver}
