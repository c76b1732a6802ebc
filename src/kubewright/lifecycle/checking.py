"""Checking this machine for `join`, without joining; `init.checks` does it for init."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from kubewright.apis.addresses import Addresses
from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.host.seam import Host
from kubewright.preflight import lists, running
from kubewright.preflight.model import Report, Subject

_ANY_ADDRESS = "127.0.0.1"
"""Stands for the address of a worker, which serves no API."""


def for_join(configuration: JoinConfiguration, *, host: Host, user: int) -> Report:
    """Run what `join` checks before it asks the cluster anything; what depends on the cluster's configuration is not among it."""
    registration, control_plane = configuration.node_registration, configuration.control_plane
    endpoint = control_plane.local_api_endpoint if control_plane is not None else None
    addresses = (
        Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
        if endpoint is not None and endpoint.advertise_address
        else Addresses.of_machine(_ANY_ADDRESS)
    )
    by_token = configuration.discovery.bootstrap_token
    checks = lists.join(
        addresses,
        host.layout,
        control_plane=control_plane is not None,
        ca_path=PurePosixPath(configuration.ca_cert_path),
        endpoint_host=_host_of(by_token.api_server_endpoint) if by_token is not None else "",
    )
    subject = Subject(host=host, node=registration, addresses=addresses, user=user)
    return running.run(checks, subject, ignored=registration.ignore_preflight_errors)


def _host_of(endpoint: str) -> str:
    return urlsplit(f"//{endpoint}").hostname or ""
