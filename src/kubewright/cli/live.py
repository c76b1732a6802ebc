"""The live display of `up`, `down` and `binaries fetch`: only where a person watches a terminal."""

from __future__ import annotations

import sys
import threading
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from kubewright.base import events
from kubewright.base.clock import Clock
from kubewright.base.durations import format_seconds
from kubewright.cli.report import progress_text

_STYLES = {"Ready": "green", "Running": "yellow", "Waiting": "dim", "CrashLoop": "red", "Unhealthy": "red", "Stopped": "dim"}


class LiveDisplay:
    """A reporter that redraws a few lines: what is done, what is waited for, and the state of each component and node.

    Use it as a context manager; it writes to stderr and leaves nothing but its last picture behind.
    """

    def __init__(self, title: str, *, clock: Clock) -> None:
        self._title = title
        self._clock = clock
        self._start = clock.monotonic()
        self._console = Console(file=sys.stderr, highlight=False)
        self._spinner = Spinner("dots")
        self._doing = ""
        self._states: dict[str, events.State] = {}
        self._warnings: list[str] = []
        self._progress = Progress(TextColumn("  {task.description}"), BarColumn(bar_width=30), TextColumn("{task.percentage:>3.0f} %"))
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.RLock()
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=12, transient=True)

    def __enter__(self) -> LiveDisplay:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
        for warning in self._warnings:
            self._console.print(Text(f"warning: {warning}", style="yellow"))

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

    def _advance(self, event: events.Progress) -> None:
        if event.total is None:
            self._doing = progress_text(event)
            return
        if event.task not in self._tasks:
            self._tasks[event.task] = self._progress.add_task(event.task, total=event.total)
        self._progress.update(self._tasks[event.task], completed=event.done, total=event.total)

    def _render(self) -> Group:
        with self._lock:
            self._spinner.update(text=Text(f"{self._title}  {format_seconds(self._clock.monotonic() - self._start)}  {self._doing}"))
            rows: list[Spinner | Table | Progress] = [self._spinner]
            if self._states:
                rows.append(self._table())
            if self._tasks:
                rows.append(self._progress)
            return Group(*rows)

    def _table(self) -> Table:
        grid = Table.grid(padding=(0, 2))
        for state in self._states.values():
            style = _STYLES.get(state.state.split(" ")[0], "")
            grid.add_row("", state.subject, Text(state.state, style=style), Text(format_seconds(state.elapsed), style="dim"))
        return grid
