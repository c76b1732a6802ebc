"""The state of a hub: stored data is read back, all or nothing, and keys are sealed."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing

import pytest
from hub_kit import CLIENT_CA, JOIN_KEY, STATE_KEY, cluster, event, generation, keep, sqlite

from kubewright.apis import join_records
from kubewright.apis.join_records import IssuedCertificate, JoinRecord, State
from kubewright.base.errors import DocumentError, HostError, TrustError
from kubewright.base.randomness import SeededRandom
from kubewright.base.records import replace
from kubewright.enrollment.state import sqlite_backup
from kubewright.enrollment.state.store import JoinToken
from kubewright.tokens.strings import BootstrapTokenString

TOKEN = JoinToken(cluster="a", token=BootstrapTokenString("abcdef", "0123456789abcdef"), expires="2026-01-03T03:04:05Z", description="x")
RECORD = JoinRecord(
    cluster="a",
    node="worker",
    state=State.ISSUED,
    protocol="oneinfra/v1alpha1",
    request="u1",
    key="f",
    names=("10.0.0.5",),
    certificates=(IssuedCertificate(purpose="client", serial="1f", fingerprint="ab", not_after="2027-01-02T03:04:05Z"),),
    issued="2026-01-02T03:04:05Z",
)


@pytest.fixture
def store(tmp_path):
    made = sqlite(tmp_path)
    yield made
    made.close()


def test_the_file_contains_no_plain_key_and_is_private(store, tmp_path):
    store.save_cluster(cluster(), event())
    store.save_token(TOKEN, event(), generation=generation(store))
    files = sorted(tmp_path.iterdir())
    assert len(files) >= 2
    content = b"".join(path.read_bytes() for path in files)
    assert CLIENT_CA[0].splitlines()[1].encode() in content
    for secret in (JOIN_KEY.splitlines()[1], CLIENT_CA[1].splitlines()[1], TOKEN.token.secret):
        assert secret.encode() not in content
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def test_another_key_does_not_open_it_and_moved_values_are_rejected(store, tmp_path):
    store.save_cluster(cluster(), event())
    store.save_cluster(cluster("b"), event(cluster="b"))
    other = sqlite(tmp_path, key=b"x" * 32)
    with pytest.raises(TrustError, match=r"cluster a in .* cannot be decrypted"):
        other.clusters()
    other.close()
    with sqlite3.connect(tmp_path / "state.db") as db:
        db.execute("UPDATE clusters SET secrets = (SELECT secrets FROM clusters WHERE name = 'b') WHERE name = 'a'")
    db.close()
    with pytest.raises(TrustError, match="cluster a"):
        store.clusters()


def test_a_leaving_node_releases_its_vpn_address(store):
    first = replace(RECORD, lease="10.64.0.2", tunnel_key="K")
    store.keep(first, event())
    assert store.owners("a", ["10.64.0.2", "wireguard:K"]) == {"10.64.0.2": "worker", "wireguard:K": "worker"}
    keep(store, replace(first, state=State.LEFT))
    store.keep(replace(first, node="other", names=()), event())
    assert store.owners("a", ["10.64.0.2", "wireguard:K"]) == {"10.64.0.2": "other", "wireguard:K": "other"}


def test_a_backup_can_be_restored_into_a_state_in_use(store, tmp_path):
    copy = tmp_path / "copy.db"
    store.save_cluster(cluster(), event())
    store.save_token(TOKEN, event(), generation=generation(store))
    keep(store, RECORD, event("issued"), digest="d")
    sqlite_backup.backup(store, copy)
    assert (stat.S_IMODE(copy.stat().st_mode), sorted(path.name for path in tmp_path.glob("copy*"))) == (0o600, ["copy.db"])
    assert JOIN_KEY.splitlines()[1].encode() not in copy.read_bytes()
    with pytest.raises(HostError, match="already exists"):
        sqlite_backup.backup(store, copy)
    store.forget(RECORD, event())
    store.save_cluster(cluster("b"), event(cluster="b"))
    daemon = sqlite(tmp_path)
    before = daemon.version()
    sqlite_backup.restore(store, copy, key=STATE_KEY, random=SeededRandom(1), event=event("restored"))
    assert daemon.version() != before
    assert ([one.name for one in daemon.clusters()], daemon.record("a", "worker"), len(daemon.tokens())) == (["a"], RECORD, 1)
    assert [one.event for one in daemon.journal()][-2:] == ["issued", "restored"]
    daemon.close()


def test_an_invalid_backup_is_not_restored(store, tmp_path):
    store.save_cluster(cluster(), event())
    other = sqlite(make(tmp_path / "other"), key=b"y" * 32)
    other.save_cluster(cluster("b"), event())
    sqlite_backup.backup(other, tmp_path / "foreign.db")
    other.close()
    (tmp_path / "garbage.db").write_bytes(b"x" * 5000)
    for name, error in (("foreign.db", TrustError), ("garbage.db", HostError), ("none.db", HostError)):
        with pytest.raises(error):
            sqlite_backup.restore(store, tmp_path / name, key=STATE_KEY, random=SeededRandom(1), event=event())
    assert [one.name for one in store.clusters()] == ["a"]
    assert not (tmp_path / "none.db").exists()


def make(directory):
    directory.mkdir()
    return directory


def test_unusable_states_are_reported(tmp_path):
    (tmp_path / "state.db").write_text("this is no database, and it is longer than a header of one: " * 20)
    with pytest.raises(HostError, match="cannot be used"):
        sqlite(tmp_path)
    (tmp_path / "later").mkdir()
    made = sqlite(tmp_path / "later")
    made.close()
    with sqlite3.connect(tmp_path / "later" / "state.db") as db:
        db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(HostError, match="has format 99"):
        sqlite(tmp_path / "later")


def test_invalid_records_are_refused():
    assert join_records.read(RECORD.document()) == RECORD
    earlier = {name: value for name, value in RECORD.document().items() if name != "tunnelKey"}
    assert join_records.read(earlier) == RECORD
    for broken in (
        {},
        {**RECORD.document(), "state": "Lost"},
        {**RECORD.document(), "certificates": [{}]},
        {**RECORD.document(), "kind": "Pod"},
    ):
        with pytest.raises(DocumentError):
            join_records.read(broken)


@pytest.mark.parametrize("kind", ["empty", "another program's", "later"])
def test_an_invalid_backup_is_not_restored_and_not_changed(store, tmp_path, kind):
    store.save_cluster(cluster(), event())
    source = tmp_path / "source"
    source.touch()
    if kind != "empty":
        with closing(sqlite3.connect(source)) as db:
            db.execute("CREATE TABLE clusters (name TEXT)")
            db.execute(f"PRAGMA user_version = {99 if kind == 'later' else 0}")
    content = source.read_bytes()
    with pytest.raises(HostError, match=r"has format 99|is not a copy of a hub's state"):
        sqlite_backup.restore(store, source, key=STATE_KEY, random=SeededRandom(9), event=event())
    assert source.read_bytes() == content
    assert [one.name for one in store.clusters()] == ["a"]


def test_a_backup_that_cannot_be_written_leaves_nothing(store, tmp_path):
    target = tmp_path / "copy"
    sqlite_backup.backup(store, target)
    with pytest.raises(HostError, match="already exists"):
        sqlite_backup.backup(store, target)
    store.close()
    with pytest.raises(HostError):
        sqlite_backup.backup(store, tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir() if "copy" in path.name or "other" in path.name) == ["copy"]
