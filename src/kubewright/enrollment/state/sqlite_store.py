"""A hub's state in one SQLite file: write-ahead log, full synchronisation, rows sealed with a key that is kept elsewhere.

One connection, for one thread at a time. Several processes may have it open: the daemon, and concurrent commands.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from kubewright.apis import join_records
from kubewright.apis.join_records import JoinRecord
from kubewright.base.clock import rfc3339
from kubewright.base.errors import DiskFull, HostError
from kubewright.base.masking import remember
from kubewright.base.randomness import Random
from kubewright.enrollment.state import clusters
from kubewright.enrollment.state.clusters import TenantCluster
from kubewright.enrollment.state.seal import OldState, StateSeal
from kubewright.enrollment.state.sqlite_formats import FORMAT, INDEX, SCHEMA, bring_forward, execute, request_value, token_value
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
from kubewright.tokens.secrets import parse_moment
from kubewright.tokens.strings import BootstrapTokenString

_PATIENCE: Final = 10.0
"""Seconds to wait for another process's write."""
_AT_A_TIME: Final = 4
"""Old rows of each kind to remove per write: more than one write adds, so that any backlog shrinks."""
_OLD_LINES: Final = """DELETE FROM journal WHERE number IN
(SELECT number FROM (SELECT number, at FROM journal ORDER BY number LIMIT ?) WHERE number <= ? OR at < ?)"""
_OLD_DIGESTS: Final = """DELETE FROM requests WHERE rowid IN
(SELECT rowid FROM requests WHERE until != '' AND until < ? ORDER BY until LIMIT ?)"""
_OLD_VERDICTS: Final = """DELETE FROM verdicts WHERE rowid IN
(SELECT rowid FROM verdicts WHERE cluster = ? ORDER BY rowid DESC LIMIT -1 OFFSET ?)"""
_OF_CLUSTERS: Final = ("tokens", "records", "names", "requests", "verdicts")
_SEALS: Final = """SELECT secrets FROM clusters WHERE name = :cluster
UNION ALL SELECT secret FROM tokens WHERE cluster = :cluster UNION ALL SELECT seal FROM records WHERE cluster = :cluster
UNION ALL SELECT seal FROM requests WHERE cluster = :cluster UNION ALL SELECT seal FROM verdicts WHERE cluster = :cluster"""
"""No two seals are the same, not even of the same row: they distinguish every state of a cluster from all others."""


class SQLiteStore:
    """The file at `path`, created for its owner only if it does not exist. `key` seals rows: 32 bytes.

    Without a `retention`, nothing old is removed. A state of an earlier format is taken over if an event for the
    journal is given, and otherwise refused with OldState, because not everything in it is authenticated. Raises
    HostError for a file that cannot be opened, or that a later version has created.
    """

    def __init__(
        self, path: Path, *, key: bytes, random: Random, retention: Retention | None = None, taking_over: Event | None = None
    ) -> None:
        self.path = path
        self._sealed = StateSeal(key, random=random, place=str(path))
        self._retention = retention
        with self._failing():
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            place = f"{path.absolute().as_uri()}?mode=rw"
            self._db = sqlite3.connect(place, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(taking_over)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, taking_over: Event | None) -> None:
        self._require_usable(taking_over)  # before anything is changed
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        if self._format() == FORMAT:
            return
        with self._transaction():
            found = self._format()  # again: another process may have been faster
            if found == 0:
                execute(self._db, SCHEMA + INDEX)
            elif found < FORMAT and taking_over is not None:
                bring_forward(self._db, found, self._sealed)
                self._write_event(taking_over)
            self._db.execute(f"PRAGMA user_version = {FORMAT}")

    def _format(self) -> int:
        """Return the format of the file, 0 for an empty one."""
        return int(self._db.execute("PRAGMA user_version").fetchone()[0])

    def _require_usable(self, taking_over: Event | None) -> None:
        found = self._format()
        if found > FORMAT:
            raise HostError(f"{self.path} has format {found}, and this kubewright knows {FORMAT}", remedy="use a later kubewright")
        if 0 < found < FORMAT and taking_over is None:
            raise OldState(str(self.path))

    def close(self) -> None:
        self._db.close()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy the current content into another database. Raises HostError."""
        with self._failing():
            self._db.backup(target)

    def replace_by(self, other: SQLiteStore) -> None:
        """Replace the content by another store's. Raises HostError."""
        other.copy_to(self._db)

    def problem(self) -> str:
        """Return what is wrong with the file, '' if nothing is."""
        found = str(self._rows("PRAGMA integrity_check(1)")[0][0])
        return "" if found == "ok" else found

    def read_everything(self) -> None:
        """Read every row. Raises TrustError for the first one that was modified."""
        self.clusters()
        self.tokens()
        for _ in self.each_record():
            continue
        for cluster, digest in self._rows("SELECT cluster, digest FROM requests"):
            self.first_request(cluster, digest)
        for cluster, subject in self._rows("SELECT cluster, uid FROM verdicts"):
            self.verdict(cluster, subject)

    def version(self) -> int:
        return int(self._rows("PRAGMA data_version")[0][0])

    def clusters(self) -> list[TenantCluster]:
        return [self._cluster(*row) for row in self._rows("SELECT name, document, secrets FROM clusters ORDER BY name")]

    def _cluster(self, name: str, document: str, sealed: bytes) -> TenantCluster:
        secrets = json.loads(self._sealed.opened(f"cluster/{name}", document, sealed))
        return clusters.read(json.loads(document), secrets, generation=_digest([sealed]))

    def _generation(self, name: str) -> str:
        found = self._rows("SELECT secrets FROM clusters WHERE name = ?", name)
        return _digest(found[0]) if found else ""

    def save_cluster(self, cluster: TenantCluster, event: Event) -> None:
        with self._writing(event):
            self._require_generation(cluster.name, cluster.generation)
            self._put_cluster(cluster)

    def _require_generation(self, name: str, decided: str) -> None:
        require_same(f"the cluster {name}", now=self._generation(name), decided=decided)

    def add_clusters(
        self, clusters: Sequence[TenantCluster], tokens: Sequence[JoinToken], records: Sequence[JoinRecord], event: Event
    ) -> None:
        with self._writing(event):
            require_new(clusters, [name for (name,) in self._rows("SELECT name FROM clusters")])
            for cluster in clusters:
                self._put_cluster(cluster)
            for token in tokens:
                self._put_token(token)
            for record in records:
                self._require_free(record, record.held, "", before=None)
                self._put_record(record)

    def _put_cluster(self, cluster: TenantCluster) -> None:
        document = _json(cluster.document())
        seal = self._sealed.seal(f"cluster/{cluster.name}", document, secret=json.dumps(cluster.secrets()))
        self._db.execute("INSERT OR REPLACE INTO clusters VALUES (?, ?, ?)", (cluster.name, document, seal))

    def contents(self, cluster: str) -> str:
        with self._failing():
            found = [seal for (seal,) in self._db.execute(_SEALS, {"cluster": cluster})]
        return _digest(sorted(found)) if found else ""

    def remove_cluster(self, name: str, event: Event, *, contents: str) -> None:
        with self._writing(event):
            require_same(f"the cluster {name}", now=self.contents(name), decided=contents)
            for table in _OF_CLUSTERS:
                self._db.execute(f"DELETE FROM {table} WHERE cluster = ?", (name,))  # noqa: S608 - names of ours
            self._db.execute("DELETE FROM clusters WHERE name = ?", (name,))

    def tokens(self, cluster: str = "") -> list[JoinToken]:
        query = "SELECT cluster, id, secret, expires, description FROM tokens WHERE ? IN ('', cluster) ORDER BY cluster, id"
        return [self._token(*row) for row in self._rows(query, cluster)]

    def _token(self, cluster: str, id_: str, sealed: bytes, expires: str, description: str) -> JoinToken:
        secret = remember(self._sealed.opened(f"token/{cluster}/{id_}", token_value(expires, description), sealed))
        return JoinToken(cluster=cluster, token=BootstrapTokenString(id_, secret), expires=expires, description=description)

    def save_token(self, token: JoinToken, event: Event, *, generation: str = "") -> None:
        with self._writing(event):
            self._require_generation(token.cluster, generation)
            self._put_token(token)

    def _put_token(self, token: JoinToken) -> None:
        value = token_value(token.expires, token.description)
        seal = self._sealed.seal(f"token/{token.cluster}/{token.token.id}", value, secret=token.token.secret)
        row = (token.cluster, token.token.id, seal, token.expires, token.description)
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)", row)

    def remove_token(self, token: JoinToken, event: Event) -> bool:
        with self._writing(event):
            there = [one for one in self.tokens(token.cluster) if one.token.id == token.token.id]
            if there:
                require_same(f"the token {token.token.id}", now=there, decided=[token])
                self._db.execute("DELETE FROM tokens WHERE cluster = ? AND id = ?", (token.cluster, token.token.id))
            return bool(there)

    def record(self, cluster: str, node: str) -> JoinRecord | None:
        found = self._rows("SELECT cluster, node, document, seal FROM records WHERE cluster = ? AND node = ?", cluster, node)
        return self._record(*found[0]) if found else None

    def records(self, cluster: str = "") -> list[JoinRecord]:
        return list(self.each_record(cluster))

    def each_record(self, cluster: str = "") -> Iterator[JoinRecord]:
        query = "SELECT cluster, node, document, seal FROM records WHERE ? IN ('', cluster) ORDER BY cluster, node"
        with self._failing():
            for row in self._db.execute(query, (cluster,)):
                yield self._record(*row)

    def _record(self, cluster: str, node: str, document: str, seal: bytes) -> JoinRecord:
        self._sealed.opened(f"record/{cluster}/{node}", document, seal)
        return join_records.read(json.loads(document))

    def owners(self, cluster: str, names: Iterable[str]) -> dict[str, str]:
        wanted = json.dumps(list(names))
        return dict(
            self._rows("SELECT name, node FROM names WHERE cluster = ? AND name IN (SELECT value FROM json_each(?))", cluster, wanted)
        )

    def first_request(self, cluster: str, digest: str) -> str:
        found = self._rows("SELECT uid, until, seal FROM requests WHERE cluster = ? AND digest = ?", cluster, digest)
        for uid, until, seal in found:
            self._sealed.opened(f"request/{cluster}/{digest}", request_value(uid, until), seal)
        return str(found[0][0]) if found else ""

    def keep(self, record: JoinRecord, event: Event, *, before: JoinRecord | None = None, digest: str = "", generation: str = "") -> None:
        with self._writing(event):
            self._require_generation(record.cluster, generation)
            now = self.record(record.cluster, record.node)
            self._require_free(record, record.held, digest, before=now)
            require_same(f"the record of {record.node}", now=now, decided=before)
            self._put_record(record)
            if digest and not self.first_request(record.cluster, digest):
                self._put_request(record, digest, at=event.at)

    def _put_record(self, record: JoinRecord) -> None:
        document = _json(record.document())
        seal = self._sealed.seal(f"record/{record.cluster}/{record.node}", document)
        self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)", (record.cluster, record.node, document, seal))
        self._db.execute("DELETE FROM names WHERE cluster = ? AND node = ?", (record.cluster, record.node))
        self._db.executemany("INSERT INTO names VALUES (?, ?, ?)", [(record.cluster, name, record.node) for name in record.held])

    def _put_request(self, record: JoinRecord, digest: str, *, at: str) -> None:
        until = copies_until([token.expires for token in self.tokens(record.cluster)], at)
        seal = self._sealed.seal(f"request/{record.cluster}/{digest}", request_value(record.request, until))
        self._db.execute("INSERT INTO requests VALUES (?, ?, ?, ?, ?)", (record.cluster, digest, record.request, until, seal))

    def _require_free(self, record: JoinRecord, own: Iterable[str], digest: str, *, before: JoinRecord | None) -> None:
        owners, first = self.owners(record.cluster, own), self.first_request(record.cluster, digest)
        require_free(record, owners=owners, first=first, before=before)

    def forget(self, record: JoinRecord, event: Event) -> bool:
        cluster, node = record.cluster, record.node
        with self._writing(event):
            there = self.record(cluster, node)
            if there is not None:
                require_same(f"the record of {node}", now=there, decided=record)
                for table in ("names", "records"):
                    self._db.execute(f"DELETE FROM {table} WHERE cluster = ? AND node = ?", (cluster, node))  # noqa: S608 - names of ours
            return there is not None

    def verdict(self, cluster: str, subject: str) -> bool | None:
        found = self._rows("SELECT approved, seal FROM verdicts WHERE cluster = ? AND uid = ?", cluster, subject)
        for approved, seal in found:
            self._sealed.opened(f"verdict/{cluster}/{subject}", approved, seal)
        return bool(found[0][0]) if found else None

    def save_verdict(self, cluster: str, subject: str, *, approved: bool, event: Event, generation: str = "") -> None:
        seal = self._sealed.seal(f"verdict/{cluster}/{subject}", int(approved))
        with self._writing(event):
            self._require_generation(cluster, generation)
            self._db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?, ?)", (cluster, subject, int(approved), seal))
            self._db.execute(_OLD_VERDICTS, (cluster, MOST_VERDICTS))

    def add_event(self, event: Event) -> None:
        with self._writing(event):
            pass

    def journal(self, *, most: int = 1000) -> list[Event]:
        query = "SELECT number, at, cluster, event, node, details FROM journal ORDER BY number LIMIT ?"
        return [
            Event(number=number, at=at, cluster=cluster, event=event, node=node, details=json.loads(details))
            for number, at, cluster, event, node, details in self._rows(query, most)
        ]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._failing():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self, event: Event) -> Iterator[None]:
        """Run the block as one transaction, with a line of the journal."""
        with self._failing(), self._transaction():
            yield
            self._remove_old(self._write_event(event), event.at)

    def _write_event(self, event: Event) -> int:
        row = (event.at, event.cluster, event.event, event.node, _json(event.details))
        return self._db.execute("INSERT INTO journal (at, cluster, event, node, details) VALUES (?, ?, ?, ?, ?)", row).lastrowid or 0

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def _remove_old(self, number: int, at: str) -> None:
        """Remove a few expired rows.

        Only the oldest are read, by index: the cost does not depend on the number of rows.
        """
        now = parse_moment(at)
        if self._retention is None or now is None:
            return
        oldest = rfc3339(now - self._retention.age)
        self._db.execute(_OLD_LINES, (_AT_A_TIME, number - self._retention.lines, oldest))
        self._db.execute(_OLD_DIGESTS, (at, _AT_A_TIME))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Convert errors of SQLite and the system to ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            raise (DiskFull if full else HostError)(
                f"the state of the hub in {self.path} cannot be used",
                detail=str(error),
                remedy="check the file, its owner and the space on its disk",
            ) from error


def _json(details: Mapping[str, Any]) -> str:
    return json.dumps(dict(details), sort_keys=True)


def _digest(seals: Iterable[bytes]) -> str:
    return hashlib.sha256(b"".join(seals)).hexdigest()
