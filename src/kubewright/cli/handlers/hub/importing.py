"""`hub import`: imports clusters of oneinfra from its manifests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from kubewright.base.clock import SystemClock
from kubewright.base.durations import Duration
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.base.records import dataclass
from kubewright.cli.handlers.hub import state
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.inputs import absolute
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import write_rows
from kubewright.enrollment.hub import oneinfra_clusters
from kubewright.enrollment.hub.oneinfra_clusters import ImportedCluster
from kubewright.enrollment.state.clusters import LoadedCluster
from kubewright.enrollment.state.store import HubStore

_COLUMNS: Final = (
    ("name", "NAME"),
    ("server", "SERVER"),
    ("version", "VERSION"),
    ("tokens", "TOKENS"),
    ("vpn", "VPN"),
    ("nodes", "NODES"),
    ("joinKey", "JOIN KEY"),
)


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The flags of `hub import`."""

    dry_run: bool
    token_ttl: Duration


def run(parsed: Parsed) -> int:
    """Import all clusters in the files, or none."""
    options = inputs.complete(parsed, ImportOptions)
    read = [document for path in parsed.strings("files") for document in inputs.read_documents(absolute(path))]
    now = SystemClock().now()
    found = oneinfra_clusters.read(read, now=now, token_life=timedelta(seconds=options.token_ttl.seconds), random=SystemRandom())
    if not options.dry_run or state.exists(parsed):
        with state.store(parsed) as store:
            _import(store, found, dry=options.dry_run)
    write_rows([_row(one) for one in found], columns=_COLUMNS, form=parsed.text("output"))
    return 0


def _import(store: HubStore, found: Sequence[ImportedCluster], *, dry: bool) -> None:
    conflict = oneinfra_clusters.conflicts(found, store.clusters())
    if conflict:
        raise UsageError(f"nothing was imported: {conflict}", remedy="rename it, or remove what is there: kubewright hub cluster remove")
    if dry:
        return
    tokens = [token for one in found for token in one.tokens]
    records = [record for one in found for record in one.records]
    done = state.event("", "imported", clusters=[one.cluster.name for one in found], tokens=len(tokens), nodes=len(records))
    store.add_clusters([one.cluster for one in found], tokens, records, done)


def _row(one: ImportedCluster) -> dict[str, object]:
    cluster = one.cluster
    return {
        "name": cluster.name,
        "server": cluster.server,
        "version": cluster.kubernetes_version,
        "tokens": len(one.tokens),
        "vpn": ",".join(cluster.vpn.networks) if cluster.vpn is not None else "",
        "nodes": len(one.records),
        "joinKey": str(LoadedCluster(cluster).recipient.pin),
    }
