"""The two documents of an answer: the kubelet's kubeconfig and its configuration.

Source: oneinfra: internal/pkg/node. Pure.

The parts that all nodes of a cluster share are rendered once: rendering YAML takes longer than signing.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.apis import formats
from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document
from kubewright.base import yaml
from kubewright.enrollment.protocol.answers import CERTIFICATE_FILE, CLIENT_CA_FILE, KEY_FILE
from kubewright.enrollment.state.clusters import TenantCluster

_ENDPOINTS: Final = 64
"""Cached texts of each kind. Few nodes name another endpoint than the rest."""
_CERTIFICATE_HERE: Final = b"<the certificate of the node>"
_KEY_HERE: Final = b"<the key of the node>"


def kubeconfig(cluster: TenantCluster, *, server: str, certificate_pem: bytes, key_pem: bytes) -> str:
    """Return a node's kubeconfig: one cluster, context and user, all named like the cluster."""
    before, between, after = _kubeconfig_around(cluster.name, cluster.server_ca, server)
    return "".join((before, _data(certificate_pem), between, _data(key_pem), after))


@functools.lru_cache(maxsize=_ENDPOINTS)
def _kubeconfig_around(name: str, ca: str, server: str) -> tuple[str, str, str]:
    """Return the text before, between and after a certificate and its key.

    Both are base64, which YAML needs no quotes for.
    """
    body = kubeconfig_document(
        server=server,
        cluster_name=name,
        user=name,
        context=name,
        credentials=EmbeddedCertificate(certificate_pem=_CERTIFICATE_HERE, key_pem=_KEY_HERE),
        ca_pem=ca.encode(),
    )
    before, _, rest = yaml.dump(body).partition(_data(_CERTIFICATE_HERE))
    between, _, after = rest.partition(_data(_KEY_HERE))
    return before, between, after


def _data(content: bytes) -> str:
    return base64.b64encode(content).decode()


def kubelet_config(cluster: TenantCluster) -> str:
    """Return the kubelet's configuration: oneinfra's fields over the cluster's."""
    return _kubelet_config(json.dumps(dict(cluster.kubelet_config)), cluster.service_subnet, cluster.domain)


@functools.lru_cache(maxsize=_ENDPOINTS)
def _kubelet_config(added: str, service_subnet: str, domain: str) -> str:
    ours = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {"x509": {"clientCAFile": CLIENT_CA_FILE}},
        "clusterDNS": [str(formats.service_address(service_subnet, formats.DNS_INDEX))],
        "clusterDomain": domain,
        "tlsCertFile": CERTIFICATE_FILE,
        "tlsPrivateKeyFile": KEY_FILE,
    }
    return yaml.dump(dict(_merged(json.loads(added), ours)))


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name in {**below, **above}:
        under, over = below.get(name), above.get(name)
        if isinstance(under, Mapping) and isinstance(over, Mapping):
            yield name, dict(_merged(under, over))
        else:
            yield name, under if over is None else over
