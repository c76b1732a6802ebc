"""`node join` as a row of the engine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kubewright.enrollment.node.context import FetchKubelet, NodeJoinContext
from kubewright.enrollment.node.phases import PHASES
from kubewright.enrollment.node.request import NAME, NodeJoin, NodeJoinOptions, configure
from kubewright.lifecycle.connections import Mode
from kubewright.lifecycle.operation import Bound, Operation, Policy


def context(_: NodeJoinOptions, join: NodeJoin, bound: Bound) -> NodeJoinContext:
    """Make the context of the phases."""
    return NodeJoinContext(bound=bound, join=join, fetch=_fetching(bound))


def _fetching(bound: Bound) -> FetchKubelet:
    """Return the source of the kubelet program; a plan has none."""

    def fetch(version: str) -> bytes:
        from kubewright import binaries

        found = binaries.ensure(("kubelet",), version=f"v{version}", sources=binaries.sources_from(os.environ), reporter=bound.reporter)
        return Path(found["kubelet"].path).read_bytes()

    return fetch if bound.mode is Mode.APPLY else lambda _: b""


NODE_JOIN: Final = Operation(
    name=NAME,
    phases=PHASES,
    configure=configure,
    policy=Policy(adopts=False),
    context=context,
    preflight={Mode.APPLY: "kubewright.enrollment.node.preflight:checked"},
)
