"""The state of a hub as commands open it: several at the same time before it exists, and one of an earlier version."""

from __future__ import annotations

import json
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from kubewright.base.clock import FakeClock, rfc3339
from kubewright.base.errors import UsageError
from kubewright.base.randomness import SystemRandom
from kubewright.cli.handlers.hub import state, state_key, stores
from kubewright.cli.handlers.hub.stores import StateInFile, StateInSecrets, StateOptions
from kubewright.cli.main import main
from kubewright.cli.parsing.parser import parse
from kubewright.enrollment.state.store import TAKEN_OVER, Event, JoinToken
from kubewright.tokens import strings

OLD = Path(__file__).parents[2] / "data" / "hub_states"
TOKEN_ENDS = "2026-01-03T03:04:05Z"
COUNT = 6
ROUNDS = 5


def test_concurrent_first_commands_create_one_state_with_one_key(tmp_path):
    for number in range(ROUNDS):
        place = tmp_path / str(number)
        parsed = parse(["hub", "token", "list", "--state", f"{place}/state.db", "--key-file", f"{place}/state.key"], program="kubewright")
        together = threading.Barrier(COUNT)

        def write(index: int, parsed=parsed, together=together) -> None:
            together.wait()
            with closing(state.open_store(parsed)) as store:
                event = Event(at=rfc3339(FakeClock().now()), cluster="a", event="test", details={})
                store.save_token(JoinToken(cluster="a", token=strings.generate(SystemRandom())), event)

        with ThreadPoolExecutor(COUNT) as pool:
            list(pool.map(write, range(COUNT)))
        with closing(state.open_store(parsed)) as store:
            assert len(store.tokens("a")) == COUNT
        assert sorted(path.name for path in place.iterdir()) == ["state.db", "state.key"]


@pytest.mark.parametrize(
    ("text", "kind", "problem"),
    [
        ("state.db", StateInFile, ""),
        ("/var/lib/a:b/state.db", StateInFile, ""),
        ("secrets:hubs/one", StateInSecrets, ""),
        ("secrets:hubs", None, "names no Secrets"),
        ("secrets:hubs/One", None, "names no Secrets"),
    ],
)
def test_the_scheme_selects_the_kind_of_state(text, kind, problem):
    options = StateOptions(state=text, state_kubeconfig="/admin.conf", key_file="/state.key")
    if problem:
        with pytest.raises(UsageError, match=problem):
            stores.state_of(options)
    else:
        assert type(stores.state_of(options)) is kind


def test_a_state_in_secrets_needs_a_cluster_and_is_no_file_to_back_up(monkeypatch, capsys):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for words, said in ((["nodes"], "the cluster that has the state"), (["backup", "b"], "the cluster that has the state")):
        assert main(["hub", *words, "--state=secrets:hubs/one"]) == 2
        assert said in capsys.readouterr().err
    assert main(["hub", "backup", "b", "--state=secrets:hubs/one", "--state-kubeconfig=/admin.conf"]) == 2
    assert "the state is in Secrets, and not in a file" in capsys.readouterr().err


class OldHub:
    """A hub whose state and key an earlier version has created."""

    def __init__(self, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.state, self.key = directory / "state.db", directory / "state.key"
        self._capsys = capsys
        directory.chmod(0o700)
        self.put_back()
        self.key.touch(0o600)
        self.key.write_text(f"{bytes(range(32)).hex()}\n")

    def put_back(self) -> None:
        """Replace the current state by the old one."""
        for path in self.state.parent.glob("state.db*"):
            path.unlink()
        with closing(sqlite3.connect(self.state)) as db:
            db.executescript((OLD / "format2.sql").read_text())

    def run(self, *words: str, code: int = 0) -> str:
        assert main(["hub", *words, f"--state={self.state}", f"--key-file={self.key}"]) == code
        said = self._capsys.readouterr()
        return said.out if code == 0 else said.err

    @property
    def note(self) -> str:
        return self.key.read_text().split("\n", maxsplit=1)[1].strip()


@pytest.fixture
def old(tmp_path, capsys):
    return OldHub(tmp_path, capsys)


def test_the_state_of_an_earlier_version_is_migrated_once(old):
    assert [row["node"] for row in json.loads(old.run("nodes", "-o", "json"))] == ["gone", "worker"]
    assert old.note == state_key.SEALED_ONLY
    assert [row["event"] for row in json.loads(old.run("journal", "-o", "json"))][-1] == TAKEN_OVER
    old.put_back()
    before = old.state.read_bytes()
    told = old.run("nodes", code=1)
    assert "has the format of an earlier kubewright" in told
    assert "hub migrate" in told
    assert old.state.read_bytes() == before


def test_a_user_can_migrate_the_state_and_sees_unsealed_settings(old):
    old.run("nodes")
    old.put_back()
    rows = json.loads(old.run("migrate", "-o", "json"))
    assert [(row["name"], row["approval"], row["lifetime"], row["tokens"], row["lastEnd"]) for row in rows] == [
        ("a", "human", "8760h0m0s", 1, TOKEN_ENDS),
        ("b", "automatic", "8760h0m0s", 1, TOKEN_ENDS),
    ]
    assert {row["clientCA"][:7] for row in rows} == {"sha256:"}
    assert old.run("nodes").splitlines()[0].split()[:2] == ["CLUSTER", "NODE"]
    assert json.loads(old.run("migrate", "-o", "json")) == rows


def test_a_killed_migration_continues(old):
    old.key.write_text(f"{old.key.read_text()}{state_key.TAKING_OVER}\n")
    old.run("nodes")
    assert old.note == state_key.SEALED_ONLY


def test_a_credential_alone_migrates_nothing(old, monkeypatch):
    credentials = old.key.parent / "credentials"
    credentials.mkdir()
    credential = old.key.rename(credentials / "hub.key")
    before = credential.read_text()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(credentials))
    assert "hub migrate" in old.run("nodes", code=1)
    old.run("migrate")
    assert len(json.loads(old.run("nodes", "-o", "json"))) == 2
    assert credential.read_text() == before


def test_the_key_of_a_new_state_migrates_nothing(tmp_path, capsys):
    place = tmp_path / "hub"
    assert main(["hub", "nodes", f"--state={place}/state.db", f"--key-file={place}/state.key"]) == 0
    first, second = (place / "state.key").read_text().splitlines()
    assert (len(bytes.fromhex(first)), second, (place / "state.key").stat().st_mode & 0o777) == (32, state_key.SEALED_ONLY, 0o600)
