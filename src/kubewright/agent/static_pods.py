"""Static pods: what runs them is not ours, only that the API shows them. The protocol between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kubewright.base.records import dataclass, field


@dataclass(frozen=True, kw_only=True)
class StaticPod:
    """One static pod as it is now.

    `manifest` is the Pod as in its file; the mirror pod is called `NAME-NODE`. `hash` changes whenever the manifest does.
    `containers` are `status.containerStatuses` in the API's form, one for each container of the manifest; `phase` is `status.phase`.
    Conditions and addresses are added by the agent.
    """

    manifest: Mapping[str, Any]
    hash: str
    containers: Sequence[Mapping[str, Any]] = field(default=())
    phase: str = "Running"


class StaticPods(Protocol):
    """Whatever runs the static pods of a machine."""

    changed: asyncio.Event
    """Set by the provider whenever the list differs from before; cleared by its one reader."""

    def list(self) -> Sequence[StaticPod]:
        """Return all static pods of the machine."""
        ...
