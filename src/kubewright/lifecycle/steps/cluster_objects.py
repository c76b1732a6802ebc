"""Objects that describe a cluster: its configuration, and the permissions of joining machines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.change import Change
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import DesiredObject, Write, ensure_object, remove_object
from kubewright.kube.resources import CLUSTER_ROLE_BINDING
from kubewright.lifecycle.steps.announcing import announced
from kubewright.manifests import objects, rbac

Say = Callable[[str], None]


def apply(api: KubeAPI, wanted: Iterable[Mapping[str, Any]]) -> Iterator[Change]:
    """Ensure objects in order, one change each."""
    for body in wanted:
        yield ensure_object(api, DesiredObject(body))


def kubeadm_config(configuration: Configuration, *, api: KubeAPI, say: Say) -> Iterator[Change]:
    """Store the ClusterConfiguration with the permission to read it."""
    stored, *rights = objects.kubeadm_config(configuration)
    yield from announced(
        api,
        lambda writing: [ensure_object(writing, DesiredObject(stored, write=Write.MUTATE_DATA_KEYS))],
        say=say,
        doing=["Storing the configuration in ConfigMap kubeadm-config of namespace kube-system"],
        kept="Using existing ConfigMap kubeadm-config of namespace kube-system",
    )
    yield from apply(api, rights)


def kubelet_config(configuration: Configuration, *, api: KubeAPI, say: Say) -> Iterator[Change]:
    """Store the kubelet's configuration for joining machines."""
    stored, *rights = objects.kubelet_config(configuration)
    yield from announced(
        api,
        lambda writing: [ensure_object(writing, DesiredObject(stored))],
        say=say,
        doing=["Storing the kubelet's configuration in ConfigMap kubelet-config of namespace kube-system"],
        kept="Using existing ConfigMap kubelet-config of namespace kube-system",
    )
    yield from apply(api, rights)


_RIGHTS: Final = {
    "kubeadm:get-nodes": "RBAC rules that allow bootstrap tokens to get Nodes",
    "kubeadm:kubelet-bootstrap": "RBAC rules that allow bootstrap tokens to request certificates for nodes",
    "kubeadm:node-autoapprove-bootstrap": "RBAC rules that approve requests of bootstrap tokens automatically",
    "kubeadm:node-autoapprove-certificate-rotation": "RBAC rules that allow nodes to rotate their certificates",
    "kubeadm:apiserver-kubelet-client": "RBAC rules that allow the API server to access kubelets",
}
"""The lines about the permissions, by the name of their binding: one for each, as in kubeadm."""


def joining(*, api: KubeAPI, say: Say, strict_clients: bool = False) -> Iterator[Change]:
    """Create the permissions of joining machines.

    With `strict_clients`, those that make the stock approver approve client certificates of nodes are removed instead.
    """
    stock = rbac.APPROVAL_BINDINGS if strict_clients else ()

    def write(writing: KubeAPI) -> Iterator[Change]:
        yield from apply(writing, (body for body in objects.joining() if body["metadata"]["name"] not in stock))
        for name in stock:
            yield remove_object(writing, CLUSTER_ROLE_BINDING, name)

    return announced(
        api,
        lambda writing: list(write(writing)),
        say=say,
        doing=[
            "Configuring the rights of machines that join",
            *(f"Configuring {text}" for name, text in _RIGHTS.items() if name not in stock),
        ],
        kept="Using existing rights of machines that join",
    )
