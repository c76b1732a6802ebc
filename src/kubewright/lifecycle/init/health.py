"""How to see that the components of a real machine are healthy (spec/kubeadm.md 8.7)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from kubewright.apis.addresses import Addresses, url
from kubewright.apis.kubeadm.types import ClusterConfiguration, ControlPlaneComponent
from kubewright.base.errors import APIError
from kubewright.base.waiting import Condition
from kubewright.http import tls
from kubewright.http.sync import Transport

_PATIENCE: Final = 2.0
_BIND: Final = "bind-address"
_PORT: Final = "secure-port"


def checks(cluster: ClusterConfiguration, addresses: Addresses) -> Mapping[str, Condition]:
    """Return the conditions of the components that have no client: TLS, without looking at a certificate that is their own."""
    return {
        "kube-controller-manager": _condition(cluster.controller_manager, addresses, addresses.ports.controller_manager, "/healthz"),
        "kube-scheduler": _condition(cluster.scheduler, addresses, addresses.ports.scheduler, "/livez"),
    }


def _condition(component: ControlPlaneComponent, addresses: Addresses, port: int, path: str) -> Condition:
    given = {argument.name: argument.value for argument in component.extra_args}
    host = given.get(_BIND) or addresses.loopback
    server = url(addresses.loopback if host in {"0.0.0.0", "::"} else host, int(given.get(_PORT) or port))  # noqa: S104 - nothing is bound
    return functools.partial(_healthy, server, path)


def _healthy(server: str, path: str) -> str | None:
    transport = Transport(server, context=tls.anonymous_context(None, verify=False))
    try:
        answer = transport.request("GET", path, timeout=_PATIENCE)
    except APIError as error:
        return str(error)
    finally:
        transport.close()
    return None if answer.status == 200 else f"{server}{path} answers {answer.status}: {answer.body[:200].decode(errors='replace')}"
