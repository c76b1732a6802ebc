"""Refuses to run `init` with its original file in a cluster that was upgraded since: the file names an older version."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.errors import ConfigurationChanged, DocumentError
from kubewright.host.seam import Host
from kubewright.lifecycle import machine_record, stored_configuration
from kubewright.lifecycle.steps import component_versions
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, read_static_pod

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI


def require_no_older_machine(host: Host, configuration: Configuration) -> None:
    """Refuse a configuration with an older version than this machine's API server, whichever tool upgraded it.

    Raises ConfigurationChanged.
    """
    with suppress(DocumentError):  # a manifest that cannot be read has no version
        pod = read_static_pod(host, host.layout.manifest(API_SERVER))
        present = component_versions.version_of(pod.body) if pod is not None else ""
        if component_versions.is_older(configuration.cluster.kubernetes_version, present) and _lasts(host):
            raise _older(f"the API server of this machine has v{present}", f"v{present}", configuration)


def require_no_older_cluster(api: KubeAPI, configuration: Configuration) -> None:
    """Refuse a configuration with an older version than the cluster stores: another control plane was upgraded first.

    Raises ConfigurationChanged.
    """
    found = stored_configuration.find(api, stored_configuration.KUBEADM_CONFIG)
    value = found.value if found is not None else None
    stored = value.get("kubernetesVersion") if isinstance(value, dict) else None
    if isinstance(stored, str) and component_versions.is_older(configuration.cluster.kubernetes_version, stored):
        raise _older(f"the cluster has been upgraded to {stored}", stored, configuration)


def _lasts(host: Host) -> bool:
    record = machine_record.current(host)
    return record is None or machine_record.lasts(host, record)


def _older(what: str, present: str, configuration: Configuration) -> ConfigurationChanged:
    wanted = configuration.cluster.kubernetes_version
    return ConfigurationChanged(
        f"{what}, and the configuration requests {wanted}: init does not downgrade",
        remedy=f"write kubernetesVersion: {present} into the configuration; `kubewright upgrade apply {wanted}` downgrades it",
    )
