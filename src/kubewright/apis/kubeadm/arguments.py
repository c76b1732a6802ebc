"""The arguments that a user gives to components: the field of each list, and its component."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from kubewright.apis.kubeadm.types import Arg, Configuration, NodeRegistration
from kubewright.base.records import dataclass

KUBELET: Final = "kubelet"


@dataclass(frozen=True, kw_only=True)
class Given:
    """A list of arguments that is not empty. `path` is its field, `component` the program that gets them."""

    component: str
    path: str
    arguments: Sequence[Arg]


def of_control_plane(configuration: Configuration) -> Iterator[Given]:
    """Yield the lists of a control plane's components, including the kubelet, in kubeadm's order of components."""
    cluster = configuration.cluster
    rows = (
        ("kube-apiserver", "apiServer.extraArgs", cluster.api_server.extra_args),
        ("kube-controller-manager", "controllerManager.extraArgs", cluster.controller_manager.extra_args),
        ("kube-scheduler", "scheduler.extraArgs", cluster.scheduler.extra_args),
        ("etcd", "etcd.local.extraArgs", cluster.etcd.local.extra_args if cluster.etcd.local else ()),
    )
    yield from (Given(component=component, path=path, arguments=found) for component, path, found in rows if found)
    yield from of_node(configuration.init.node_registration)


def of_node(registration: NodeRegistration) -> Iterator[Given]:
    """Yield the list of a machine's kubelet."""
    if registration.kubelet_extra_args:
        yield Given(component=KUBELET, path="nodeRegistration.kubeletExtraArgs", arguments=registration.kubelet_extra_args)
