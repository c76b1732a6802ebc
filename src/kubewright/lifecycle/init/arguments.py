"""Warnings about the arguments that a user gives to components, for those phases of a run that hand them on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Final

from kubewright.apis.kubeadm.arguments import Given
from kubewright.apis.kubeadm.types import Configuration
from kubewright.base.errors import HostError
from kubewright.host.seam import Host
from kubewright.manifests import extra_arguments
from kubewright.manifests.extra_arguments import Surroundings

PHASES: Final = {
    "kube-apiserver": "control-plane/apiserver",
    "kube-controller-manager": "control-plane/controller-manager",
    "kube-scheduler": "control-plane/scheduler",
    "etcd": "etcd/local",
    "kubelet": "kubelet-start",
}
"""The phase that hands on the arguments of a component."""


def warnings(given: Iterable[Given], *, configuration: Configuration, host: Host, phases: frozenset[str]) -> list[str]:
    """Return what is to be said about the arguments that these phases use. Nothing is written."""

    def exists(path: str) -> bool:
        """As for kubeadm, what cannot be looked at counts as there."""
        try:
            return host.state(PurePosixPath(path)) is not None
        except HostError:
            return True

    around = Surroundings(configuration=configuration, layout=host.layout, look=lambda: host.facts.detected, exists=exists)
    return extra_arguments.warnings((one for one in given if PHASES[one.component] in phases), around)
