"""Rows of a hub's state in Secrets of one namespace: read once, then written a transaction at a time.

One Secret, the head, has the number of the last transaction, the transaction itself, and the last lines of the journal. Writing it, with the
resourceVersion that was seen, is what commits: whoever comes second is refused, reads what has changed, and decides again. Then the Secrets that hold
the rows follow. Whoever is killed in between has committed all the same: the next one who writes brings them up to the head first, and whoever
reads takes the head into account.

Rows that change together lie in one Secret, a group: a node's record with the digests of its requests; a cluster with its tokens. Each group has the
number of the last transaction that changed it, so that a writer who was stopped for a while does not put back what has changed since.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kubewright.base.errors import AlreadyExists, Conflict, HostError, NotFound
from kubewright.base.records import dataclass, field
from kubewright.kube import core
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Object
from kubewright.kube.resources import SECRET

STATE_LABEL: Final = "enrollment.kubewright/state"
PART_LABEL: Final = "enrollment.kubewright/part"
CLUSTER_LABEL: Final = "enrollment.kubewright/cluster"
TYPE: Final = "enrollment.kubewright/state"
HEAD, GROUP, LINES = "head", "group", "journal"
NUMBER: Final = "enrollment.kubewright/number"
FORMAT: Final = 1
CHUNK: Final = 64
"""Lines of the journal in the head, and in each Secret beside it."""
_CONTENT: Final = "content"
_OF_NODES: Final = ("record", "digests")
_DIGITS: Final = 12

Line = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """What becomes of rows, by their keys; None removes one. `dropped` is a cluster all of whose rows go."""

    rows: Mapping[str, Any] = field(default_factory=dict)
    dropped: str = ""


def group_of(key: str) -> str:
    """Return the group of a row: `record/CLUSTER/NODE` and `digests/CLUSTER/NODE` are one, everything else of a cluster another."""
    kind, cluster, *rest = key.split("/")
    return f"{cluster}/{rest[0]}" if kind in _OF_NODES else cluster


class Rows:
    """Rows by their keys, `KIND/CLUSTER` or `KIND/CLUSTER/NAME`, each kind of each cluster apart."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], dict[str, Any]] = {}

    def get(self, key: str) -> Any:
        """Return a row, None if there is none."""
        kind, cluster, name = _parts(key)
        return self._tables.get((kind, cluster), {}).get(name)

    def put(self, key: str, row: Any) -> None:
        """Replace a row, or remove it if it is None. The last one that was put is the last one of its kind."""
        kind, cluster, name = _parts(key)
        table = self._tables.setdefault((kind, cluster), {})
        table.pop(name, None)
        if row is not None:
            table[name] = row

    def of(self, kind: str, cluster: str) -> Mapping[str, Any]:
        """Return the rows of a kind and a cluster by their names, in the order in which they were put."""
        return self._tables.get((kind, cluster), {})

    def clusters(self, kind: str) -> list[str]:
        """Return the clusters that have rows of a kind, in order."""
        return sorted(cluster for (one, cluster), table in self._tables.items() if one == kind and table)

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
        return {f"{kind}/{cluster}/{name}" if name else f"{kind}/{cluster}": row for kind, table in tables for name, row in table.items()}


def _parts(key: str) -> tuple[str, str, str]:
    kind, cluster, *rest = key.split("/")
    return kind, cluster, rest[0] if rest else ""


class SecretRows:
    """The rows as they were last seen, and the way to change them. `name` is that of the head, and begins all others. Nothing is read before `load`."""

    def __init__(self, api: KubeAPI, *, namespace: str, name: str) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self.rows = Rows()
        self.lines: list[Line] = []
        self._head: Object | None = None
        self._seen: dict[str, Object] = {}
        """Groups by their names, as they were last seen."""
        self._chunks: dict[str, list[Line]] = {}
        self._settled = 0

    @property
    def number(self) -> int:
        """The number of the last transaction."""
        return int(self._content.get("number", 0))

    @property
    def _content(self) -> dict[str, Any]:
        return _content(self._head) if self._head is not None else {}

    def load(self) -> None:
        """Read everything. Raises HostError for a state that a later version has made."""
        found = self._api.list(SECRET, self._namespace, label_selector=f"{STATE_LABEL}={self._name}")
        parts: dict[str, list[Object]] = {HEAD: [], GROUP: [], LINES: []}
        for one in found:
            parts.setdefault((core.metadata(one).get("labels") or {}).get(PART_LABEL, ""), []).append(one)
        self._head = parts[HEAD][0] if parts[HEAD] else None
        if self._content.get("format", FORMAT) > FORMAT:
            raise HostError(f"the state in {self.place} has format {self._content['format']}", remedy="use a later kubewright")
        self._seen = {core.identity_of(one)[0]: one for one in parts[GROUP]}
        self.rows = Rows()
        for key, row in (item for one in parts[GROUP] for item in _content(one).items()):
            self.rows.put(key, row)
        self._chunks = {core.identity_of(one)[0]: _content(one)["lines"] for one in parts[LINES]}
        self._take(self._transaction)
        self._settled = 0 if self._transaction is not None else self.number
        self._order_lines()

    @property
    def place(self) -> str:
        """Where the state is, for messages."""
        return f"the Secrets {self._namespace}/{self._name}"

    def follow(self) -> bool:
        """Read what somebody else has written; returns whether somebody has."""
        try:
            head = self._api.get(SECRET, self._name, self._namespace)
        except NotFound:
            head = None
        if (head or {}).get("metadata", {}).get("resourceVersion") == (self._head or {}).get("metadata", {}).get("resourceVersion"):
            return False
        if head is not None and self._head is not None and _content(head)["number"] == self.number + 1 and self._settled == self.number:
            self._head = head
            self._take(self._transaction)
            self._settled = self.number - 1
            self._order_lines()
        else:
            self.load()
        return True

    def commit(self, transaction: Transaction, line: Line, *, oldest: str = "", most: int = 0) -> None:
        """Write a transaction with its line of the journal, to which it gives a number. Raises Conflict, having read what has changed.

        Of the journal lines go that are older than `oldest` (RFC 3339), or beyond the `most` newest; '' and 0 leave all.
        """
        self._settle()
        content = self._content
        mine = {**line, "number": self._last_line + 1}
        lines = [*content.get("lines", []), mine]
        if len(lines) > CHUNK:
            self._write_chunk(lines[:CHUNK])
            lines = lines[CHUNK:]
            self._drop_chunks(oldest, last=lines[-1]["number"] - most if most else 0)
        pending = {"rows": dict(transaction.rows), "dropped": transaction.dropped}
        content = {"format": FORMAT, "number": self.number + 1, "transaction": pending, "lines": lines}
        body = self._secret(self._name, HEAD, content, number=self.number + 1)
        try:
            self._head = self._api.create(body) if self._head is None else self._api.update(_after(self._head, body))
        except (Conflict, AlreadyExists, NotFound) as error:
            self.load()
            raise Conflict(f"somebody else has written to {self.place}", code=409) from error
        self._take(transaction)
        self.lines.append(mine)
        self._settle()

    def _take(self, transaction: Transaction | None) -> None:
        if transaction is None:
            return
        if transaction.dropped:
            self.rows.drop(transaction.dropped)
        for key, row in transaction.rows.items():
            self.rows.put(key, row)

    @property
    def _transaction(self) -> Transaction | None:
        found = self._content.get("transaction")
        return Transaction(rows=found["rows"], dropped=found["dropped"]) if found else None

    def _settle(self) -> None:
        """Bring the groups up to the last transaction. Idempotent, also where others do the same."""
        transaction = self._transaction
        if transaction is None or self._settled == self.number:
            return
        if transaction.dropped:
            selector = f"{STATE_LABEL}={self._name},{CLUSTER_LABEL}={_label(transaction.dropped)}"
            for name, _ in map(core.identity_of, self._api.list(SECRET, self._namespace, label_selector=selector)):
                self._delete(name)
                self._seen.pop(name, None)
        for group in dict.fromkeys(map(group_of, transaction.rows)):
            self._write_group(group)
        self._settled = self.number

    def _write_group(self, group: str) -> None:
        name = f"{self._name}-{hashlib.sha256(group.encode()).hexdigest()[:40]}"
        body = self._secret(name, GROUP, self.rows.group(group), number=self.number, cluster=group.split("/", maxsplit=1)[0])
        known = self._seen.get(name)
        while known is None or _number(known) < self.number:
            try:
                known = self._api.create(body) if known is None else self._api.update(_after(known, body))
            except (Conflict, AlreadyExists, NotFound):
                known = self._found(name)
        self._seen[name] = known

    def _found(self, name: str) -> Object | None:
        try:
            return self._api.get(SECRET, name, self._namespace)
        except NotFound:
            return None

    @property
    def _last_line(self) -> int:
        lines = self._content.get("lines") or self.lines
        return int(lines[-1]["number"]) if lines else 0

    def _order_lines(self) -> None:
        """Put the lines in order; one that is in the head and in a Secret beside it already counts once."""
        found = {line["number"]: line for lines in (*self._chunks.values(), self._content.get("lines", [])) for line in lines}
        self.lines = [found[number] for number in sorted(found)]

    def _write_chunk(self, lines: list[Line]) -> None:
        name = f"{self._name}-journal-{lines[0]['number']:0{_DIGITS}d}"
        body = self._secret(name, LINES, {"lines": lines}, number=self.number)
        with suppress(AlreadyExists):  # of a writer who was killed, or refused, before the head: the same lines
            self._api.create(body)
        self._chunks[name] = lines

    def _drop_chunks(self, oldest: str, *, last: int) -> None:
        """Remove those of whose lines none is kept."""
        old = [name for name, lines in self._chunks.items() if lines[-1]["number"] <= last or lines[-1]["at"] < oldest]
        for name in old:
            self._delete(name)
            del self._chunks[name]
        if old:
            first = min((lines[0]["number"] for lines in self._chunks.values()), default=0)
            self.lines = [line for line in self.lines if line["number"] >= first]

    def _delete(self, name: str) -> None:
        try:
            self._api.delete(SECRET, name, self._namespace)
        except NotFound:
            return

    def _secret(self, name: str, part: str, content: Mapping[str, Any], *, number: int, cluster: str = "") -> Object:
        labels = {STATE_LABEL: self._name, PART_LABEL: part, **({CLUSTER_LABEL: _label(cluster)} if cluster else {})}
        metadata = {"name": name, "namespace": self._namespace, "labels": labels, "annotations": {NUMBER: str(number)}}
        data = {_CONTENT: base64.b64encode(json.dumps(content).encode()).decode()}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": TYPE, "data": data}


def _label(cluster: str) -> str:
    """Return a cluster's name as a label has room for."""
    return hashlib.sha256(cluster.encode()).hexdigest()[:40]


def _after(seen: Object, body: Object) -> Object:
    """Return the body for an update of what was seen, and of nothing later."""
    version = core.metadata(seen).get("resourceVersion")
    return {**body, "metadata": {**body["metadata"], "resourceVersion": version}}


def _number(secret: Object) -> int:
    return int((core.metadata(secret).get("annotations") or {}).get(NUMBER) or 0)


def _content(secret: Object) -> dict[str, Any]:
    """Read what a Secret of ours holds. Raises HostError for one that somebody has changed."""
    try:
        found = json.loads(base64.b64decode((secret.get("data") or {})[_CONTENT], validate=True))
    except (KeyError, ValueError, TypeError) as error:
        name, namespace = core.identity_of(secret)
        raise HostError(
            f"the Secret {namespace}/{name} does not hold what a hub has written", detail=str(error), remedy="restore it from a backup"
        ) from error
    if not isinstance(found, dict):
        raise HostError("a Secret of the hub's state holds no map", remedy="restore it from a backup")
    return found
