"""Which container images a control plane needs, in kubeadm's order (spec/kubeadm.md 4.3, 6.6)."""

from __future__ import annotations

from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.apis.kubeadm.versions import image_tag
from kubewright.base.versions import Release, Version, release_for

DEFAULT_REPOSITORY: Final = "registry.k8s.io"
CI_REPOSITORY: Final = "gcr.io/k8s-staging-ci-images"
KUBERNETES: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")


def images(cluster: ClusterConfiguration) -> list[str]:
    """Return all images; disabled add-ons and an etcd that somebody else runs are left out."""
    wanted = {
        "kube-proxy": not cluster.proxy.disabled,
        "coredns": not cluster.dns.disabled,
        "etcd": cluster.etcd.local is not None,
    }
    order = (*KUBERNETES, "coredns", "pause", "etcd")
    return [component_image(cluster, component) for component in order if wanted.get(component, True)]


def component_image(cluster: ClusterConfiguration, component: str) -> str:
    """Return the image of a component: one of `KUBERNETES`, `coredns`, `pause`, `etcd`. Raises KeyError for others."""
    if component in KUBERNETES:
        return f"{cluster.ci_image_repository or cluster.image_repository}/{component}:{image_tag(cluster.kubernetes_version)}"
    return _OTHERS[component](cluster)


def _coredns(cluster: ClusterConfiguration) -> str:
    repository = cluster.dns.image_repository or cluster.image_repository
    path = "coredns/coredns" if repository == DEFAULT_REPOSITORY else "coredns"
    return f"{repository}/{path}:{cluster.dns.image_tag or _release(cluster).coredns_tag}"


def _etcd(cluster: ClusterConfiguration) -> str:
    local = cluster.etcd.local
    repository = (local.image_repository if local else "") or cluster.image_repository
    return f"{repository}/etcd:{(local.image_tag if local else '') or _release(cluster).etcd_tag}"


def _pause(cluster: ClusterConfiguration) -> str:
    return f"{cluster.image_repository}/pause:{_release(cluster).pause_tag}"


_OTHERS: Final = {"coredns": _coredns, "pause": _pause, "etcd": _etcd}


def _release(cluster: ClusterConfiguration) -> Release:
    return release_for(Version.parse(cluster.kubernetes_version))
