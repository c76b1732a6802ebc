"""The configuration that an upgrade works from: what the cluster keeps, at the version to upgrade to, with this machine's part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kubewright.apis.kubeadm.loading import load_cluster
from kubewright.apis.kubeadm.node_types import UpgradeApply, UpgradeNode
from kubewright.apis.kubeadm.types import ComponentConfig, Configuration, InitConfiguration, LocalAPIEndpoint, NodeRegistration, Timeouts
from kubewright.base.clock import Clock
from kubewright.base.errors import APIError, Forbidden, NotFound, ServerError, TooManyRequests, Unreachable
from kubewright.base.records import replace
from kubewright.base.wait import Backoff, retry
from kubewright.base.yaml import Document
from kubewright.kube.resources import CONFIG_MAP
from kubewright.lifecycle import stored_configuration
from kubewright.lifecycle.stored_configuration import KUBE_PROXY, KUBEADM_CONFIG, KUBELET_CONFIG
from kubewright.manifests import configmaps

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

T = TypeVar("T")
_PASSING = (Unreachable, ServerError, TooManyRequests)
_PAUSES = Backoff(first=0.1, factor=2.0, limit=1.0)


def machine_part(
    settings: UpgradeApply | UpgradeNode, *, name: str, socket: str, endpoint: LocalAPIEndpoint, timeouts: Timeouts
) -> InitConfiguration:
    """Return what an UpgradeConfiguration and the machine say of it, in the form that all phases read."""
    registration = NodeRegistration(
        name=name,
        cri_socket=socket,
        ignore_preflight_errors=settings.ignore_preflight_errors,
        image_pull_policy=settings.image_pull_policy,
        image_pull_serial=settings.image_pull_serial,
    )
    return InitConfiguration(
        node_registration=registration,
        local_api_endpoint=endpoint,
        patches_directory=settings.patches.directory if settings.patches else "",
        timeouts=timeouts,
    )


def of_cluster(api: KubeAPI, init: InitConfiguration, *, version: str, clock: Clock) -> Configuration:
    """Read what the cluster keeps. `version` takes the place of the stored one unless it is ''.

    What was generated is marked as generated, so that it is stored as such again. Raises APIError for what cannot be read within
    `timeouts.kubernetesAPICall`, ValidationError for what cannot be used.
    """

    def patiently(call: Callable[[], T]) -> T:
        return retry(call, clock=clock, on=_PASSING, within=init.timeouts.kubernetes_api_call.seconds, backoff=_PAUSES)

    stored = patiently(lambda: _cluster(api))
    rest = {row: patiently(lambda row=row: _component(api, row)) for row in (KUBELET_CONFIG, KUBE_PROXY)}  # type: ignore[misc]
    documents = [_at(stored, version), *(document for document, _ in rest.values() if document is not None)]
    found = load_cluster(documents, endpoint=init.local_api_endpoint).on_machine(init)
    return replace(
        found, kubelet=_marked(found.kubelet, rest[KUBELET_CONFIG][1]), kube_proxy=_marked(found.kube_proxy, rest[KUBE_PROXY][1])
    )


def _cluster(api: KubeAPI) -> Document:
    try:
        return stored_configuration.document(api, KUBEADM_CONFIG)
    except NotFound as error:
        raise APIError(
            "the ConfigMap kube-system/kubeadm-config is not there: an upgrade needs it",
            remedy="upload it again with `kubewright init phase upload-config kubeadm --config FILE`",
        ) from error


def _component(api: KubeAPI, row: stored_configuration.StoredDocument) -> tuple[Document | None, bool]:
    """Return a document that the cluster may do without, and whether kubeadm or we have generated it."""
    try:
        found = stored_configuration.find(api, row)
    except Forbidden:  # as for kubeadm, who may not read it does without
        found = None
    if found is None:
        return None, True
    body = api.get(CONFIG_MAP, row[0], stored_configuration.NAMESPACE)
    data = body.get("data") or {}
    said = (body["metadata"].get("annotations") or {}).get(configmaps.HASH, "")
    return found, said == configmaps.content_hash(data) if isinstance(data, Mapping) else False


def _marked(component: ComponentConfig, generated: bool) -> ComponentConfig:
    return replace(component, user_supplied=not generated)


def _at(stored: Document, version: str) -> Document:
    value = stored.value
    return replace(stored, value={**value, "kubernetesVersion": version}) if version and isinstance(value, dict) else stored
