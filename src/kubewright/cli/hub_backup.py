"""`hub backup` and `hub restore`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from kubewright.base.randomness import SystemRandom
from kubewright.cli import hub_state
from kubewright.cli.inputs import absolute
from kubewright.cli.parser import Parsed
from kubewright.enrollment import sqlite_backup


def backup(parsed: Parsed) -> int:
    """Write a copy of the state; the hub may run meanwhile."""
    with closing(hub_state.open_file(hub_state.CONFIG.with_file(parsed))) as store:
        sqlite_backup.backup(store, Path(absolute(parsed.text("file"))))
        done = hub_state.event("", "backed up")
        store.tell(done)
    return hub_state.tell(parsed, done)


def restore(parsed: Parsed) -> int:
    """Put a copy in the place of the state; a hub that runs follows it at once."""
    parsed = hub_state.CONFIG.with_file(parsed)
    source = Path(absolute(parsed.text("file")))
    with closing(hub_state.open_file(parsed)) as store:
        done = hub_state.event("", "restored")
        sqlite_backup.restore(store, source, key=hub_state.state_key(parsed), random=SystemRandom(), event=done)
    return hub_state.tell(parsed, done)
