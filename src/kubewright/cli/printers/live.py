"""The live display of `up`, `down` and `binaries fetch`, only on a terminal."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kubewright.base import events
from kubewright.base.clock import Clock
from kubewright.base.durations import format_seconds
from kubewright.base.masking import mask
from kubewright.base.messages import indented, without_controls
from kubewright.cli.parsing.parser import as_called
from kubewright.cli.printers.reporters import MILESTONES, REACHED, progress_text
from kubewright.cli.printers.streams import raw

_STYLES: Final[Mapping[str, str]] = {
    "Ready": "green",
    "Running": "yellow",
    "Waiting": "dim",
    "CrashLoop": "red",
    "Unhealthy": "red",
    "Stopped": "dim",
}


class LiveDisplay:
    """A reporter that redraws a few lines: progress, waits, and the state of each component and of the nodes.

    Use it as a context manager; it writes to stderr and removes its display at the end, so that only warnings stay. No
    line is longer than the terminal is wide. `console` is for tests.
    """

    def __init__(self, title: str, *, clock: Clock, console: Console | None = None) -> None:
        self._title = title
        self._clock = clock
        self._start = clock.monotonic()
        self._console = console or Console(file=raw(sys.stderr), highlight=False)
        self._spinner = Spinner("dots")
        self._doing = ""
        self._states: dict[str, events.State] = {}
        self._warnings: list[str] = []
        self._progress = Progress(TextColumn("  {task.description}"), BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f} %"))
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.RLock()
        self._live = Live(get_renderable=self.picture, console=self._console, refresh_per_second=12, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        for warning in self._warnings:
            self._console.print(Text(_shown(as_called(f"warning: {indented(warning)}")), style="yellow"))

    def emit(self, event: events.Event, /) -> None:
        with self._lock:
            if isinstance(event, events.State):
                self._states[event.subject] = event
            elif isinstance(event, events.PhaseStarted):
                self._doing = event.phase
            elif isinstance(event, events.Waiting):
                self._doing = f"waiting for {event.what}: {event.reason}"
            elif isinstance(event, events.Warned):
                self._warnings.append(event.text)
            elif isinstance(event, events.Progress):
                self._advance(event)

    def picture(self) -> Group:
        """Return the current content of the display."""
        with self._lock:
            self._spinner.update(text=Text.assemble((self._title, "bold"), f"  {format_seconds(self._clock.monotonic() - self._start)}"))
            doing = Text(f"  {' '.join(_shown(self._doing).split())}", style="dim", no_wrap=True, overflow="ellipsis")
            rows: list[RenderableType] = [self._spinner, doing]
            if self._states:
                rows.append(self._table())
            if self._tasks:
                rows.append(self._progress)
            return Group(*rows)

    def _advance(self, event: events.Progress) -> None:
        if event.total is None:
            self._doing = progress_text(event)
            return
        if event.task not in self._tasks:
            self._tasks[event.task] = self._progress.add_task(without_controls(event.task), total=event.total)
        self._progress.update(self._tasks[event.task], completed=event.done, total=event.total)

    def _table(self) -> Table:
        """Return components and nodes first, milestones below them, whose only state is being reached."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column()
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        grid.add_column(justify="right", no_wrap=True)
        for state in sorted(self._states.values(), key=lambda state: state.state == REACHED):
            reached = state.state == REACHED
            name = Text(_shown(MILESTONES.get(state.subject, state.subject)))
            shown = Text("reached", style="green") if reached else Text(_shown(state.state), style=_STYLES.get(state.state, ""))
            grid.add_row("", name, shown, Text(format_seconds(state.elapsed), style="dim"))
        return grid


def _shown(text: str) -> str:
    """Return the displayed form of a text, which is written to the terminal without `Printable`."""
    return without_controls(mask(text))
