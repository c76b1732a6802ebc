"""A hub's state in Secrets of a management cluster: `HubStore` over `SecretRows`.

Reads return the last state that was read; writes decide again. Use it from one thread at a time. Several processes
may use the same Secrets: the daemon, and concurrent commands.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kubewright.apis import join_records
from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import rfc3339
from kubewright.base.errors import Conflict, HostError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random
from kubewright.enrollment.state import clusters
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.seal import OldState, StateSeal
from kubewright.enrollment.state.secret_rows import FORMAT, SecretRows, Transaction
from kubewright.enrollment.state.state_secrets import StateSecrets
from kubewright.enrollment.state.store import (
    MOST_VERDICTS,
    Event,
    JoinToken,
    Retention,
    copies_until,
    require_free,
    require_new,
    require_same,
)
from kubewright.kube.api import KubeAPI
from kubewright.tokens.secrets import parse_moment
from kubewright.tokens.strings import BootstrapTokenString

_TRIES: Final = 20
"""How often a writer may be overtaken in a row before it gives up."""
_AT_A_TIME: Final = 40
"""Rows of an earlier format that are converted by one write: a Secret has room for so many."""


class SecretStore:
    """The Secrets of a hub.

    `key` seals rows: 32 bytes. Raises HostError for Secrets that cannot be used, and API errors. A state of an earlier
    format is taken over if an event for the journal is given, and otherwise refused with OldState, because not
    everything in it is authenticated.
    """

    def __init__(
        self,
        api: KubeAPI,
        *,
        namespace: str,
        name: str,
        key: bytes,
        random: Random,
        retention: Retention | None = None,
        taking_over: Event | None = None,
    ) -> None:
        self._api = api
        secrets = StateSecrets(api, namespace=namespace, name=name)
        self._place = secrets.place
        self._rows = SecretRows(secrets, random=random)
        self._retention = retention
        self._sealed = StateSeal(key, random=random, place=self._place)
        self._changes = 0
        self._owners: dict[str, dict[str, str]] = {}
        self._held: dict[tuple[str, str], frozenset[str]] = {}
        self._first: dict[str, dict[str, str]] = {}
        self._rows.load()
        if self._rows.format < FORMAT:
            if taking_over is None:
                raise OldState(self._place)
            self._bring_forward(taking_over)
        self._index()

    def _bring_forward(self, event: Event) -> None:
        """Seal all rows of a state of format 1, in parts that fit into a Secret.

        After a kill, the next process continues.
        """
        for _ in range(_TRIES):
            old = [key for key, row in self._rows.rows.items() if not is_sealed(row)]
            parts = [old[first : first + _AT_A_TIME] for first in range(0, len(old), _AT_A_TIME)]
            try:
                for part in parts:
                    rows = {key: self._brought_forward(key, self._rows.rows.get(key)) for key in part}
                    self._rows.commit(Transaction(rows=rows, format=1), _line(event))
                self._rows.commit(Transaction(), _line(event))
            except Conflict:
                continue
            return
        raise self._never_alone()

    def _brought_forward(self, key: str, row: Any) -> dict[str, Any]:
        kind = key.partition("/")[0]
        if kind == "cluster":
            return self._row(key, row["document"], secret=self._sealed.opened_old(key, base64.b64decode(row["secrets"])))
        if kind == "token":
            value = {"expires": row["expires"], "description": row["description"]}
            return self._row(key, value, secret=self._sealed.opened_old(key, base64.b64decode(row["secret"])))
        return self._row(key, row)

    def _row(self, key: str, value: Any, *, secret: str = "") -> dict[str, Any]:
        """Return the stored form of a row: the value without secrets, and the seal."""
        return {"value": value, "seal": base64.b64encode(self._sealed.seal(key, value, secret=secret)).decode()}

    def _opened(self, key: str) -> tuple[Any, str] | None:
        """Return the value and the secrets of a row; None if there is none.

        Raises TrustError for a row that was altered.
        """
        row = self._rows.rows.get(key)
        if row is None:
            return None
        if not is_sealed(row):
            raise self._sealed.altered(key)
        try:
            seal = base64.b64decode(row["seal"], validate=True)
        except ValueError as error:
            raise self._sealed.altered(key) from error
        return row["value"], self._sealed.opened(key, row["value"], seal)

    def _values(self, kind: str, cluster: str) -> Iterator[tuple[str, Any, str]]:
        """Yield the rows of a kind and a cluster, sorted by name."""
        for name in sorted(self._rows.rows.of(kind, cluster)):
            found = self._opened(f"{kind}/{cluster}/{name}")
            if found is not None:
                yield name, *found

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
            for _, row, _ in self._values("digests", cluster):
                self._first.setdefault(cluster, {}).update({digest: uid for digest, (uid, _) in row.items()})
        for record in self.records():
            self._hold(record)

    def _hold(self, record: JoinRecord) -> None:
        """Make a node hold exactly what its record says."""
        self._release(record.cluster, record.node)
        self._held[record.cluster, record.node] = record.held
        self._owners.setdefault(record.cluster, {}).update(dict.fromkeys(record.held, record.node))

    def _release(self, cluster: str, node: str) -> None:
        for name in self._held.pop((cluster, node), ()):
            self._owners[cluster].pop(name, None)

    def clusters(self) -> list[TenantCluster]:
        found = [(name, self._opened(f"cluster/{name}")) for name in self._rows.rows.clusters("cluster")]
        return [clusters.read(row[0], json.loads(row[1]), generation=self._generation(name)) for name, row in found if row is not None]

    def _generation(self, name: str) -> str:
        row = self._rows.rows.get(f"cluster/{name}")
        return _digest(row) if row is not None else ""

    def save_cluster(self, cluster: TenantCluster, event: Event) -> None:
        rows = self._cluster_row(cluster)

        def decide() -> Transaction:
            self._require_generation(cluster.name, cluster.generation)
            return Transaction(rows=rows)

        self._write(decide, event)

    def _require_generation(self, name: str, decided: str) -> None:
        require_same(f"the cluster {name}", now=self._generation(name), decided=decided)

    def add_clusters(
        self, clusters: Sequence[TenantCluster], tokens: Sequence[JoinToken], records: Sequence[JoinRecord], event: Event
    ) -> None:
        rows: dict[str, Any] = {}
        for found in (*map(self._cluster_row, clusters), *map(self._token_row, tokens)):
            rows |= found
        for record in records:
            rows |= self._record_row(record)

        def decide() -> Transaction:
            require_new(clusters, self._rows.rows.clusters("cluster"))
            return Transaction(rows=rows)

        self._write(decide, event)
        self._index()

    def _cluster_row(self, cluster: TenantCluster) -> dict[str, Any]:
        key = f"cluster/{cluster.name}"
        return {key: self._row(key, cluster.document(), secret=json.dumps(cluster.secrets()))}

    def _token_row(self, token: JoinToken) -> dict[str, Any]:
        key = f"token/{token.cluster}/{token.token.id}"
        return {key: self._row(key, {"expires": token.expires, "description": token.description}, secret=token.token.secret)}

    def _record_row(self, record: JoinRecord) -> dict[str, Any]:
        key = f"record/{record.cluster}/{record.node}"
        return {key: self._row(key, record.document())}

    def contents(self, cluster: str) -> str:
        found = self._rows.rows.of_cluster(cluster)
        return _digest(found) if found else ""

    def remove_cluster(self, name: str, event: Event, *, contents: str) -> None:
        def decide() -> Transaction:
            require_same(f"the cluster {name}", now=self.contents(name), decided=contents)
            return Transaction(dropped=name)

        self._write(decide, event)
        self._index()

    def tokens(self, cluster: str = "") -> list[JoinToken]:
        owners = [cluster] if cluster else self._rows.rows.clusters("token")
        return [self._token(owner, *found) for owner in owners for found in self._values("token", owner)]

    def _token(self, cluster: str, id_: str, value: Mapping[str, str], secret: str) -> JoinToken:
        return JoinToken(cluster=cluster, token=BootstrapTokenString(id_, remember(secret)), **value)

    def save_token(self, token: JoinToken, event: Event, *, generation: str = "") -> None:
        rows = self._token_row(token)

        def decide() -> Transaction:
            self._require_generation(token.cluster, generation)
            return Transaction(rows=rows)

        self._write(decide, event)

    def remove_token(self, token: JoinToken, event: Event) -> bool:
        def decide() -> Transaction:
            there = [one for one in self.tokens(token.cluster) if one.token.id == token.token.id]
            if there:
                require_same(f"the token {token.token.id}", now=there, decided=[token])
            return Transaction(rows={f"token/{token.cluster}/{token.token.id}": None} if there else {})

        return bool(self._write(decide, event).rows)

    def record(self, cluster: str, node: str) -> JoinRecord | None:
        found = self._opened(f"record/{cluster}/{node}")
        return join_records.read(found[0]) if found is not None else None

    def records(self, cluster: str = "") -> list[JoinRecord]:
        return list(self.each_record(cluster))

    def each_record(self, cluster: str = "") -> Iterator[JoinRecord]:
        owners = [cluster] if cluster else self._rows.rows.clusters("record")
        return (join_records.read(value) for owner in owners for _, value, _ in self._values("record", owner))

    def owners(self, cluster: str, names: Iterable[str]) -> dict[str, str]:
        owners = self._owners.get(cluster, {})
        return {name: owners[name] for name in names if name in owners}

    def first_request(self, cluster: str, digest: str) -> str:
        return self._first.get(cluster, {}).get(digest, "")

    def keep(self, record: JoinRecord, event: Event, *, before: JoinRecord | None = None, digest: str = "", generation: str = "") -> None:
        def decide() -> Transaction:
            self._require_generation(record.cluster, generation)
            owners, now = self.owners(record.cluster, record.held), self.record(record.cluster, record.node)
            require_free(record, owners=owners, first=self.first_request(record.cluster, digest), before=now)
            require_same(f"the record of {record.node}", now=now, decided=before)
            return Transaction(rows=self._record_row(record) | (self._digests_row(record, digest, at=event.at) if digest else {}))

        self._write(decide, event)
        if self.record(record.cluster, record.node) == record:
            self._hold(record)
            if digest:
                self._first.setdefault(record.cluster, {}).setdefault(digest, record.request)

    def _digests_row(self, record: JoinRecord, digest: str, *, at: str) -> dict[str, Any]:
        key = f"digests/{record.cluster}/{record.node}"
        found = self._opened(key)
        ends = [token.expires for token in self.tokens(record.cluster)]
        known = {one: row for one, row in (found[0] if found is not None else {}).items() if not row[1] or row[1] >= at}
        return {key: self._row(key, {digest: [record.request, copies_until(ends, at)], **known})}

    def forget(self, record: JoinRecord, event: Event) -> bool:
        def decide() -> Transaction:
            now = self.record(record.cluster, record.node)
            if now is not None:
                require_same(f"the record of {record.node}", now=now, decided=record)
            return Transaction(rows={f"record/{record.cluster}/{record.node}": None} if now is not None else {})

        there = bool(self._write(decide, event).rows)
        if self.record(record.cluster, record.node) is None:
            self._release(record.cluster, record.node)
        return there

    def verdict(self, cluster: str, subject: str) -> bool | None:
        found = self._opened(f"verdict/{cluster}/{subject}")
        return None if found is None else bool(found[0])

    def save_verdict(self, cluster: str, subject: str, *, approved: bool, event: Event, generation: str = "") -> None:
        key = f"verdict/{cluster}/{subject}"
        row = self._row(key, approved)

        def decide() -> Transaction:
            self._require_generation(cluster, generation)
            old = [f"verdict/{cluster}/{one}" for one in list(self._rows.rows.of("verdict", cluster))[: -MOST_VERDICTS + 1]]
            return Transaction(rows={**dict.fromkeys(old), key: row})

        self._write(decide, event)

    def add_event(self, event: Event) -> None:
        self._write(Transaction, event)

    def journal(self, *, most: int = 1000) -> list[Event]:
        return [Event(**line) for line in self._rows.lines[:most]]

    def _write(self, decide: Callable[[], Transaction], event: Event) -> Transaction:
        """Commit a decided transaction, and return it; decide again if another process was first."""
        line = _line(event)
        for _ in range(_TRIES):
            transaction = decide()
            try:
                if not self._rows.commit(transaction, line, **self._kept(event.at)):
                    self._noticed()
            except Conflict:
                self._noticed()
            else:
                return transaction
        raise self._never_alone()

    def _never_alone(self) -> HostError:
        return HostError(f"other processes keep writing to {self._place}", remedy="find out which process does, and try again")

    def _kept(self, at: str) -> dict[str, Any]:
        now = parse_moment(at)
        if self._retention is None or now is None:
            return {}
        return {"oldest": rfc3339(now - self._retention.age), "most": self._retention.lines}


def _line(event: Event) -> dict[str, Any]:
    return {"at": event.at, "cluster": event.cluster, "event": event.event, "node": event.node, "details": dict(event.details)}


def is_sealed(row: object) -> bool:
    """Return whether a row has the form of format 2 and later. Pure."""
    return isinstance(row, dict) and row.keys() == {"value", "seal"} and isinstance(row["seal"], str)


def _digest(rows: object) -> str:
    """Return an identifier of rows, which also differs between times: no two seals are the same."""
    return hashlib.sha256(json.dumps(rows, sort_keys=True).encode()).hexdigest()
