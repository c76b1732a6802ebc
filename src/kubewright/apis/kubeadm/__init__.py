"""The kubeadm.k8s.io configuration kinds: internal form, defaults, validation, codec.

Use `load_init` to convert documents and flags to a machine's configuration, and `load_cluster` if no machine is
involved. The names below are imported when they are first used, so that importing `types` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubewright.apis.kubeadm.codec import cluster_document, init_document, join_document, reset_document, upgrade_document
    from kubewright.apis.kubeadm.loading import (
        Loaded,
        LoadedCluster,
        LoadedKind,
        load_cluster,
        load_init,
        load_join,
        load_reset,
        load_upgrade,
    )
    from kubewright.apis.kubeadm.overrides import InitOverrides
    from kubewright.apis.kubeadm.versions import component_image, images
    from kubewright.apis.kubeadm.whole_files import WholeFile, load_whole

_MODULES = {
    "InitOverrides": "overrides",
    "Loaded": "loading",
    "LoadedCluster": "loading",
    "LoadedKind": "loading",
    "WholeFile": "whole_files",
    "cluster_document": "codec",
    "component_image": "versions",
    "images": "versions",
    "init_document": "codec",
    "join_document": "codec",
    "load_cluster": "loading",
    "load_init": "loading",
    "load_join": "loading",
    "load_reset": "loading",
    "load_upgrade": "loading",
    "load_whole": "whole_files",
    "reset_document": "codec",
    "upgrade_document": "codec",
}

__all__ = [
    "InitOverrides",
    "Loaded",
    "LoadedCluster",
    "LoadedKind",
    "WholeFile",
    "cluster_document",
    "component_image",
    "images",
    "init_document",
    "join_document",
    "load_cluster",
    "load_init",
    "load_join",
    "load_reset",
    "load_upgrade",
    "load_whole",
    "reset_document",
    "upgrade_document",
]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
