"""The `up` and `down` commands."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kubewright import binaries
from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration, format_seconds
from kubewright.base.errors import DocumentError, UsageError
from kubewright.base.versions import supported
from kubewright.cli.output import write_result
from kubewright.cli.parser import Parsed
from kubewright.cli.reporting import progress
from kubewright.local.places import places

MOST_NODES = 30_000


def up(parsed: Parsed) -> int:
    """Bring a cluster up and print what it consists of."""
    from kubewright.local.up import Wish
    from kubewright.local.up import up as bring_up

    where = places(parsed.text("name"), state_dir=parsed.text("state-dir"))
    wish = Wish(
        nodes=_nodes(parsed),
        kubernetes_version=_version(parsed),
        config=_config(parsed.text("config")),
        within=Duration.parse(parsed.text("wait")).seconds,
    )
    sources = binaries.sources_from(os.environ, directory=parsed.text("binaries-dir") or None)
    form = parsed.text("output")
    with progress(f"cluster {where.name}", form=form) as reporter:
        outcome = bring_up(where, wish, sources=sources, reporter=reporter, clock=SystemClock())
    from kubewright.cli.local import status_text
    from kubewright.local.status import status

    found = status(where)
    if form == "json":
        write_result({**found, "changes": [change.as_map() for change in outcome.changes]}, form=form)
        return 0
    sys.stdout.write(status_text(found))
    said = "is up" if outcome.changes else "was up already; nothing changed"
    sys.stdout.write(f"\ncluster {where.name} {said} ({format_seconds(outcome.total)})\n")
    sys.stdout.write(f"export KUBECONFIG={found['kubeconfig']}\n")
    return 0


def down(parsed: Parsed) -> int:
    """Stop a cluster and remove it."""
    from kubewright.local.down import down as take_down

    where = places(parsed.text("name"), state_dir=parsed.text("state-dir"))
    form = parsed.text("output")
    with progress(f"stopping cluster {where.name}", form=form) as reporter:
        done = take_down(where, keep_data=parsed.flag("keep-data"), reporter=reporter)
    if form == "json":
        write_result({"name": where.name, "existed": done.existed, "keptData": parsed.flag("keep-data") and done.existed}, form=form)
        return 0
    kept = "; its data is kept" if parsed.flag("keep-data") else ""
    said = f"is gone{kept} ({format_seconds(done.seconds)})" if done.existed else "does not exist; nothing to do"
    sys.stdout.write(f"cluster {where.name} {said}\n")
    return 0


def _nodes(parsed: Parsed) -> int | None:
    nodes = parsed.number("nodes")
    if nodes is not None and not 0 <= nodes <= MOST_NODES:
        raise UsageError(f"--nodes {nodes} is not possible", remedy=f"choose 0 to {MOST_NODES}")
    return nodes


def _version(parsed: Parsed) -> str | None:
    return str(supported(parsed.text("kubernetes-version"))) if "kubernetes-version" in parsed.given else None


def _config(path: str) -> str | None:
    if not path:
        return None
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DocumentError(f"cannot read --config {path}", detail=str(error), remedy="give the path of a kubeadm configuration") from error
