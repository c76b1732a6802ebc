"""The tables of a hub's state in a file, and the conversion of earlier formats.

| format | what it added |
|---|---|
| 1 | |
| 2 | how long digests of requests are kept |
| 3 | a seal for every row, over its key and its whole value |
"""

from __future__ import annotations

import sqlite3
from typing import Final

from kubewright.enrollment.state.seal import StateSeal

FORMAT: Final = 3
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS clusters (name TEXT PRIMARY KEY, document TEXT NOT NULL, secrets BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS tokens (
    cluster TEXT NOT NULL, id TEXT NOT NULL, secret BLOB NOT NULL, expires TEXT NOT NULL, description TEXT NOT NULL, PRIMARY KEY (cluster, id)
) STRICT;
CREATE TABLE IF NOT EXISTS records (
    cluster TEXT NOT NULL, node TEXT NOT NULL, document TEXT NOT NULL, seal BLOB NOT NULL, PRIMARY KEY (cluster, node)
) STRICT;
CREATE TABLE IF NOT EXISTS names (cluster TEXT NOT NULL, name TEXT NOT NULL, node TEXT NOT NULL, PRIMARY KEY (cluster, name)) STRICT;
CREATE INDEX IF NOT EXISTS names_of_nodes ON names (cluster, node);
CREATE TABLE IF NOT EXISTS requests (
    cluster TEXT NOT NULL, digest TEXT NOT NULL, uid TEXT NOT NULL, until TEXT NOT NULL, seal BLOB NOT NULL, PRIMARY KEY (cluster, digest)
) STRICT;
CREATE TABLE IF NOT EXISTS verdicts (
    cluster TEXT NOT NULL, uid TEXT NOT NULL, approved INTEGER NOT NULL, seal BLOB NOT NULL, PRIMARY KEY (cluster, uid)
) STRICT;
CREATE TABLE IF NOT EXISTS journal (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, cluster TEXT NOT NULL, event TEXT NOT NULL, node TEXT NOT NULL,
    details TEXT NOT NULL
) STRICT;
"""
INDEX: Final = "CREATE INDEX IF NOT EXISTS requests_until ON requests (until) WHERE until != '';"
_SECOND: Final = "ALTER TABLE requests ADD COLUMN until TEXT NOT NULL DEFAULT '';"
"""The additions to a state of the first format. '' means forever: the earlier tokens are unknown."""
_THIRD: Final = "".join(f"ALTER TABLE {table} ADD COLUMN seal BLOB NOT NULL DEFAULT x'';" for table in ("records", "requests", "verdicts"))


def execute(db: sqlite3.Connection, script: str) -> None:
    """Execute statements in the current transaction, which `executescript` would end."""
    for statement in script.split(";"):
        db.execute(statement)


def bring_forward(db: sqlite3.Connection, found: int, sealed: StateSeal) -> None:
    """Convert a state of format 1 or 2 to the current one, in the current transaction.

    Raises TrustError for a wrong key.
    """
    execute(db, (_SECOND if found < 2 else "") + INDEX + _THIRD)
    for name, document, secrets in db.execute("SELECT name, document, secrets FROM clusters").fetchall():
        row = f"cluster/{name}"
        seal = sealed.seal(row, document, secret=sealed.opened_old(row, secrets))
        db.execute("UPDATE clusters SET secrets = ? WHERE name = ?", (seal, name))
    for cluster, id_, secret, expires, description in db.execute("SELECT cluster, id, secret, expires, description FROM tokens").fetchall():
        row = f"token/{cluster}/{id_}"
        seal = sealed.seal(row, token_value(expires, description), secret=sealed.opened_old(row, secret))
        db.execute("UPDATE tokens SET secret = ? WHERE cluster = ? AND id = ?", (seal, cluster, id_))
    for cluster, node, document in db.execute("SELECT cluster, node, document FROM records").fetchall():
        seal = sealed.seal(f"record/{cluster}/{node}", document)
        db.execute("UPDATE records SET seal = ? WHERE cluster = ? AND node = ?", (seal, cluster, node))
    for cluster, digest, uid, until in db.execute("SELECT cluster, digest, uid, until FROM requests").fetchall():
        seal = sealed.seal(f"request/{cluster}/{digest}", request_value(uid, until))
        db.execute("UPDATE requests SET seal = ? WHERE cluster = ? AND digest = ?", (seal, cluster, digest))
    for cluster, uid, approved in db.execute("SELECT cluster, uid, approved FROM verdicts").fetchall():
        seal = sealed.seal(f"verdict/{cluster}/{uid}", approved)
        db.execute("UPDATE verdicts SET seal = ? WHERE cluster = ? AND uid = ?", (seal, cluster, uid))


def token_value(expires: str, description: str) -> dict[str, str]:
    """Return the non-secret part of a token, as it is sealed."""
    return {"expires": expires, "description": description}


def request_value(uid: str, until: str) -> dict[str, str]:
    """Return the stored part of a request, as it is sealed."""
    return {"uid": uid, "until": until}
