"""The objects of add-ons as a manifest, for those who install them by other means (`--print-manifest`; spec/kubeadm.md 7.5, 7.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kubewright.apis.kubeadm.types import Configuration
from kubewright.apis.machine import Addresses, Detected
from kubewright.base import yaml
from kubewright.base.records import replace
from kubewright.lifecycle import patching
from kubewright.lifecycle.init.addons import with_patches
from kubewright.lifecycle.operation import Prepared
from kubewright.manifests import configmaps, coredns, kube_proxy

Body = dict[str, Any]


Render = Callable[[Configuration, Detected], list[Body]]


def _dns(configuration: Configuration, _: Detected) -> list[Body]:
    return coredns.objects(configuration.cluster)


def _proxy(configuration: Configuration, detected: Detected) -> list[Body]:
    """Without proxy variables: the manifest may be for any machine."""
    endpoint = configuration.init.local_api_endpoint
    addresses = Addresses.of_machine(endpoint.advertise_address, bind_port=endpoint.bind_port)
    return kube_proxy.objects(configuration, addresses, replace(detected, proxy_environment={}))


_ADD_ONS: Final[Mapping[str, tuple[Render, tuple[str, ...]]]] = {
    "addon/coredns": (_dns, ("Deployment", "ConfigMap", "Service", "ClusterRole", "ClusterRoleBinding", "ServiceAccount")),
    "addon/kube-proxy": (_proxy, ("ServiceAccount", "ClusterRoleBinding", "Role", "RoleBinding", "ConfigMap", "DaemonSet")),
}
"""What an add-on consists of, and the order of kinds in which kubeadm prints it."""


def manifest(prepared: Prepared[Configuration], phase: str) -> str:
    """Return the objects of an add-on's phase as YAML documents, each after a separator; those of a disabled one too, as kubeadm does."""
    render, order = _ADD_ONS[phase]
    host = prepared.host
    found = patching.read(host, prepared.configuration, say=_silent, user=host.facts.user)
    wanted = with_patches(render(prepared.configuration, host.facts.detected), found.apply)
    bodies = sorted(map(_printed, wanted), key=lambda body: order.index(body["kind"]))
    return "".join(f"---\n{yaml.dump(body)}" for body in bodies)


def _silent(_: str) -> None:
    """What is said about patches would stand among the documents; with kubeadm it does, so that its output is no YAML."""


def _printed(body: Body) -> Body:
    """Leave out the status, and the mark of a generated configuration: who installs it by hand may change it."""
    notes = {key: value for key, value in body["metadata"].get("annotations", {}).items() if key != configmaps.HASH}
    metadata = {key: value for key, value in body["metadata"].items() if key != "annotations"} | ({"annotations": notes} if notes else {})
    return {**{key: value for key, value in body.items() if key != "status"}, "metadata": metadata}
