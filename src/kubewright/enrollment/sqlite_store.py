"""A hub's state in one SQLite file: write-ahead log, full synchronisation, keys sealed with a key that is kept elsewhere.

One connection, to be used from one thread at a time. Several processes may have it open: the daemon, and commands beside it.
"""

from __future__ import annotations

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
from kubewright.base.randomness import Random
from kubewright.enrollment.clusters import TenantCluster
from kubewright.enrollment.state_seal import StateSeal
from kubewright.enrollment.store import Event, JoinToken, Retention, copies_until, require_free, require_new
from kubewright.tokens.secrets import parse_moment

FORMAT: Final = 2
_PATIENCE: Final = 10.0
"""Seconds that a write of another process is waited for."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS clusters (name TEXT PRIMARY KEY, document TEXT NOT NULL, secrets BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS tokens (
    cluster TEXT NOT NULL, id TEXT NOT NULL, secret BLOB NOT NULL, expires TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (cluster, id)
) STRICT;
CREATE TABLE IF NOT EXISTS records (cluster TEXT NOT NULL, node TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (cluster, node)) STRICT;
CREATE TABLE IF NOT EXISTS names (cluster TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (cluster, name)) STRICT;
CREATE INDEX IF NOT EXISTS names_of_nodes ON names (cluster, node);
CREATE TABLE IF NOT EXISTS requests (
    cluster TEXT NOT NULL, digest TEXT NOT NULL, uid TEXT NOT NULL, until TEXT NOT NULL DEFAULT '', PRIMARY KEY (cluster, digest)
) STRICT;
CREATE TABLE IF NOT EXISTS verdicts (cluster TEXT NOT NULL, uid TEXT NOT NULL, approved INTEGER NOT NULL, PRIMARY KEY (cluster, uid)) STRICT;
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, cluster TEXT NOT NULL, event TEXT NOT NULL, node TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT;
"""
_SECOND: Final = "ALTER TABLE requests ADD COLUMN until TEXT NOT NULL DEFAULT '';"
"""What a state of the first format lacks. '' stands for ever: nobody knows any more which tokens there were."""
_INDEX: Final = "CREATE INDEX IF NOT EXISTS requests_until ON requests (until) WHERE until != '';"
_AT_A_TIME: Final = 4
"""Old rows of each kind that go with one write: more than one write makes, so that any backlog goes in the end."""
_OLD_LINES: Final = """DELETE FROM journal WHERE number IN
(SELECT number FROM (SELECT number, at FROM journal ORDER BY number LIMIT ?) WHERE number <= ? OR at < ?)"""
_OLD_DIGESTS: Final = """DELETE FROM requests WHERE rowid IN
(SELECT rowid FROM requests WHERE until != '' AND until < ? ORDER BY until LIMIT ?)"""
_OF_CLUSTERS: Final = ("tokens", "records", "names", "requests", "verdicts")


class SQLiteStore:
    """The file at `path`, made for its owner only where there is none. `key` seals keys: 32 bytes.

    Without a `retention` nothing old is removed. With `read_only` nothing is made or changed, and a file that no hub has made is refused. Raises HostError for a file that cannot be opened,
    or that a later version has made.
    """

    def __init__(self, path: Path, *, key: bytes, random: Random, retention: Retention | None = None, read_only: bool = False) -> None:
        self._path = path
        self._sealed = StateSeal(key, random=random, place=str(path))
        self._retention = retention
        with self._failing():
            if not read_only:
                os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            place = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rw'}"
            self._db = sqlite3.connect(place, uri=True, timeout=_PATIENCE, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(read_only=read_only)
            except BaseException:
                self._db.close()
                raise

    def _prepare(self, *, read_only: bool) -> None:
        found = self._db.execute("PRAGMA user_version").fetchone()[0]
        if found > FORMAT:
            raise HostError(f"{self._path} has format {found}, and this kubewright knows {FORMAT}", remedy="use a later kubewright")
        if read_only:
            if found < 1:
                raise HostError(f"{self._path} is no copy of a hub's state", remedy="name a file that `hub backup` has written")
            return
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON", "secure_delete = ON"):
            self._db.execute(f"PRAGMA {pragma}")
        if found < FORMAT:
            with self._transaction():
                found = self._db.execute("PRAGMA user_version").fetchone()[0]  # again: another process may have been first
                script = {0: _SCHEMA + _INDEX, 1: _SECOND + _INDEX}.get(found, "") + f"PRAGMA user_version = {FORMAT}"
                for statement in script.split(";"):
                    self._db.execute(statement)

    def close(self) -> None:
        self._db.close()

    def copy_to(self, target: sqlite3.Connection) -> None:
        """Copy everything as it is now into another database. Raises HostError."""
        with self._failing():
            self._db.backup(target)

    def replace_by(self, other: SQLiteStore) -> None:
        """Have everything that another one has, and nothing else. Raises HostError."""
        other.copy_to(self._db)
        with self._failing():
            self._prepare(read_only=False)

    def problem(self) -> str:
        """Say what is wrong with the file, '' if nothing is."""
        found = str(self._rows("PRAGMA integrity_check(1)")[0][0])
        return "" if found == "ok" else found

    def version(self) -> int:
        return int(self._rows("PRAGMA data_version")[0][0])

    def clusters(self) -> list[TenantCluster]:
        found = self._rows("SELECT name, document, secrets FROM clusters ORDER BY name")
        return [self._sealed.cluster(name, json.loads(document), sealed) for name, document, sealed in found]

    def save_cluster(self, cluster: TenantCluster, event: Event) -> None:
        with self._writing(event):
            self._put_cluster(cluster)

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
                self._require_free(record, record.held, "")
                self._put_record(record)

    def _put_cluster(self, cluster: TenantCluster) -> None:
        row = (cluster.name, json.dumps(cluster.document(), sort_keys=True), self._sealed.of_cluster(cluster))
        self._db.execute("INSERT OR REPLACE INTO clusters VALUES (?, ?, ?)", row)

    def remove_cluster(self, name: str, event: Event) -> bool:
        with self._writing(event):
            for table in _OF_CLUSTERS:
                self._db.execute(f"DELETE FROM {table} WHERE cluster = ?", (name,))  # noqa: S608 - names of ours
            return self._db.execute("DELETE FROM clusters WHERE name = ?", (name,)).rowcount > 0

    def tokens(self, cluster: str = "") -> list[JoinToken]:
        found = self._rows(
            "SELECT cluster, id, secret, expires, description FROM tokens WHERE ? IN ('', cluster) ORDER BY cluster, id", cluster
        )
        return [self._sealed.token(owner, id_, sealed, expires=expires, description=text) for owner, id_, sealed, expires, text in found]

    def save_token(self, token: JoinToken, event: Event) -> None:
        with self._writing(event):
            self._put_token(token)

    def _put_token(self, token: JoinToken) -> None:
        row = (token.cluster, token.token.id, self._sealed.of_token(token), token.expires, token.description)
        self._db.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)", row)

    def remove_token(self, cluster: str, token_id: str, event: Event) -> bool:
        with self._writing(event):
            return self._db.execute("DELETE FROM tokens WHERE cluster = ? AND id = ?", (cluster, token_id)).rowcount > 0

    def record(self, cluster: str, node: str) -> JoinRecord | None:
        found = self._rows("SELECT document FROM records WHERE cluster = ? AND node = ?", cluster, node)
        return join_records.read(json.loads(found[0][0])) if found else None

    def records(self, cluster: str = "") -> list[JoinRecord]:
        return list(self.each_record(cluster))

    def each_record(self, cluster: str = "") -> Iterator[JoinRecord]:
        with self._failing():
            for (document,) in self._db.execute("SELECT document FROM records WHERE ? IN ('', cluster) ORDER BY cluster, node", (cluster,)):
                yield join_records.read(json.loads(document))

    def owners(self, cluster: str, names: Iterable[str]) -> dict[str, str]:
        wanted = json.dumps(list(names))
        return dict(
            self._rows("SELECT name, node FROM names WHERE cluster = ? AND name IN (SELECT value FROM json_each(?))", cluster, wanted)
        )

    def first_request(self, cluster: str, digest: str) -> str:
        found = self._rows("SELECT uid FROM requests WHERE cluster = ? AND digest = ?", cluster, digest)
        return str(found[0][0]) if found else ""

    def keep(self, record: JoinRecord, event: Event, *, digest: str = "") -> None:
        with self._writing(event):
            self._require_free(record, record.held, digest)
            self._put_record(record)
            if digest:
                until = self._copies_until(record.cluster, event.at)
                self._db.execute("INSERT OR IGNORE INTO requests VALUES (?, ?, ?, ?)", (record.cluster, digest, record.request, until))

    def _put_record(self, record: JoinRecord) -> None:
        row = (record.cluster, record.node, json.dumps(record.document(), sort_keys=True))
        self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?)", row)
        self._db.execute("DELETE FROM names WHERE cluster = ? AND node = ?", (record.cluster, record.node))
        self._db.executemany("INSERT INTO names VALUES (?, ?, ?)", [(record.cluster, name, record.node) for name in record.held])

    def _copies_until(self, cluster: str, at: str) -> str:
        ends = [expires for (expires,) in self._rows("SELECT expires FROM tokens WHERE cluster = ?", cluster)]
        return copies_until(ends, at)

    def _require_free(self, record: JoinRecord, own: Iterable[str], digest: str) -> None:
        require_free(
            record,
            owners=self.owners(record.cluster, own),
            first=self.first_request(record.cluster, digest),
            before=self.record(record.cluster, record.node),
        )

    def forget(self, cluster: str, node: str, event: Event) -> bool:
        with self._writing(event):
            self._db.execute("DELETE FROM names WHERE cluster = ? AND node = ?", (cluster, node))
            return self._db.execute("DELETE FROM records WHERE cluster = ? AND node = ?", (cluster, node)).rowcount > 0

    def verdict(self, cluster: str, subject: str) -> bool | None:
        found = self._rows("SELECT approved FROM verdicts WHERE cluster = ? AND uid = ?", cluster, subject)
        return bool(found[0][0]) if found else None

    def save_verdict(self, cluster: str, subject: str, *, approved: bool, event: Event) -> None:
        with self._writing(event):
            self._db.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?, ?)", (cluster, subject, int(approved)))

    def tell(self, event: Event) -> None:
        with self._writing(event):
            pass

    def journal(self, *, after: int = 0, most: int = 1000) -> list[Event]:
        query = "SELECT number, at, cluster, event, node, details FROM journal WHERE number > ? ORDER BY number LIMIT ?"
        return [
            Event(number=number, at=at, cluster=cluster, event=event, node=node, details=json.loads(details))
            for number, at, cluster, event, node, details in self._rows(query, after, most)
        ]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._failing():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def _writing(self, event: Event) -> Iterator[None]:
        """Do everything inside as one transaction, with a line of the journal."""
        with self._failing(), self._transaction():
            yield
            row = (event.at, event.cluster, event.event, event.node, _json(event.details))
            number = self._db.execute("INSERT INTO journal (at, cluster, event, node, details) VALUES (?, ?, ?, ?, ?)", row).lastrowid
            self._remove_old(number or 0, event.at)

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
        """Remove a little of what need not be kept. Only the oldest rows are looked at, by their index: that costs the same however many there are."""
        now = parse_moment(at)
        if self._retention is None or now is None:
            return
        oldest = rfc3339(now - self._retention.age)
        self._db.execute(_OLD_LINES, (_AT_A_TIME, number - self._retention.lines, oldest))
        self._db.execute(_OLD_DIGESTS, (at, _AT_A_TIME))

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Turn what SQLite and the system say into errors of ours."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            full = getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
            raise (DiskFull if full else HostError)(
                f"the state of the hub in {self._path} cannot be used",
                detail=str(error),
                remedy="check the file, its owner and the space on its disk",
            ) from error


def _json(details: Mapping[str, Any]) -> str:
    return json.dumps(dict(details), sort_keys=True)
