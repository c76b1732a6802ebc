"""`hub backup`, `hub restore` and `hub migrate`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from kubewright.base.durations import Duration
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers.hub import state
from kubewright.cli.parsing.inputs import file_argument
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_rows
from kubewright.enrollment.state import sqlite_backup
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.store import TAKEN_OVER, JoinToken
from kubewright.pki import pins

_COLUMNS: Final = (
    ("name", "NAME"),
    ("approval", "APPROVAL"),
    ("lifetime", "CERTIFICATES LAST"),
    ("tokens", "TOKENS"),
    ("lastEnd", "LAST ENDS"),
    ("clientCA", "CLIENT CA"),
)


def backup(parsed: Parsed) -> int:
    """Write a copy of the state. The hub may be running."""
    target = Path(file_argument(parsed))
    with closing(state.file_of(parsed).open(state.event("", TAKEN_OVER))) as store:
        sqlite_backup.backup(store, target)
        done = state.event("", "backed up")
        store.add_event(done)
    return state.print_result(parsed, done)


def migrate(parsed: Parsed) -> int:
    """Migrate a state of an earlier format, and show the settings that no seal protected in it."""
    with closing(state.open_store(parsed, forced=True)) as store:
        rows = [_vouched_for(cluster, store.tokens(cluster.name)) for cluster in store.clusters()]
    write_rows(rows, columns=_COLUMNS, form=parsed.text("output"), none="the hub serves no cluster")
    return 0


def _vouched_for(cluster: TenantCluster, tokens: Sequence[JoinToken]) -> dict[str, object]:
    ends = [token.expires for token in tokens]
    return {
        "name": cluster.name,
        "approval": cluster.approval,
        "lifetime": str(Duration.of_seconds(cluster.lifetime)),
        "tokens": len(tokens),
        "lastEnd": "never" if "" in ends else max(ends, default=""),
        "clientCA": pins.pin(cluster.client_ca.encode(), source=f"the client CA of {cluster.name}"),
    }


def restore(parsed: Parsed) -> int:
    """Replace the state with a copy; a running hub switches to it at once."""
    found, source = state.file_of(parsed), Path(file_argument(parsed))
    with closing(found.open(state.event("", TAKEN_OVER), forced=True)) as store:  # all of it is replaced
        done = state.event("", "restored")
        sqlite_backup.restore(store, source, key=found.key().content, random=SystemRandom(), event=done)
    return state.print_result(parsed, done)
