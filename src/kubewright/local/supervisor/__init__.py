"""What stands for the kubelet and the container runtime on a local machine: static pod manifests run as supervised processes.

It knows nothing of the API server: `kubewright.local.pods` turns what it reports into mirror pods. It runs on the event loop of the
cluster's daemon and imports nothing heavy, because etcd's start waits for it. The names below are imported when they are first used: commands
look at /proc with `identities` and have no event loop.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubewright.local.supervisor.identities import Mark
    from kubewright.local.supervisor.lastwords import readable
    from kubewright.local.supervisor.leftovers import sweep
    from kubewright.local.supervisor.model import ComponentPhase, ComponentState, LastExit, NodeFacts, ProbeIdentity
    from kubewright.local.supervisor.stopping import DOWN, ORDERLY, Stage
    from kubewright.local.supervisor.supervisor import Supervisor

_HOMES = {
    "DOWN": "stopping",
    "ORDERLY": "stopping",
    "ComponentPhase": "model",
    "ComponentState": "model",
    "LastExit": "model",
    "Mark": "identities",
    "NodeFacts": "model",
    "ProbeIdentity": "model",
    "Stage": "stopping",
    "Supervisor": "supervisor",
    "readable": "lastwords",
    "sweep": "leftovers",
}

__all__ = [
    "DOWN",
    "ORDERLY",
    "ComponentPhase",
    "ComponentState",
    "LastExit",
    "Mark",
    "NodeFacts",
    "ProbeIdentity",
    "Stage",
    "Supervisor",
    "readable",
    "sweep",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
