"""The seals of a hub's state: decisions about nodes cannot be changed without the key, and a state of an earlier format is migrated once."""

from __future__ import annotations

import base64
import copy
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hub_kit import STATE_KEY, cluster, decide, event, generation, keep
from hypothesis import assume, given
from hypothesis import strategies as st
from test_hub_store import RECORD, TOKEN
from test_hub_stores import Killed, SecretsPlace, SQLitePlace

from kubewright.apis.join_records import State
from kubewright.base.errors import KubewrightError, TrustError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.state import sqlite_backup
from kubewright.enrollment.state.seal import OldState, StateSeal
from kubewright.enrollment.state.secret_store import SecretStore
from kubewright.enrollment.state.sqlite_store import SQLiteStore
from kubewright.enrollment.state.store import TAKEN_OVER, Event, HubStore
from kubewright.kube.resources import SECRET

OLD = Path(__file__).parents[2] / "data" / "hub_states"
TABLES = ("clusters", "tokens", "records", "requests", "verdicts")
DECIDING = {"approval", "lifetime", "client_ca", "serving_ca", "kubelet_client_ca", "names", "ranges", "expires", "key", "state", "lease"}

SEAL = StateSeal(STATE_KEY, random=SeededRandom(3), place="it")
words = st.text(max_size=5)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(values, values, words, words, words)
def test_a_seal_is_valid_only_for_its_row_and_value(value, other, row, another, secret):
    sealed = SEAL.seal(row, value, secret=secret)
    assert SEAL.opened(row, json.loads(json.dumps(value)), sealed) == secret
    assume(row != another)
    with pytest.raises(TrustError):
        SEAL.opened(another, value, sealed)
    with pytest.raises(TrustError):
        SEAL.opened_old(row, sealed)
    if json.dumps(value, sort_keys=True) != json.dumps(other, sort_keys=True):
        with pytest.raises(TrustError):
            SEAL.opened(row, other, sealed)


@given(values, words, st.integers(0, 10**6), st.integers(1, 255))
def test_no_byte_of_a_seal_can_be_changed(value, secret, where, change):
    sealed = bytearray(SEAL.seal("record/a/worker", value, secret=secret))
    sealed[where % len(sealed)] ^= change
    with pytest.raises(TrustError, match=r"record a worker in it cannot be decrypted"):
        SEAL.opened("record/a/worker", value, bytes(sealed))


def fill(store: HubStore) -> None:
    """Put two clusters into a state, and one row of each kind for either."""
    for name in ("a", "b"):
        store.save_cluster(cluster(name, approval="human"), event(cluster=name))
        store.save_token(replace(TOKEN, cluster=name), event(cluster=name), generation=generation(store, name))
        keep(store, replace(RECORD, cluster=name, lease="10.64.0.2"), digest=f"digest-{name}")
        decide(store, name, f"uid-{name}", approved=False)


def read_everything(store: HubStore) -> None:
    if isinstance(store, SQLiteStore):
        store.read_everything()
    assert isinstance(store, SQLiteStore | SecretStore)
    for key, _ in store._rows.rows.items() if isinstance(store, SecretStore) else ():
        store._opened(key)


class Tampering:
    """A state as an attacker with write access, but without a key, sees it. `write` stores everything that `read` returned, with changes."""

    def __init__(self, place: SQLitePlace | SecretsPlace) -> None:
        self.place = place

    def read(self) -> dict[str, Any]:
        if isinstance(self.place, SecretsPlace):
            return {name: _content(one) for name, one in self.place.api.secrets().items()}
        with closing(sqlite3.connect(self.place.path)) as db:
            db.row_factory = sqlite3.Row
            rows = {table: [dict(row) for row in db.execute(f"SELECT * FROM {table}")] for table in TABLES}
            return {table: {str(number): _flat(row) for number, row in enumerate(found)} for table, found in rows.items()}

    def write(self, found: dict[str, Any]) -> None:
        if isinstance(self.place, SecretsPlace):
            for name, one in self.place.api.secrets().items():
                data = {"content": base64.b64encode(json.dumps(found[name]).encode()).decode()}
                self.place.api.update({**one, "data": data, "metadata": {**one["metadata"], "resourceVersion": None}})
            return
        with closing(sqlite3.connect(self.place.path)) as db, db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")
                for row in map(_columns, found[table].values()):
                    db.execute(f"INSERT INTO {table} ({','.join(row)}) VALUES ({','.join('?' * len(row))})", list(row.values()))

    def kinds(self, found: dict[str, Any]) -> dict[tuple[str, str], tuple[str, str]]:
        """Return where the row of each kind and each cluster is."""
        rows = [(place, key, row) for place, rows in rows_of(found).items() for key, row in rows.items()]
        if isinstance(self.place, SecretsPlace):
            return {tuple(key.split("/")[:2]): (place, key) for place, key, _ in rows}
        return {(place, row.get("cluster") or row["name"]): (place, key) for place, key, row in rows}

    def is_noticed(self) -> bool:
        try:
            with closing(self.place.open()) as store:
                read_everything(store)
        except TrustError:
            return True
        return False


def _content(secret: dict[str, Any]) -> dict[str, Any]:
    return json.loads(base64.b64decode(secret["data"]["content"]))


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Decode the JSON in a row, so that each of its fields can be changed."""
    found = {name: f"blob:{value.hex()}" if isinstance(value, bytes) else value for name, value in row.items()}
    return {**found, **({"document": json.loads(found["document"])} if "document" in found else {})}


def _columns(row: dict[str, Any]) -> dict[str, Any]:
    found = {name: json.dumps(value, sort_keys=True) if name == "document" else value for name, value in row.items()}
    return {
        name: bytes.fromhex(value.removeprefix("blob:")) if isinstance(value, str) and value.startswith("blob:") else value
        for name, value in found.items()
    }


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of everything that can be changed in a value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = False
    for key, one in inner:
        found = True
        yield from leaves(one, (*path, key))
    if not found:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return "blob:" + bytes(byte ^ 1 for byte in bytes.fromhex(value[5:])).hex() if value.startswith("blob:") else f"{value}x"
    return [*value, "x"] if isinstance(value, list) else {"x": 1} if value is None or isinstance(value, dict) else value + 1


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


@pytest.fixture(params=[SQLitePlace, SecretsPlace], ids=["sqlite", "secrets"])
def tampering(request, tmp_path):
    place = request.param(tmp_path)
    with closing(place.open()) as store:
        fill(store)
        store.add_event(event())  # so that nothing of it is in the head any more
    return Tampering(place)


def rows_of(found: dict[str, Any]) -> dict[str, Any]:
    """Return the keys that contain rows: the head has the journal, and the last transaction."""
    return {name: one for name, one in found.items() if name != "one"}


def test_any_change_of_a_row_is_detected(tampering):
    before = tampering.read()
    paths = list(leaves(rows_of(before)))
    assert not tampering.is_noticed()
    unnoticed, names = [], set()
    for path in paths:
        after = copy.deepcopy(before)
        at(after, path[:-1])[path[-1]] = changed(at(before, path))
        with suppress(sqlite3.IntegrityError):
            tampering.write(after)
            names |= {key for key in path if isinstance(key, str)}
            unnoticed += [] if tampering.is_noticed() else [path]
    tampering.write(before)
    assert unnoticed == []
    assert not tampering.is_noticed()
    assert len(paths) >= 90
    assert names >= DECIDING


def test_a_row_of_one_cluster_is_invalid_for_another_even_if_renamed(tampering):
    before = tampering.read()
    kinds = tampering.kinds(before)
    for (kind, owner), (place, key) in kinds.items():
        other = "b" if owner == "a" else "a"
        target, replaced = kinds[kind, other]
        after = copy.deepcopy(before)
        del after[target][replaced]
        row = json.dumps(before[place][key]).replace(f'"{owner}"', f'"{other}"')
        after[target][key.replace(f"/{owner}", f"/{other}", 1)] = json.loads(row)
        tampering.write(after)
        assert tampering.is_noticed(), key
    tampering.write(before)
    assert len(kinds) == 10
    assert not tampering.is_noticed()


class OldFile(SQLitePlace):
    """A state in a file as an earlier version has left it."""

    format = 2

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.make()

    def make(self) -> None:
        for path in self.path.parent.glob("state.db*"):
            path.unlink()
        with closing(sqlite3.connect(self.path)) as db:
            db.executescript((OLD / "format2.sql").read_text())
            if self.format == 1:
                db.executescript("DROP INDEX requests_until; ALTER TABLE requests DROP COLUMN until; PRAGMA user_version = 1;")

    def take_over(self, event: Event | None) -> HubStore:
        return SQLiteStore(self.path, key=STATE_KEY, random=SeededRandom(8), taking_over=event)


class OldestFile(OldFile):
    """One of the version before that."""

    format = 1


class OldSecrets(SecretsPlace):
    """A state in Secrets as an earlier version has left it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.make()

    def make(self) -> None:
        for name in self.api.secrets():
            self.api.delete(SECRET, name, "hubs")
        for one in json.loads((OLD / "secrets1.json").read_text())["items"]:
            self.api.create(one)

    def take_over(self, event: Event | None) -> HubStore:
        return SecretStore(self.api, namespace="hubs", name="one", key=STATE_KEY, random=SeededRandom(8), taking_over=event)


def require_taken_over(store: HubStore) -> None:
    a, b = store.clusters()
    assert [(one.name, one.approval, one.join_key, one.vpn_key) for one in (a, b)] == [
        ("a", "human", "JOIN KEY", ""),
        ("b", "automatic", "JOIN KEY", ""),
    ]
    assert store.tokens() == [TOKEN, replace(TOKEN, cluster="b")]
    assert [(one.node, one.state) for one in store.records()] == [("gone", State.LEFT), ("worker", State.ISSUED)]
    assert store.record("a", "worker") == RECORD
    assert store.owners("a", ["10.0.0.5", "worker", "gone"]) == {"10.0.0.5": "worker", "worker": "worker"}
    assert (store.first_request("a", "d1"), store.verdict("a", "u9"), store.verdict("a", "u8")) == ("u1", True, False)
    assert [line.event for line in store.journal()][:8] == [*["test"] * 5, "issued", "test", "test"]
    assert {line.event for line in store.journal()[8:]} == {TAKEN_OVER}


@pytest.fixture(params=[OldFile, OldestFile, OldSecrets])
def old(request, tmp_path):
    return request.param(tmp_path)


def test_a_state_of_an_earlier_format_is_migrated_on_request_and_only_once(old):
    with pytest.raises(OldState, match="can be changed without the key") as told:
        old.open()
    assert "kubewright hub migrate" in told.value.remedy
    with closing(old.take_over(event(TAKEN_OVER))) as store:
        require_taken_over(store)
        keep(store, replace(RECORD, node="new", request="u5", names=()), digest="d5")
    with closing(old.open()) as again:
        assert [one.node for one in again.records()] == ["gone", "new", "worker"]
    old.make()  # the old state is restored
    with pytest.raises(OldState):
        old.open()


def test_a_row_of_an_earlier_format_is_invalid_in_a_migrated_state(tmp_path):
    file, secrets = OldFile(tmp_path), OldSecrets(tmp_path)
    with closing(sqlite3.connect(file.path)) as db:
        [[row]] = db.execute("SELECT secrets FROM clusters WHERE name = 'a'").fetchall()
    before = secrets.api.secrets()
    for place in (file, secrets):
        place.take_over(event(TAKEN_OVER)).close()
    with closing(sqlite3.connect(file.path)) as db, db:
        db.execute("UPDATE clusters SET secrets = ?, document = replace(document, 'human', 'automatic') WHERE name = 'a'", (row,))
    with closing(file.open()) as store, pytest.raises(TrustError, match="cluster a"):
        store.clusters()
    noticed = 0
    for name, one in before.items():
        if name != "one":
            now = secrets.api.get(SECRET, name, "hubs")
            secrets.api.update({**now, "data": one["data"]})
            with pytest.raises(TrustError, match="has no seal, or was altered"), closing(secrets.open()) as store:
                read_everything(store)
            noticed += 1
            secrets.api.update({**now, "metadata": {**now["metadata"], "resourceVersion": None}})
    assert noticed == len(before) - 1 == 4


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_migration_killed_anywhere_can_be_completed(tmp_path, moment, monkeypatch):
    monkeypatch.setattr("kubewright.enrollment.state.secret_store._AT_A_TIME", 2)
    for number in range(40):
        place, count = OldSecrets(tmp_path), 0

        def die(_: object, number: int = number) -> None:
            nonlocal count
            count += 1
            if count == number + 1:
                raise Killed

        setattr(place.api, moment, die)
        with suppress(Killed):
            place.take_over(event(TAKEN_OVER)).close()
        place.api.before = place.api.after = lambda _: None
        with closing(place.take_over(event(TAKEN_OVER))) as store:
            require_taken_over(store)
        with closing(place.open()) as store:
            read_everything(store)
        if count <= number:
            break
    assert number >= 8


@pytest.mark.parametrize("kind", [OldFile, OldestFile])
def test_a_backup_of_an_earlier_format_is_restored_and_not_changed_itself(tmp_path, kind):
    old = kind(tmp_path)
    copied = tmp_path / "copy.db"
    old.path.rename(copied)
    content = copied.read_bytes()
    with closing(SQLitePlace(tmp_path).open()) as store:
        sqlite_backup.restore(store, copied, key=STATE_KEY, random=SeededRandom(1), event=event("restored"))
        assert [line.event for line in store.journal()][-2:] == [TAKEN_OVER, "restored"]
        assert [one.approval for one in store.clusters()] == ["human", "automatic"]
        assert store.first_request("a", "d1") == "u1"
    assert copied.read_bytes() == content
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".restoring")] == []


def test_a_backup_with_an_altered_row_is_not_restored(tmp_path):
    (tmp_path / "other").mkdir()
    other = SQLitePlace(tmp_path / "other")
    with closing(other.open()) as store:
        fill(store)
    with closing(sqlite3.connect(other.path)) as db, db:
        db.execute("UPDATE verdicts SET approved = 1 WHERE cluster = 'a'")
    with closing(SQLitePlace(tmp_path).open()) as store:
        store.save_cluster(cluster(), event())
        with pytest.raises(KubewrightError, match="verdict a uid-a in"):
            sqlite_backup.restore(store, other.path, key=STATE_KEY, random=SeededRandom(1), event=event("restored"))
        assert [one.name for one in store.clusters()] == ["a"]
