"""The static pods of a control plane: one row each, one function that renders them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.apis.addresses import Addresses
from kubewright.apis.detected import Detected
from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.layout import Layout
from kubewright.base.records import replace
from kubewright.manifests.api_server import API_SERVER
from kubewright.manifests.controller_manager import CONTROLLER_MANAGER
from kubewright.manifests.etcd import ETCD
from kubewright.manifests.flags import Inputs
from kubewright.manifests.pods import Component, pod
from kubewright.manifests.scheduler import SCHEDULER

COMPONENTS: Final[Mapping[str, Component]] = {row.name: row for row in (API_SERVER, CONTROLLER_MANAGER, SCHEDULER, ETCD)}
"""In kubeadm's order."""

_NO_OVERRIDES: Final[Mapping[str, str]] = {}


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

    `overrides` replace or add default flags by name; the user's extraArgs win over them. `layout` holds the directories that are in force:
    certificatesDir and etcd's dataDir of the configuration are not looked at. `external_ca` says that the CA's key is not on this machine.
    Raises KeyError for an unknown component, and ValueError for etcd where it is external.
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
