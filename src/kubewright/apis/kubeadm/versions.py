"""The meaning of `kubernetesVersion` (a version, a label such as `stable-1`, or a CI build), and the container images of a control plane."""

from __future__ import annotations

import re
from typing import Final

from kubewright.apis.kubeadm.types import ClusterConfiguration
from kubewright.base.patterns import Pattern
from kubewright.base.records import dataclass
from kubewright.base.versions import OLDEST_CONTROL_PLANE, OWN, Release, Version, release_for

CI_PREFIX: Final = "ci/"

_BUILD: Final = Pattern(r"v?(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)[-\w.+]*", re.ASCII)
_LABEL: Final = Pattern(r"(?:latest|stable)+(?:-[1-9](?:\.[1-9]\d?)?)?", re.ASCII)
_PREFIXED: Final = Pattern(r"(?:(release|ci)/)?([-\w.+]+)", re.ASCII)

DEFAULT_REPOSITORY: Final = "registry.k8s.io"
CI_REPOSITORY: Final = "gcr.io/k8s-staging-ci-images"
KUBERNETES: Final = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy")


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A version `vX.Y.Z`, whether it is a CI build, and the warnings."""

    version: str
    ci: bool = False
    warnings: tuple[str, ...] = ()


def resolve(text: str) -> Resolved:
    """Resolve a version or label and require one that can be deployed. Raises ValueError with the reason.

    Nothing is looked up: an empty text and any label mean the version of this program.
    """
    found = _PREFIXED.fullmatch(text)
    name, warnings = _named(text, found)
    try:
        version = Version.parse(name) if _BUILD.fullmatch(name) else None
    except ValueError:
        version = None
    if version is None:
        raise ValueError("must be a version such as v1.36.3, or a label such as stable-1 or latest-1.36")
    if version < OLDEST_CONTROL_PLANE:
        raise ValueError(f"the oldest version that can be deployed is {OLDEST_CONTROL_PLANE}")
    ci = found is not None and found[1] == "ci"
    return Resolved(version=name if name.startswith("v") else f"v{name}", ci=ci, warnings=warnings)


def _named(text: str, found: re.Match[str] | None) -> tuple[str, tuple[str, ...]]:
    """Return the text of the version without its prefix, and the warnings."""
    if not text:
        return str(OWN), ()
    if _BUILD.fullmatch(text) or found is None:
        return text, ()
    if _LABEL.fullmatch(found[2]):
        return str(OWN), (f"{text} is not looked up: {OWN} is used, the version of this program",)
    return found[2], ()


def image_tag(version: str) -> str:
    """Return the image tag of a version; invalid characters become `_`."""
    return re.sub(r"[^-\w.]", "_", version, flags=re.ASCII)


def images(cluster: ClusterConfiguration) -> list[str]:
    """Return all images, without those of disabled add-ons and of an external etcd."""
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
