"""`hub requests`, `hub nodes` and `hub journal`: nodes' requests, decisions about them, joined nodes, and past events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from datetime import timedelta
from typing import Any, Final

from kubewright.apis import node_join_requests
from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.errors import APIError, Conflict, NotFound, UsageError
from kubewright.base.messages import quoted
from kubewright.cli.handlers.hub import state
from kubewright.cli.parsing import inputs
from kubewright.cli.parsing.parser import Parsed
from kubewright.cli.printers.output import human_duration, write_rows
from kubewright.enrollment.hub import expiry
from kubewright.enrollment.protocol import decisions
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.store import require_same
from kubewright.kube import core
from kubewright.kube.core import Object
from kubewright.kube.resources import NODE_JOIN_REQUEST
from kubewright.tokens.secrets import parse_moment

_COLUMNS: Final = (("cluster", "CLUSTER"), ("node", "NODE"), ("age", "AGE"), ("state", "STATE"), ("message", "MESSAGE"))
_NODE_COLUMNS: Final = (
    ("cluster", "CLUSTER"),
    ("node", "NODE"),
    ("state", "STATE"),
    ("lease", "VPN ADDRESS"),
    ("issued", "ISSUED"),
    ("ends", "CERTIFICATES EXPIRE"),
)
_SOON: Final = timedelta(days=30)
"""Warn about certificates that expire within this time."""
_NAMED: Final = 10
_EVENT_COLUMNS: Final = (("number", "NO"), ("at", "AT"), ("cluster", "CLUSTER"), ("event", "EVENT"), ("node", "NODE"))
_MOST: Final = 100_000


def list_requests(parsed: Parsed) -> int:
    """List the current requests of the clusters. A cluster that does not answer is reported, and the others are listed."""
    with state.store(parsed) as store:
        found = store.clusters()
    rows = [row for cluster in found for row in _rows(cluster)]
    write_rows(rows, columns=_COLUMNS, form=parsed.text("output"), none="there are no requests")
    return 0


def list_nodes(parsed: Parsed) -> int:
    """List the nodes that have joined through the hub, and warn about certificates that expire soon."""
    with state.store(parsed) as store:
        configs = {cluster.name: cluster.kubelet_config for cluster in store.clusters()}
        rows = [_node_row(record, configs.get(record.cluster, {})) for record in store.records()]
    write_rows(rows, columns=_NODE_COLUMNS, form=parsed.text("output"), none="no node has joined")
    soon = [row for row in rows if "" < str(row["ends"]) <= rfc3339(SystemClock().now() + _SOON)]
    if soon:
        named = ", ".join(f"{row['cluster']} {row['node']} ({row['ends']})" for row in soon[:_NAMED])
        more = f", and {len(soon) - _NAMED} more" if len(soon) > _NAMED else ""
        inputs.warn(
            [f"certificates of {len(soon)} nodes expire within {_SOON.days} days: {named}{more}; each node has to leave and join again"]
        )
    return 0


def approve(parsed: Parsed) -> int:
    """Admit a node."""
    return _decide(parsed, approved=True)


def refuse(parsed: Parsed) -> int:
    """Refuse a node."""
    return _decide(parsed, approved=False)


def forget(parsed: Parsed) -> int:
    """Free the name of a node: remove its record and its request, so that another machine can use the name."""
    name, node = parsed.strings("which")
    done = state.event(name, "forgotten", node=node)
    with state.store(parsed) as store:
        cluster, record = state.cluster(store, name), store.record(name, node)
        if record is None:
            raise UsageError(
                f"no node {quoted(node)} has joined {quoted(name)}",
                remedy="`kubewright hub requests` and `hub journal` show which ones have",
            )
        with closing(state.client(cluster)) as client, suppress(NotFound, Conflict):
            found = client.get(NODE_JOIN_REQUEST, node)
            store.version()  # reads what others have written in the meantime
            require_same(f"the record of {node}", now=store.record(name, node), decided=record)
            client.delete(NODE_JOIN_REQUEST, node, uid=str(core.metadata(found).get("uid") or ""))
        store.forget(record, done)  # last, so that a killed command can be repeated
    return state.print_result(parsed, done)


def journal(parsed: Parsed) -> int:
    """Show the journal, the oldest line first."""
    with state.store(parsed) as store:
        rows = [event.document() for event in store.journal(most=_MOST)]
    write_rows(rows, columns=_EVENT_COLUMNS, form=parsed.text("output"))
    return 0


def _decide(parsed: Parsed, *, approved: bool) -> int:
    name, node = parsed.strings("which")
    with state.store(parsed) as store:
        cluster = state.cluster(store, name)
        with closing(state.client(cluster)) as client:
            try:
                request = client.get(NODE_JOIN_REQUEST, node)
            except NotFound as error:
                raise UsageError(
                    f"no node {quoted(node)} asks to join {quoted(name)}", remedy="`kubewright hub requests` shows which ones do"
                ) from error
        condition = node_join_requests.condition_of(request)
        if condition is not None and condition.status in {"True", "False"}:
            raise UsageError(
                f"the request of {quoted(node)} has been answered: {condition.reason}", remedy="`kubewright hub requests` shows it"
            )
        seen = decisions.look(request)
        done = state.event(name, "approved" if approved else "refused by an administrator", node=node, request=seen.uid)
        store.save_verdict(name, seen.subject, approved=approved, event=done, generation=cluster.generation)
    return state.print_result(parsed, done)


def _rows(cluster: TenantCluster) -> Iterator[dict[str, object]]:
    try:
        with closing(state.client(cluster)) as client:
            found = client.list(NODE_JOIN_REQUEST)
    except APIError as error:
        inputs.warn([f"{cluster.name}: {error}"])
        return
    for request in found:
        yield _row(cluster.name, request)


def _node_row(record: JoinRecord, kubelet_config: Mapping[str, Any]) -> dict[str, object]:
    shown = ("cluster", "node", "state", "protocol", "names", "lease", "tunnelKey", "certificates", "issued", "changed")
    return {**{name: value for name, value in record.document().items() if name in shown}, "ends": expiry.end_of(record, kubelet_config)}


def _row(cluster: str, request: Object) -> dict[str, object]:
    condition = node_join_requests.condition_of(request)
    created = parse_moment(str(core.metadata(request).get("creationTimestamp") or ""))
    return {
        "cluster": cluster,
        "node": core.identity_of(request)[0],
        "age": human_duration((SystemClock().now() - created).total_seconds()) if created is not None else "",
        "state": (condition.reason or condition.status) if condition is not None else "Received",
        "message": condition.message if condition is not None else "",
    }
