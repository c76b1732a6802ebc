"""In which order the components of a control plane end, and how long each may take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubewright.base.records import dataclass


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Pods that are stopped together. An empty `pods` means all that no other stage names.

    `grace` is how many seconds lie between SIGTERM and SIGKILL; None takes the pod's own terminationGracePeriodSeconds.
    """

    pods: tuple[str, ...] = ()
    grace: float | None = None


ORDERLY: Final = (
    Stage(),
    Stage(pods=("kube-scheduler", "kube-controller-manager")),
    Stage(pods=("kube-apiserver",)),
    Stage(pods=("etcd",)),
)
"""Clients before servers, each with all the time that its pod asks for."""

DOWN: Final = (
    Stage(grace=0.3),
    Stage(pods=("kube-scheduler", "kube-controller-manager"), grace=0.3),
    Stage(pods=("kube-apiserver",), grace=0.2),
    Stage(pods=("etcd",), grace=2.0),
)
"""For `down`, which has two seconds. What keeps no data on disk is killed after a moment; etcd may finish its writes."""


def stages_of(pods: Sequence[str], stages: Sequence[Stage]) -> list[tuple[Stage, list[str]]]:
    """Put every pod into its stage, in the order of the stages; stages without pods are left out."""
    named = {name for stage in stages for name in stage.pods}
    rows = [(stage, [pod for pod in pods if (pod in stage.pods if stage.pods else pod not in named)]) for stage in stages]
    placed = {pod for _, members in rows for pod in members}
    rest = [pod for pod in pods if pod not in placed]
    return [row for row in [(Stage(), rest), *rows] if row[1]]
