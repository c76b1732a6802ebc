"""The commands of `etcd` with a real cluster of three members: all of them up, one dead, and no majority left."""

from __future__ import annotations

import base64
import io
import json
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from etcd_kit import Cluster
from local_kit import eventually, program

from kubewright.base.clock import SystemClock
from kubewright.base.errors import APIError
from kubewright.base.wait import retry
from kubewright.cli.main import main
from kubewright.etcd.client import EtcdClient

NAMES = ("one", "two", "three")
Run = Callable[..., tuple[str, str]]


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
        try:
            known = {member.name for member in client.members(agreed=False)} >= set(names)
        except APIError:
            return False
        return known and sum(status.serves for status in client.statuses()) == len(names)

    eventually(served, "all members to serve")


@pytest.fixture
def run(cluster: Cluster, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of `etcd` until it ends with a code and prints what is expected: on a busy machine members change their leader at any time.

    Returns what it printed and what it said.
    """

    def call(*words: str, code: int = 0, at: str = "one", when: Callable[[str], bool] = bool) -> tuple[str, str]:
        said: list[tuple[str, str]] = []

        def ended() -> bool:
            found = main(["etcd", *words, f"--endpoints={cluster.url(at)}", f"--cert-dir={cluster.root / 'pki'}"])
            said[:] = [capfd.readouterr()]
            return found == code and when(said[0][0] + said[0][1])

        eventually(ended, f"`etcd {' '.join(words)}` to end with {code}")
        return said[0]

    return call


def _status(run: Run, *, code: int = 0, at: str = "one", when: Callable[[Any], bool] = bool) -> Any:
    """Return the status once it is as expected."""
    return json.loads(run("status", "-o", "json", code=code, at=at, when=lambda text: when(_document(text)))[0])


def _document(text: str) -> Any:
    return json.JSONDecoder().raw_decode(text)[0]


def _names(found: Any, key: str) -> list[str]:
    return sorted(one["name"] for one in found["members"] if one[key])


def test_the_status_of_members_that_serve_of_a_dead_one_and_without_a_majority(cluster: Cluster, run: Run) -> None:
    found = _status(run, when=lambda found: len({one["raftTerm"] for one in found["members"]}) == 1)
    assert (found["healthy"], found["majority"], found["problems"]) == (True, True, [])
    assert (_names(found, "serves"), len(_names(found, "leader"))) == (sorted(NAMES), 1)
    assert [one["version"].startswith("3.") and one["dbSize"] >= one["dbSizeInUse"] > 0 for one in found["members"]] == [True] * 3
    out, err = run("status", when=lambda text: text.count("leader") == 1)
    assert (err, out.count("serves")) == ("", 3)
    assert "3 of 3 voting members serve: etcd has a majority" in out

    cluster.kill("three")
    found = _status(run, code=4, when=lambda found: found["leader"] in {"one", "two"} and len(_names(found, "serves")) == 2)
    assert (found["healthy"], found["majority"]) == (False, True)
    [dead] = [one for one in found["members"] if not one["serves"]]
    assert (dead["name"], dead["endpoint"], dead["version"]) == ("three", cluster.url("three"), "")
    out, err = run("status", code=4, when=lambda text: text.count("no answer") == 1 and "no leader" not in text)
    assert err.startswith("error: etcd is not healthy\n  three: ")
    assert "etcd member remove NAME" in err

    cluster.kill("two")
    out, err = run("status", code=4, when=lambda text: text.count("no answer") == 2 and "no leader" in text)
    assert "0 of 3 voting members serve: etcd does not have a majority" in out
    assert "so etcd takes no writes" in err
    out, err = run("member", "list", "-o", "json")
    assert sorted(one["name"] for one in json.loads(out)) == sorted(NAMES)
    assert "warning: this is the list of one member" in err
    out, err = run("member", "remove", "three", "--yes", code=4, when=lambda text: "because etcd has no majority" in text)
    assert (out, f"three at {cluster.peer('three')}: " in err) == ("", True)
    run("member", "remove", "four", "--yes", code=1, when=lambda text: "no member 'four'" in text)
    found = _status(run, code=4, at="two")  # which does not answer, so that nobody is known
    assert (found["majority"], len(found["members"])) == (False, 1)
    assert "no endpoint returns the members" in run("status", code=4, at="two")[0]


def test_members_are_listed(cluster: Cluster, run: Run) -> None:
    out, err = run("member", "list", when=lambda text: "warning" not in text)
    assert (err, len(out.splitlines())) == ("", 4)
    assert [cluster.peer(name) in out and cluster.url(name) in out for name in NAMES] == [True] * 3


def test_members_are_removed_while_the_others_have_a_majority(cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = run("member", "remove", "four", "--yes", code=1, when=lambda text: "no member 'four'" in text)
    assert out == ""
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    out, err = run("member", "remove", "three", code=2)
    assert out == f"[etcd] Remove the member three at {cluster.peer('three')} from etcd? [y/N]: "
    assert "no member was removed" in err

    cluster.kill("three")
    refused = f"two at {cluster.peer('two')} is not removed: the other voting members would not have a majority"
    out, err = run("member", "remove", "two", "--yes", code=4, when=lambda text: refused in text)
    assert (out, f"three at {cluster.peer('three')}: " in err) == ("", True)

    [three] = [one for one in _status(run, code=4)["members"] if one["name"] == "three"]
    out, err = run("member", "remove", three["id"], "-o", "json", "--yes")
    assert (json.loads(out)["removed"]["name"], len(json.loads(out)["members"])) == ("three", 2)
    leader = _status(run, when=lambda found: bool(found["leader"]))["leader"]
    other = "two" if leader == "one" else "one"
    out, err = run("member", "remove", leader, "--yes", at=other)
    assert out == f"Removed the member {leader} at {cluster.peer(leader)} from etcd\n"
    found = _status(run, at=other)
    assert (found["leader"], len(found["members"])) == (other, 1)
    out, err = run("member", "remove", other, "--yes", at=other, code=4)
    assert (out, "is the only member of etcd" in err) == ("", True)


def test_an_alarm_is_reported_with_its_remedy_and_its_member_still_counts(cluster: Cluster, run: Run) -> None:
    leader = _status(run, when=lambda found: bool(found["leader"]))["leader"]
    full = next(name for name in NAMES if name not in {leader, "one"})
    [member] = [one for one in _status(run)["members"] if one["name"] == full]
    cluster.alarm("one", action="ACTIVATE", member=int(member["id"], 16), kind="NOSPACE")
    out, err = run("status", code=4, when=lambda text: text.count("serves") == 3)
    assert "3 of 3 voting members serve: etcd has a majority" in out
    assert err.startswith(f"error: etcd is not healthy\n  {full}: alarm NOSPACE\nhint: compact and defragment etcd, then disarm the alarm")
    out, err = run("member", "remove", full, "--yes")
    assert out == f"Removed the member {full} at {cluster.peer(full)} from etcd\n"
    found = _status(run, code=4, when=lambda found: bool(found["leader"]))
    assert (found["majority"], found["problems"]) == (True, [f"{int(member['id'], 16):x}: alarm NOSPACE"])  # it stays until it is disarmed
    cluster.alarm("one", action="DEACTIVATE", member=int(member["id"], 16), kind="NOSPACE")
    assert _status(run)["healthy"]


def _verify(file: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["etcd", "snapshot", "verify", str(file), *words])
    return code, *capfd.readouterr()


def test_a_snapshot_is_saved_and_verified_and_a_damaged_one_is_refused(
    cluster: Cluster, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _fill(cluster)
    _status(run, when=lambda found: len({one["revision"] for one in found["members"]}) == 1)  # a member may be behind the one that answered
    place = tmp_path / "backups"
    place.mkdir(mode=0o700)
    file = place / "etcd.db"
    out, _ = run("snapshot", "save", str(file))
    assert out.startswith(f"Saved {file}: ")
    assert sorted(one.name for one in place.iterdir()) == ["etcd.db", "etcd.db.json"]
    assert {stat.S_IMODE(one.stat().st_mode) for one in place.iterdir()} == {0o600}
    described, status = json.loads((place / "etcd.db.json").read_text()), _status(run)
    assert (described["revision"], described["members"]) == (status["members"][0]["revision"], [one["name"] for one in status["members"]])
    assert (list(described["certificateAuthorities"]), described["nodes"]) == (["etcd/ca"], ["five", "four"])
    code, out, _ = _verify(file, capfd, "-o", "json")
    found = json.loads(out)
    assert (code, found["size"], found["sha256"]) == (0, file.stat().st_size, described["sha256"])
    assert (found["revision"], found["clusterID"]) == (described["revision"], described["clusterID"])
    _etcdutl_reads(file, described["revision"], capfd)

    whole = file.read_bytes()
    for at in (100, len(whole) // 2, len(whole) - 5):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        code, out, err = _verify(file, capfd)
        assert (code, out) == (3, "")
        assert f"error: {file} is not a complete snapshot of etcd" in err
    for size in (0, 20_000, len(whole) - 4096, len(whole) - 32, len(whole) - 1):
        file.write_bytes(whole[:size])
        assert _verify(file, capfd)[0] == 3

    out, _ = run("snapshot", "save", str(file), "-o", "json")  # over a broken one
    assert json.loads(out)["description"]["revision"] == described["revision"]
    assert _verify(file, capfd)[0] == 0
    assert "is not a regular file" in run("snapshot", "save", str(place), code=1, when=lambda text: "leader" not in text)[1]
    assert sorted(one.name for one in place.iterdir()) == ["etcd.db", "etcd.db.json"]


def _fill(cluster: Cluster) -> None:
    """Put 203 keys, two of which are those of Nodes."""
    body = [{"requestPut": {"key": _coded(f"key-{number}"), "value": _coded("x" * 5000)}} for number in range(100)]
    client = cluster.client(*NAMES, timeout=60)
    more = [{"requestPut": {**one["requestPut"], "key": _coded(f"more-{at}")}} for at, one in enumerate(body)]
    nodes = [{"requestPut": {"key": _coded(f"/registry/minions{name}"), "value": ""}} for name in ("/four", "/five", "z/six")]
    for half in (body, more, nodes):
        retry(
            lambda half=half: client._any("put keys", "/v3/kv/txn", {"success": half}, dict), clock=SystemClock(), on=APIError, within=600
        )
    client.close()


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _etcdutl_reads(file: Path, revision: int, capfd: pytest.CaptureFixture[str]) -> None:
    """etcdutl accepts the file too, and counts its keys."""
    code, out, err = _verify(file, capfd, f"--etcdutl={program('etcdutl')}", "-o", "json")
    assert (code, json.loads(out)["keys"], json.loads(out)["revision"], err) == (0, 203, revision, "")


def test_without_a_majority_a_snapshot_is_only_taken_of_the_member_that_is_asked_for(
    cluster: Cluster, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("two", "three"):
        cluster.kill(name)
    file = tmp_path / "etcd.db"
    out, err = run("snapshot", "save", str(file), code=1, when=lambda text: "etcd has no leader" in text)
    assert (out, "--local" in err) == ("", True)
    assert "of member one" in run("snapshot", "save", str(file), "--local")[0]
    assert _verify(file, capfd)[0] == 0
    run("snapshot", "save", str(file), "--local", at="two", code=1)
    assert _verify(file, capfd)[0] == 0  # the old one is still there


def test_a_snapshot_that_is_written_to_stdout_is_the_same(
    cluster: Cluster, run: Run, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    _status(run, when=lambda found: bool(found["leader"]))
    words = ["etcd", "snapshot", "save", "-", "--local", f"--endpoints={cluster.url('one')}", f"--cert-dir={tmp_path / 'pki'}"]
    file = tmp_path / "piped.db"

    def saved() -> bool:
        done = subprocess.run([sys.executable, "-m", "kubewright", *words], check=False, capture_output=True, timeout=600)
        file.write_bytes(done.stdout)
        return done.returncode == 0

    eventually(saved, "a snapshot on stdout")
    code, _, err = _verify(file, capfd)
    assert (code, "piped.db.json does not exist" in err) == (0, True)
