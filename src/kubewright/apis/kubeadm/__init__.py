"""The kubeadm.k8s.io configuration kinds: internal form, defaults, validation, codec.

`load_init` is the one way from documents and flags to a configuration. The names below are imported when they are first used, so that
importing `types` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.codec import cluster_document, init_document
    from kubewright.apis.kubeadm.image_names import component_image, images
    from kubewright.apis.kubeadm.loading import Loaded, load_init
    from kubewright.apis.kubeadm.overrides import InitOverrides

_HOMES = {
    "InitOverrides": "overrides",
    "Loaded": "loading",
    "cluster_document": "codec",
    "component_image": "image_names",
    "images": "image_names",
    "init_document": "codec",
    "load_init": "loading",
}

__all__ = ["InitOverrides", "Loaded", "cluster_document", "component_image", "images", "init_document", "load_init"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
