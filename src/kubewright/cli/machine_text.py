"""What the commands that change machines print: kubeadm's lines, the final text without a topic, and why a phase is left out."""

from __future__ import annotations

import sys

from kubewright.base import events
from kubewright.cli.parser import as_called
from kubewright.cli.report import KubeadmText

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection


class MachineText:
    """Prints events as kubeadm does. Phases left out for one of the reasons in `silent` are not told; None: for any."""

    def __init__(self, *, silent: Collection[str] | None = ()) -> None:
        self._lines = KubeadmText()
        self._silent = silent

    def emit(self, event: events.Event, /) -> None:
        match event:
            case events.Line(topic="", text=text):
                sys.stdout.write(as_called(f"\n{text}\n"))
            case events.PhaseSkipped(phase=name, reason=reason):
                if self._silent is not None and reason not in self._silent:
                    topic, _, rest = name.partition("/")
                    self._lines.emit(events.Line(topic=topic, text=f"Skipping {rest or 'phase'}: {reason}"))
            case _:
                self._lines.emit(event)
