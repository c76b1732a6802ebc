"""The commands of `etcd` with a real cluster of three members: all of them up, one dead, and no majority left."""

from __future__ import annotations

import base64
import io
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_kit import Cluster
from local_kit import eventually

from kubewright.cli.main import main
from kubewright.etcd.client import EtcdClient

NAMES = ("one", "two", "three")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three members that serve."""
    made = Cluster(tmp_path)
    try:
        made.start_together(*NAMES)
        made.write_client(tmp_path / "pki")
        client = made.client(*NAMES)
        _until_served(client, NAMES)
        client.close()
        yield made
    finally:
        made.stop()


def _until_served(client: EtcdClient, names: tuple[str, ...]) -> None:
    def served() -> bool:
        known = {member.name for member in client.members(agreed=False)} >= set(names)
        return known and sum(status.healthy for status in client.statuses()) == len(names)

    eventually(served, "all members to serve")


@pytest.fixture
def run(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of `etcd`; returns its exit code, what it printed, and what it said."""

    def call(*words: str, at: str = "one") -> tuple[int, str, str]:
        code = main(["etcd", *words, f"--endpoints={cluster.url(at)}", f"--cert-dir={cluster.root / 'pki'}"])
        return code, *capfd.readouterr()

    return call


def _status(run: Run, **more: str) -> tuple[int, Any]:
    code, out, _ = run("status", "-o", "json", **more)
    return code, json.loads(out)


def test_the_status_of_members_that_serve_of_a_dead_one_and_without_a_majority(cluster: Cluster, run: Run) -> None:
    code, found = _status(run)
    assert (code, found["healthy"], found["majority"], found["problems"]) == (0, True, True, [])
    assert sorted(one["name"] for one in found["members"]) == sorted(NAMES)
    assert [one["leader"] for one in found["members"]].count(True) == 1
    assert all(one["version"].startswith("3.") and one["dbSize"] >= one["dbSizeInUse"] > 0 for one in found["members"])
    assert len({one["raftTerm"] for one in found["members"]}) == 1
    code, out, err = run("status")
    assert (code, err, out.count("serves"), out.count("leader")) == (0, "", 3, 1)
    assert "3 of 3 voting members serve: etcd has a majority" in out

    cluster.kill("three")
    eventually(lambda: _status(run)[1]["leader"] not in {"", "three"}, "the others to have a leader")
    code, found = _status(run)
    assert (code, found["healthy"], found["majority"]) == (4, False, True)
    [dead] = [one for one in found["members"] if not one["serves"]]
    assert (dead["name"], dead["endpoint"], dead["version"]) == ("three", cluster.url("three"), "")
    code, out, err = run("status")
    assert (code, out.count("no answer")) == (4, 1)
    assert err.startswith("error: etcd is not healthy\n  three: ")
    assert "etcd member remove NAME" in err

    cluster.kill("two")
    eventually(lambda: not _status(run)[1]["leader"], "the one that is left to notice")
    code, out, err = run("status")
    assert (code, out.count("no answer"), out.count("no leader")) == (4, 2, 1)
    assert "1 of 3 voting members serve" not in out
    assert "0 of 3 voting members serve: etcd does not have a majority" in out
    assert "so etcd takes no writes" in err
    code, out, err = run("member", "list", "-o", "json")
    assert (code, sorted(one["name"] for one in json.loads(out))) == (0, sorted(NAMES))
    assert "warning: this is the list of one member" in err

    code, found = _status(run, at="two")  # which does not answer, so that nobody is known
    assert (code, found["majority"], len(found["members"])) == (4, False, 1)
    assert "nobody says who the members are" in run("status", at="two")[1]


def test_members_are_listed(cluster: Cluster, run: Run) -> None:
    code, out, err = run("member", "list")
    assert (code, err, len(out.splitlines())) == (0, "", 4)
    assert all(cluster.peer(name) in out and cluster.url(name) in out for name in NAMES)


def test_members_are_removed_while_the_others_have_a_majority(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = run("member", "remove", "four", "--yes")
    assert (code, out) == (1, "")
    assert "error: etcd has no member 'four'" in err
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    code, out, err = run("member", "remove", "three")
    assert (code, out) == (2, f"[etcd] Remove the member three at {cluster.peer('three')} from etcd? [y/N]: ")
    assert "no member was removed" in err

    cluster.kill("three")
    eventually(lambda: not _named(run, "three")["serves"], "the member to be seen as dead")
    code, out, err = run("member", "remove", "two", "--yes")
    assert (code, out) == (4, "")
    assert f"two at {cluster.peer('two')} is not removed: the other voting members would not have a majority" in err
    assert f"three at {cluster.peer('three')}: " in err

    code, out, err = run("member", "remove", _named(run, "three")["id"], "-o", "json", "--yes")
    assert (code, err) == (0, "")
    assert (json.loads(out)["removed"]["name"], len(json.loads(out)["members"])) == ("three", 2)
    leader = _status(run)[1]["leader"]
    other = "two" if leader == "one" else "one"
    code, out, err = run("member", "remove", leader, "--yes", at=other)
    assert (code, out, err) == (0, f"Removed the member {leader} at {cluster.peer(leader)} from etcd\n", "")
    code, found = _status(run, at=other)
    assert (code, found["leader"], len(found["members"])) == (0, other, 1)
    code, out, err = run("member", "remove", other, "--yes", at=other)
    assert (code, out) == (4, "")
    assert "is the only member of etcd" in err


def _named(run: Run, name: str) -> Any:
    return next(one for one in _status(run)[1]["members"] if one["name"] == name)


def _verify(run_at: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["etcd", "snapshot", "verify", str(run_at), *words])
    return code, *capfd.readouterr()


def test_a_snapshot_is_saved_and_verified_and_a_damaged_one_is_refused(
    cluster: Cluster, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for number in range(200):
        _put(cluster, f"key-{number}", "x" * 5000)
    place = tmp_path / "backups"
    place.mkdir(mode=0o700)
    file = place / "etcd.db"
    code, out, err = run("snapshot", "save", str(file))
    assert (code, err) == (0, "")
    assert out.startswith(f"Saved {file}: ")
    assert sorted(one.name for one in place.iterdir()) == ["etcd.db", "etcd.db.json"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()} == {0o600}
    described = json.loads((place / "etcd.db.json").read_text())
    assert (described["revision"], described["members"]) == (201, [one["name"] for one in _status(run)[1]["members"]])
    assert list(described["certificateAuthorities"]) == ["etcd/ca"]
    code, out, _ = _verify(file, capfd, "-o", "json")
    found = json.loads(out)
    assert (code, found["size"], found["revision"], found["clusterID"]) == (0, file.stat().st_size, 201, described["clusterID"])
    _etcdutl_reads(file, capfd)

    whole = file.read_bytes()
    for at in (100, len(whole) // 2, len(whole) - 5):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        code, out, err = _verify(file, capfd)
        assert (code, out) == (3, "")
        assert f"error: {file} is not a whole snapshot of etcd" in err
    for size in (0, 20_000, len(whole) - 4096, len(whole) - 32, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert _verify(file, capfd)[0] == 3

    code, out, err = run("snapshot", "save", str(file), "-o", "json")  # over a broken one
    assert (code, json.loads(out)["description"]["revision"], err) == (0, 201, "")
    assert _verify(file, capfd)[0] == 0
    assert run("snapshot", "save", str(place))[0] == 1
    assert sorted(one.name for one in place.iterdir()) == ["etcd.db", "etcd.db.json"]


def _put(cluster: Cluster, key: str, value: str) -> None:
    leader = cluster.client("one")
    body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value.encode()).decode()}
    leader._ask(cluster.url("one"), "put a key", "/v3/kv/put", body, dict)
    leader.close()


def _etcdutl_reads(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Compare with etcdutl where somebody has one: it is no part of the binaries."""
    program = shutil.which("etcdutl")
    if program is not None:
        code, out, err = _verify(file, capfd, f"--etcdutl={program}", "-o", "json")
        assert (code, json.loads(out)["keys"], json.loads(out)["revision"], err) == (0, 200, 201, "")


def test_without_a_majority_a_snapshot_is_only_taken_of_the_member_that_is_asked_for(
    cluster: Cluster, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("two", "three"):
        cluster.kill(name)
    eventually(lambda: not _status(run)[1]["leader"], "the one that is left to notice")
    file = tmp_path / "etcd.db"
    code, out, err = run("snapshot", "save", str(file))
    assert (code, out, file.exists()) == (1, "", False)
    assert "etcd has no leader" in err
    assert "--local" in err
    code, out, err = run("snapshot", "save", str(file), "--local")
    assert (code, err) == (0, "")
    assert "of member one" in out
    assert _verify(file, capfd)[0] == 0
    code = main(["etcd", "snapshot", "save", str(file), "--local", f"--endpoints={cluster.url('two')}", f"--cert-dir={tmp_path / 'pki'}"])
    assert code == 1
    assert _verify(file, capfd)[0] == 0  # the old one is still there


def test_a_snapshot_that_is_written_to_stdout_is_the_same(cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["etcd", "snapshot", "save", "-", f"--endpoints={cluster.url('one')}", f"--cert-dir={tmp_path / 'pki'}"]
    done = subprocess.run([sys.executable, "-m", "kubewright", *words], check=False, capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, b"")
    file = tmp_path / "piped.db"
    file.write_bytes(done.stdout)
    code, _, err = _verify(file, capfd)
    assert code == 0
    assert "piped.db.json does not exist" in err
