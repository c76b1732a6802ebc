"""How to see that the components of a real machine are healthy (spec/kubeadm.md 8.7)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from kubewright.apis.kubeadm.types import Configuration, ControlPlaneComponent
from kubewright.apis.machine import Addresses, Detected, Layout, url
from kubewright.base.errors import APIError
from kubewright.base.wait import Condition
from kubewright.http import tls
from kubewright.http.sync import Transport
from kubewright.manifests.pods import Inputs, probe_host

_PATIENCE: Final = 2.0


def checks(configuration: Configuration, *, layout: Layout, addresses: Addresses, detected: Detected) -> Mapping[str, Condition]:
    """Return the conditions of the components that have no client: TLS, without looking at a certificate that is their own."""

    def condition(component: ControlPlaneComponent, port: int, path: str) -> Condition:
        given = Inputs(configuration=configuration, layout=layout, addresses=addresses, detected=detected, extra_args=component.extra_args)
        host = probe_host(given.bind_address(addresses.loopback)) or addresses.loopback
        return functools.partial(_healthy, url(host, given.secure_port(port)), path)

    cluster, ports = configuration.cluster, addresses.ports
    return {
        "kube-controller-manager": condition(cluster.controller_manager, ports.controller_manager, "/healthz"),
        "kube-scheduler": condition(cluster.scheduler, ports.scheduler, "/livez"),
    }


def _healthy(server: str, path: str) -> str | None:
    transport = Transport(server, context=tls.anonymous_context(None, verify=False))
    try:
        answer = transport.request("GET", path, timeout=_PATIENCE)
    except APIError as error:
        return str(error)
    finally:
        transport.close()
    return None if answer.status == 200 else f"{server}{path} answers {answer.status}: {answer.body[:200].decode(errors='replace')}"
