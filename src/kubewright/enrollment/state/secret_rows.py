"""Rows of a hub's state in Secrets of one namespace: read once, then written one transaction at a time.

One Secret, the head, contains the number of the last transaction, the transaction itself, and the last lines of the
journal. Writing it with the resourceVersion that was read is the commit: a concurrent writer is refused, reads the
changes, and decides again. Then the Secrets with the rows are written. A process that is killed in between has
committed nevertheless: the next writer first brings them up to the head, and readers take the head into account.

Rows that change together are in one Secret, a group: a node's record with the digests of its requests; a cluster with
its tokens. Each group has the number of the last transaction that changed it, and the head has the number of the
transaction that removed a cluster. So a writer that was paused neither removes nor overwrites anything newer, and
groups that it creates too late do not count:

- it updates a group only with the resourceVersion that it read, and stops if the head has changed: the writer of the
  new head has completed the transaction
- it deletes an object only with the uid and the resourceVersion that it read, and only if it is older than the
  transaction
- a group is ignored, and removed later, if it is older than the removal of its cluster, or belongs to a state that was
  deleted and created again
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kubewright.base.errors import AlreadyExists, Conflict, HostError, NotFound
from kubewright.base.randomness import Random
from kubewright.base.records import dataclass, field
from kubewright.enrollment.state.state_secrets import (
    CLUSTER_LABEL,
    GROUP,
    HEAD,
    LINES,
    PART_LABEL,
    STATE_ID,
    STATE_LABEL,
    StateSecrets,
    content_of,
    label,
    label_of,
    number_of,
    version_of,
)
from kubewright.kube import core
from kubewright.kube.core import Object

FORMAT: Final = 2
"""In format 1, rows had no seals, and states no identities."""
CHUNK: Final = 64
"""Lines of the journal in the head, and in each further Secret."""
_OF_NODES: Final = ("record", "digests")
_DIGITS: Final = 12
_MOST_DROPS: Final = 1000
"""How many removed clusters are remembered."""

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """New values of rows by their keys; None removes one.

    All rows of `dropped`, a cluster, are removed. `format` is the state's new format.
    """

    rows: Mapping[str, Any] = field(default_factory=dict)
    dropped: str = ""
    format: int = FORMAT


class _Overtaken(Exception):
    """Another process has written after the transaction that is being completed."""


def group_of(key: str) -> str:
    """Return the group of a row: `record/CLUSTER/NODE` and `digests/CLUSTER/NODE` share one, all other rows of a cluster another."""
    kind, cluster, *rest = key.split("/")
    return f"{cluster}/{rest[0]}" if kind in _OF_NODES else cluster


class Rows:
    """Rows by their keys, `KIND/CLUSTER` or `KIND/CLUSTER/NAME`, grouped by kind and cluster."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], dict[str, Any]] = {}

    def get(self, key: str) -> Any:
        """Return a row, None if there is none."""
        kind, cluster, name = _parts(key)
        return self._tables.get((kind, cluster), {}).get(name)

    def put(self, key: str, row: Any) -> None:
        """Replace a row, or remove it if it is None. A new row is the last one of its kind."""
        kind, cluster, name = _parts(key)
        table = self._tables.setdefault((kind, cluster), {})
        table.pop(name, None)
        if row is not None:
            table[name] = row

    def of(self, kind: str, cluster: str) -> Mapping[str, Any]:
        """Return the rows of a kind and a cluster by their names, in the order of their writing."""
        return self._tables.get((kind, cluster), {})

    def clusters(self, kind: str) -> list[str]:
        """Return the clusters that have rows of a kind, in order."""
        return sorted(cluster for (one, cluster), table in self._tables.items() if one == kind and table)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield all rows with their keys."""
        for (kind, cluster), table in self._tables.items():
            for name, row in table.items():
                yield _key(kind, cluster, name), row

    def of_cluster(self, cluster: str) -> dict[str, dict[str, Any]]:
        """Return all rows of a cluster, by kind and name."""
        return {kind: dict(table) for (kind, owner), table in self._tables.items() if owner == cluster and table}

    def drop(self, cluster: str) -> None:
        """Remove all rows of a cluster."""
        for key in [key for key in self._tables if key[1] == cluster]:
            del self._tables[key]

    def group(self, group: str) -> dict[str, Any]:
        """Return the rows of a group by their keys."""
        cluster, _, node = group.partition("/")
        if node:
            return {f"{kind}/{group}": row for kind in _OF_NODES if (row := self.get(f"{kind}/{group}")) is not None}
        tables = ((kind, table) for (kind, owner), table in self._tables.items() if owner == cluster and kind not in _OF_NODES)
        return {_key(kind, cluster, name): row for kind, table in tables for name, row in table.items()}


def _key(kind: str, cluster: str, name: str) -> str:
    return f"{kind}/{cluster}/{name}" if name else f"{kind}/{cluster}"


def _parts(key: str) -> tuple[str, str, str]:
    kind, cluster, *rest = key.split("/")
    return kind, cluster, rest[0] if rest else ""


class SecretRows:
    """The rows as last read, and the transactions that change them. Nothing is read before `load`."""

    def __init__(self, secrets: StateSecrets, *, random: Random) -> None:
        self._secrets = secrets
        self._random = random
        self.rows = Rows()
        self.lines: list[Line] = []
        self._head: Object | None = None
        self._content: dict[str, Any] = {}
        """The content of the head."""
        self._groups: dict[str, Object] = {}
        """Groups by their names, as they were last read."""
        self._chunks: dict[str, tuple[Object, list[Line]]] = {}
        """Older lines, with the Secrets that contain them."""
        self._stale: list[Object] = []
        """Secrets that no longer count; the next write removes them."""
        self._settled = 0

    @property
    def number(self) -> int:
        """The number of the last transaction."""
        return int(self._content.get("number", 0))

    @property
    def format(self) -> int:
        """The format of the rows."""
        return int(self._content.get("format", FORMAT))

    @property
    def _state(self) -> str:
        """The identity of this state: a new one of the same name, after this one was deleted, has another."""
        return str(self._content.get("state", ""))

    @property
    def _drops(self) -> Mapping[str, int]:
        """The numbers of the transactions that removed clusters, by their labels."""
        found: Mapping[str, int] = self._content.get("drops") or {}
        return found

    @property
    def _transaction(self) -> Transaction | None:
        found = self._content.get("transaction")
        return Transaction(rows=found["rows"], dropped=found["dropped"]) if found else None

    def _read_head(self, head: Object | None) -> None:
        self._head, self._content = head, content_of(head) if head is not None else {}
        if self.format > FORMAT:
            raise HostError(f"the state in {self._secrets.place} has format {self.format}", remedy="use a later kubewright")

    def load(self) -> None:
        """Read everything.

        Raises HostError for a state that is incomplete, was modified by hand, or has a later format.
        """
        parts: dict[str, list[Object]] = {HEAD: [], GROUP: [], LINES: []}
        for one in self._secrets.list():
            parts.setdefault(label_of(one, PART_LABEL), []).append(one)
        self._read_head(parts[HEAD][0] if parts[HEAD] else None)
        if self._head is None and parts[GROUP]:
            remedy = f"restore it from a backup; to start over, delete all Secrets with the label {STATE_LABEL}={self._secrets.name}"
            raise HostError(f"{self._secrets.place} are incomplete: {self._secrets.name} itself is missing", remedy=remedy)
        self._stale = [one for kind in (GROUP, LINES) for one in parts[kind] if not self._counts(one)]
        self._groups = {core.identity_of(one)[0]: one for one in parts[GROUP] if self._counts(one)}
        self._chunks = {core.identity_of(one)[0]: (one, content_of(one)["lines"]) for one in parts[LINES] if self._counts(one)}
        self.rows = Rows()
        for key, row in (item for one in self._groups.values() for item in content_of(one).items()):
            self.rows.put(key, row)
        self._take(self._transaction)
        self._settled = 0 if self._transaction is not None else self.number
        self._order_lines()

    def _counts(self, one: Object) -> bool:
        """Return whether a Secret belongs to the current content of this state."""
        return self._is_ours(one) and number_of(one) >= self._drops.get(label_of(one, CLUSTER_LABEL), 0)

    def _is_ours(self, one: Object) -> bool:
        """Return whether a Secret belongs to this state, and not to one that was deleted."""
        state = core.annotation_of(one, STATE_ID)
        from_before = not state and (self.format < FORMAT or label_of(one, PART_LABEL) == LINES)
        return from_before or state == self._state

    def follow(self) -> bool:
        """Read the changes of other processes; return whether there were any."""
        head = self._secrets.find(self._secrets.name)
        if version_of(head) == version_of(self._head):
            return False
        before, state = self.number, self._state
        if head is None or self._head is None or self._settled != before:
            self.load()
            return True
        self._read_head(head)
        if (self.number, self._state) != (before + 1, state):
            self.load()
            return True
        self._take(self._transaction)
        self._settled = before
        self._order_lines()
        return True

    def commit(self, transaction: Transaction, line: Line, *, oldest: str = "", most: int = 0) -> bool:
        """Write a transaction with its line of the journal, which gets a number.

        Raises Conflict after reading the changes of others. Returns whether no other process has written since;
        otherwise everything has been read again. Lines of the journal are removed if they are older than `oldest` (RFC
        3339), or beyond the `most` newest; '' and 0 keep all.
        """
        if not self._settle():
            raise self._conflict()
        number, state = self.number + 1, self._state or self._random.token_bytes(8).hex()
        mine = {**line, "number": self._last_line + 1}
        lines, chunk = [*self._content.get("lines", []), mine], []
        if len(lines) > CHUNK:
            chunk, lines = lines[:CHUNK], lines[CHUNK:]
        content = {
            "format": transaction.format,
            "state": state,
            "number": number,
            "transaction": {"rows": dict(transaction.rows), "dropped": transaction.dropped},
            "drops": _with_drop(self._drops, transaction.dropped, number),
            "lines": lines,
        }
        body = self._secrets.body(self._secrets.name, HEAD, content, number=number, state=state)
        try:
            if chunk:
                self._write_chunk(chunk)
            self._read_head(self._secrets.write(body, over=self._head))
        except (_Overtaken, Conflict, AlreadyExists, NotFound) as error:
            self.load()
            raise self._conflict() from error
        self._take(transaction)
        self.lines.append(mine)
        if chunk:
            self._drop_chunks(oldest, last=mine["number"] - most if most else 0)
        alone = self._settle()
        if not alone and self._state != state:
            raise self._conflict()  # the state was deleted and created again, without this transaction
        return alone

    def _conflict(self) -> Conflict:
        return Conflict(f"another process has written to {self._secrets.place}", code=409)

    def _take(self, transaction: Transaction | None) -> None:
        if transaction is None:
            return
        if transaction.dropped:
            self.rows.drop(transaction.dropped)
        for key, row in transaction.rows.items():
            self.rows.put(key, row)

    def _settle(self) -> bool:
        """Bring the groups up to the last transaction. Idempotent, even if others do the same.

        Returns False, after reading everything again, if another process has written in the meantime: that writer has
        done this first.
        """
        transaction = self._transaction
        try:
            if transaction is not None and self._settled != self.number:
                if transaction.dropped:
                    self._delete_groups(transaction.dropped)
                for group in dict.fromkeys(map(group_of, transaction.rows)):
                    self._write_group(group)
                self._settled = self.number
        except _Overtaken:
            self.load()
            return False
        while self._stale:
            self._secrets.delete(self._stale.pop())
        return True

    def _delete_groups(self, cluster: str) -> None:
        """Delete the groups of a cluster that this transaction has removed, and none that is newer."""
        for one in self._secrets.list(cluster=cluster):
            if self._is_ours(one) and not self._counts(one):
                self._secrets.delete(one)
                self._groups.pop(core.identity_of(one)[0], None)

    def _write_group(self, group: str) -> None:
        name = f"{self._secrets.name}-{hashlib.sha256(group.encode()).hexdigest()[:40]}"
        cluster = group.split("/", maxsplit=1)[0]
        body = self._secrets.body(name, GROUP, self.rows.group(group), number=self.number, state=self._state, cluster=cluster)
        known = self._groups.get(name)
        while known is None or not self._is_ours(known) or number_of(known) < self.number:
            try:
                known = self._secrets.write(body, over=known)
            except (Conflict, AlreadyExists, NotFound) as error:
                self._require_head(error)
                known = self._secrets.find(name)
        self._groups[name] = known

    @property
    def _last_line(self) -> int:
        lines = self._content.get("lines") or self.lines
        return int(lines[-1]["number"]) if lines else 0

    def _order_lines(self) -> None:
        """Sort the lines; one that is both in the head and in another Secret counts once."""
        kept = (lines for _, lines in self._chunks.values())
        found = {line["number"]: line for lines in (*kept, self._content.get("lines", [])) for line in lines}
        self.lines = [found[number] for number in sorted(found)]

    def _write_chunk(self, lines: list[Line]) -> None:
        name = f"{self._secrets.name}-journal-{lines[0]['number']:0{_DIGITS}d}"
        body = self._secrets.body(name, LINES, {"lines": lines}, number=self.number, state=self._state)
        try:
            made = self._secrets.write(body, over=None)
        except AlreadyExists as error:  # left by a writer that was killed or refused, or of another state
            found = self._secrets.find(name)
            if found is None or not self._is_ours(found):
                self._require_head(error)
            made = found if found is not None and self._is_ours(found) else self._secrets.write(body, over=found)
        self._chunks[name] = (made, lines)

    def _require_head(self, error: Exception) -> None:
        """Require that no other process has written since the head was read. Raises _Overtaken."""
        if version_of(self._secrets.find(self._secrets.name)) != version_of(self._head):
            raise _Overtaken from error

    def _drop_chunks(self, oldest: str, *, last: int) -> None:
        """Remove Secrets none of whose lines are kept."""
        old = [name for name, (_, lines) in self._chunks.items() if lines[-1]["number"] <= last or lines[-1]["at"] < oldest]
        for name in old:
            self._secrets.delete(self._chunks.pop(name)[0])
        if old:
            first = min((lines[0]["number"] for _, lines in self._chunks.values()), default=0)
            self.lines = [line for line in self.lines if line["number"] >= first]


def _with_drop(drops: Mapping[str, int], cluster: str, number: int) -> dict[str, int]:
    found = {**drops, **({label(cluster): number} if cluster else {})}
    newest = sorted(found, key=lambda one: found[one])[-_MOST_DROPS:]
    return {one: found[one] for one in newest}
