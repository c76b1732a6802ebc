"""What a call of any workflow works through: this machine by layout, and the other seams."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubewright.base.clock import Clock
from kubewright.base.events import Reporter
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass

if TYPE_CHECKING:
    from kubewright.apis.layout import Layout
    from kubewright.host.seam import Host

    Machine = Callable[[Layout], Host]
    """Gives this machine with a layout: the configuration, which is loaded with what the machine tells, may move places."""

LOCK = "machine.lock"
"""The lock of a machine, whatever is done to it."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """The seams of a call besides the machine."""

    clock: Clock
    random: Random
    reporter: Reporter
