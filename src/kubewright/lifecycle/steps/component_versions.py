"""Versions of components: in the image tags of static pods, and in the metrics of running components. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kubewright.base import untyped
from kubewright.base.patterns import Pattern
from kubewright.base.versions import Version

_BUILD: Final = Pattern(r'(?m)^kubernetes_build_info\{[^}\n]*git_version="(?P<version>[^"\n]*)"')
_CORE: Final = Pattern(r"^v?(?P<core>\d+\.\d+\.\d+)")


def core(text: str) -> str:
    """Return the three numbers of a version or of an image's tag, '' if it has none: `1.36.3` of `v1.36.3-build.2`."""
    found = _CORE.match(text)
    return found["core"] if found else ""


def version_of(pod: Mapping[str, Any]) -> str:
    """Return the version in the image tag of a static pod; '' if it has none."""
    return core(image_tag(pod))


def image_tag(pod: Mapping[str, Any]) -> str:
    """Return the image tag of the first container of a pod, '' without one; a following digest is ignored."""
    return untyped.text(first_container(pod).get("image")).partition("@")[0].rpartition("/")[2].partition(":")[2]


def first_container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the first container of a pod, an empty one if there is none."""
    containers = untyped.items(untyped.mapping(pod.get("spec")).get("containers"))
    return untyped.mapping(containers[0]) if containers else {}


def build_version(metrics: str) -> str:
    """Return the version in the metrics of a Kubernetes component, '' if it is missing."""
    found = _BUILD.search(metrics)
    return found["version"] if found else ""


def is_older(first: str, second: str) -> bool:
    """Return whether the first of two versions or tags is older; False if one of them has no version."""
    old, new = core(first), core(second)
    return bool(old and new) and Version.parse(f"v{old}") < Version.parse(f"v{new}")
