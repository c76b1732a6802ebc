"""Checking this machine for `join`, without joining; `init.checks` does it for init."""

from __future__ import annotations

from pathlib import PurePosixPath
from urllib.parse import urlsplit

from kubewright.apis.kubeadm.node_types import JoinConfiguration
from kubewright.apis.machine import Addresses, Layout
from kubewright.host.seam import Host
from kubewright.preflight import lists
from kubewright.preflight.checks import Report, Subject, run_checks

_ANY_ADDRESS = "127.0.0.1"
"""Stands for the address of a worker, which serves no API."""


def addresses(configuration: JoinConfiguration) -> Addresses:
    """Return where a machine that joins listens; on a worker only the kubelet does."""
    plane = configuration.control_plane
    endpoint = plane.local_api_endpoint if plane is not None else None
    if endpoint is None or not endpoint.advertise_address:
        return Addresses.of_machine(_ANY_ADDRESS)
    return Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)


def authority_path(configuration: JoinConfiguration, layout: Layout) -> PurePosixPath:
    """Return where the cluster's CA is written to: kubeadm's default stands for the place that the machine has for it."""
    named = configuration.ca_cert_path
    return layout.certificate("ca") if named == JoinConfiguration.ca_cert_path else PurePosixPath(named)


def for_join(configuration: JoinConfiguration, *, host: Host, user: int, resumed: bool = False) -> Report:
    """Run what `join` checks before it asks the cluster anything; what depends on the cluster's configuration is not among it.

    Where a run is `resumed`, what the earlier one made does not stand in the way.
    """
    registration, control_plane = configuration.node_registration, configuration.control_plane
    places = addresses(configuration)
    by_token = configuration.discovery.bootstrap_token
    checks = lists.join(
        places,
        host.layout,
        control_plane=control_plane is not None,
        ca_path=authority_path(configuration, host.layout),
        endpoint_host=_host_of(by_token.api_server_endpoint) if by_token is not None else "",
        resumed=resumed,
    )
    subject = Subject(host=host, node=registration, addresses=places, user=user)
    return run_checks(checks, subject, ignored=registration.ignore_preflight_errors)


def _host_of(endpoint: str) -> str:
    return urlsplit(f"//{endpoint}").hostname or ""
