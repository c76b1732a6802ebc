"""A hub's state in Secrets of a management cluster: `HubStore` over `SecretRows`. Reads see what this process read last; each write decides anew.

For one thread at a time. Several processes may use the same Secrets: the daemon, and commands beside it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import join_records
from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import rfc3339
from kubewright.base.errors import Conflict, HostError
from kubewright.base.randomness import Random
from kubewright.enrollment.clusters import TenantCluster
from kubewright.enrollment.secret_rows import SecretRows, Transaction
from kubewright.enrollment.state_seal import StateSeal
from kubewright.enrollment.store import Event, JoinToken, Retention, copies_until, require_free, require_new
from kubewright.kube.api import KubeAPI
from kubewright.tokens.secrets import parse_moment

_TRIES: Final = 20
"""Writers that are overtaken so often in a row give up."""
_MOST_VERDICTS: Final = 1000
"""What people have said about so many requests of a cluster is kept: they are about requests that wait."""


class SecretStore:
    """The Secrets of a hub. `key` seals keys: 32 bytes. Raises HostError for Secrets that cannot be used, and what the API raises."""

    def __init__(self, api: KubeAPI, *, namespace: str, name: str, key: bytes, random: Random, retention: Retention | None = None) -> None:
        self._api = api
        self._rows = SecretRows(api, namespace=namespace, name=name)
        self._retention = retention
        self._sealed = StateSeal(key, random=random, place=self._rows.place)
        self._changes = 0
        self._owners: dict[str, dict[str, str]] = {}
        self._held: dict[tuple[str, str], frozenset[str]] = {}
        self._first: dict[str, dict[str, str]] = {}
        self._rows.load()
        self._index()

    def close(self) -> None:
        self._api.close()

    def version(self) -> int:
        if self._rows.follow():
            self._noticed()
        return self._changes

    def _noticed(self) -> None:
        self._changes += 1
        self._index()

    def _index(self) -> None:
        self._owners, self._held, self._first = {}, {}, {}
        for cluster in self._rows.rows.clusters("digests"):
            for row in self._rows.rows.of("digests", cluster).values():
                self._first.setdefault(cluster, {}).update({digest: uid for digest, (uid, _) in row.items()})
        for record in self.records():
            self._hold(record)

    def _hold(self, record: JoinRecord) -> None:
        """Have a node hold what its record says, and nothing else."""
        self._release(record.cluster, record.node)
        self._held[record.cluster, record.node] = record.held
        self._owners.setdefault(record.cluster, {}).update(dict.fromkeys(record.held, record.node))

    def _release(self, cluster: str, node: str) -> None:
        for name in self._held.pop((cluster, node), ()):
            self._owners[cluster].pop(name, None)

    def clusters(self) -> list[TenantCluster]:
        found = [(name, self._rows.rows.get(f"cluster/{name}")) for name in self._rows.rows.clusters("cluster")]
        return [self._sealed.cluster(name, row["document"], base64.b64decode(row["secrets"])) for name, row in found]

    def save_cluster(self, cluster: TenantCluster, event: Event) -> None:
        rows = self._cluster_row(cluster)
        self._write(lambda: Transaction(rows=rows), event)

    def add_clusters(
        self, clusters: Sequence[TenantCluster], tokens: Sequence[JoinToken], records: Sequence[JoinRecord], event: Event
    ) -> None:
        rows: dict[str, Any] = {}
        for found in (*map(self._cluster_row, clusters), *map(self._token_row, tokens)):
            rows |= found
        rows |= {f"record/{record.cluster}/{record.node}": record.document() for record in records}

        def decide() -> Transaction:
            require_new(clusters, self._rows.rows.clusters("cluster"))
            return Transaction(rows=rows)

        self._write(decide, event)
        self._index()

    def _cluster_row(self, cluster: TenantCluster) -> dict[str, Any]:
        return {f"cluster/{cluster.name}": {"document": cluster.document(), "secrets": _text(self._sealed.of_cluster(cluster))}}

    def _token_row(self, token: JoinToken) -> dict[str, Any]:
        row = {"secret": _text(self._sealed.of_token(token)), "expires": token.expires, "description": token.description}
        return {f"token/{token.cluster}/{token.token.id}": row}

    def remove_cluster(self, name: str, event: Event) -> bool:
        there = self._rows.rows.get(f"cluster/{name}") is not None
        self._write(lambda: Transaction(dropped=name), event)
        self._index()
        return there

    def tokens(self, cluster: str = "") -> list[JoinToken]:
        owners = [cluster] if cluster else self._rows.rows.clusters("token")
        found = [(owner, id_, row) for owner in owners for id_, row in sorted(self._rows.rows.of("token", owner).items())]
        return [self._token(owner, id_, row) for owner, id_, row in found]

    def _token(self, cluster: str, id_: str, row: Mapping[str, str]) -> JoinToken:
        secret = base64.b64decode(row["secret"])
        return self._sealed.token(cluster, id_, secret, expires=row["expires"], description=row["description"])

    def save_token(self, token: JoinToken, event: Event) -> None:
        rows = self._token_row(token)
        self._write(lambda: Transaction(rows=rows), event)

    def remove_token(self, cluster: str, token_id: str, event: Event) -> bool:
        return self._remove(f"token/{cluster}/{token_id}", event)

    def record(self, cluster: str, node: str) -> JoinRecord | None:
        found = self._rows.rows.get(f"record/{cluster}/{node}")
        return join_records.read(found) if found is not None else None

    def records(self, cluster: str = "") -> list[JoinRecord]:
        return list(self.each_record(cluster))

    def each_record(self, cluster: str = "") -> Iterator[JoinRecord]:
        owners = [cluster] if cluster else self._rows.rows.clusters("record")
        return (join_records.read(row) for owner in owners for _, row in sorted(self._rows.rows.of("record", owner).items()))

    def owners(self, cluster: str, names: Iterable[str]) -> dict[str, str]:
        owners = self._owners.get(cluster, {})
        return {name: owners[name] for name in names if name in owners}

    def first_request(self, cluster: str, digest: str) -> str:
        return self._first.get(cluster, {}).get(digest, "")

    def keep(self, record: JoinRecord, event: Event, *, digest: str = "") -> None:
        def decide() -> Transaction:
            owners = self.owners(record.cluster, record.held)
            first = self.first_request(record.cluster, digest)
            require_free(record, owners=owners, first=first, before=self.record(record.cluster, record.node))
            rows: dict[str, Any] = {f"record/{record.cluster}/{record.node}": record.document()}
            if digest:
                key = f"digests/{record.cluster}/{record.node}"
                ends = [row["expires"] for row in self._rows.rows.of("token", record.cluster).values()]
                known = {one: row for one, row in (self._rows.rows.get(key) or {}).items() if not row[1] or row[1] >= event.at}
                rows[key] = {digest: [record.request, copies_until(ends, event.at)], **known}
            return Transaction(rows=rows)

        self._write(decide, event)
        self._hold(record)
        if digest:
            self._first.setdefault(record.cluster, {}).setdefault(digest, record.request)

    def forget(self, cluster: str, node: str, event: Event) -> bool:
        there = self._remove(f"record/{cluster}/{node}", event)
        self._release(cluster, node)
        return there

    def verdict(self, cluster: str, subject: str) -> bool | None:
        found = self._rows.rows.get(f"verdict/{cluster}/{subject}")
        return None if found is None else bool(found)

    def save_verdict(self, cluster: str, subject: str, *, approved: bool, event: Event) -> None:
        def decide() -> Transaction:
            old = [f"verdict/{cluster}/{one}" for one in list(self._rows.rows.of("verdict", cluster))[: -_MOST_VERDICTS + 1]]
            return Transaction(rows={**dict.fromkeys(old), f"verdict/{cluster}/{subject}": approved})

        self._write(decide, event)

    def tell(self, event: Event) -> None:
        self._write(Transaction, event)

    def journal(self, *, after: int = 0, most: int = 1000) -> list[Event]:
        return [Event(**line) for line in self._rows.lines if line["number"] > after][:most]

    def _remove(self, key: str, event: Event) -> bool:
        there = self._rows.rows.get(key) is not None
        self._write(lambda: Transaction(rows={key: None}), event)
        return there

    def _write(self, decide: Callable[[], Transaction], event: Event) -> None:
        """Commit what is decided; decide again where somebody else was first."""
        line = _line(event)
        for _ in range(_TRIES):
            transaction = decide()
            try:
                self._rows.commit(transaction, line, **self._kept(event.at))
            except Conflict:
                self._noticed()
            else:
                return
        raise HostError(f"{self._rows.place} are written to without end by others", remedy="look who does, and try again")

    def _kept(self, at: str) -> dict[str, Any]:
        now = parse_moment(at)
        if self._retention is None or now is None:
            return {}
        return {"oldest": rfc3339(now - self._retention.age), "most": self._retention.lines}


def _line(event: Event) -> dict[str, Any]:
    return {"at": event.at, "cluster": event.cluster, "event": event.event, "node": event.node, "details": dict(event.details)}


def _text(sealed: bytes) -> str:
    return base64.b64encode(sealed).decode()
