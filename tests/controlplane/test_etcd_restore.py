"""`etcd restore`, `etcd member replace` and `backup` on control planes whose etcd and API server are real processes."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import etcd_killed
import pytest
from local_kit import Bench, bench, eventually, program

from kubewright.base.clock import SystemClock
from kubewright.base.errors import AlreadyExists, NotFound
from kubewright.cli.handlers import machine
from kubewright.cli.main import main
from kubewright.kube import lease_rules
from kubewright.kube.client import KubeClient
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import LEASE, named
from kubewright.lifecycle.steps.operation_lease import TERMS
from kubewright.local import record
from kubewright.local.cluster.daemon_client import Daemon
from kubewright.local.cluster.machine import machine_host

FIRST, SECOND, THIRD = NAMES = ("one-control-plane", "one-control-plane-2", "one-control-plane-3")
BUMP = 1_000_000_000
"""By how much the revisions of restored data are higher than in the snapshot, after which there are fewer writes than half of that."""
NEVER = "1000000"
"""More changes than any command makes."""
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def home() -> Iterator[Bench]:
    yield from bench()


@pytest.fixture
def run(home: Bench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command of `etcd`, or of another group, on a machine of the cluster. Returns its exit code, and what it printed."""

    def call(*words: str, at: str = FIRST, group: str = "etcd") -> tuple[int, str, str]:
        paths = home.paths()
        host = machine_host(paths, at, programs={}, daemon=Daemon(paths), further=at != FIRST, durable=False)
        monkeypatch.setattr(machine, "host", lambda *_, **__: host)
        capfd.readouterr()
        code = main([group, *words])
        return code, *capfd.readouterr()

    program("etcdutl")
    return call


def _client(home: Bench, at: str = FIRST) -> KubeClient:
    from kubewright.host.filesystem.files import Files

    return KubeClient(load_access(home.paths().layout(at).kubeconfig("admin"), read=Files().read), timeout=600)


def _names(home: Bench, at: str = FIRST) -> list[str]:
    client = _client(home, at)
    try:
        return [
            one["metadata"]["name"] for one in client.list(named("ConfigMap"), "default") if one["metadata"]["name"].startswith("test-")
        ]
    finally:
        client.close()


def _put(home: Bench, name: str, at: str = FIRST) -> int:
    client = _client(home, at)
    try:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}
        return int(client.create(body)["metadata"]["resourceVersion"])
    finally:
        client.close()


def _guard(home: Bench) -> None:
    """Create a webhook that has to answer, for objects that nobody makes."""
    hook = {
        "name": "strict.guard.test",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": "https://guard.test/"},
        "rules": [{"apiGroups": ["guard.test"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["guards"]}],
    }
    kind = "ValidatingWebhookConfiguration"
    _create(home, {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "guard"}, "webhooks": [hook]})


def _create(home: Bench, body: dict[str, Any]) -> None:
    with closing(_client(home)) as client, suppress(AlreadyExists):
        client.create(body)


GUARDED = "validatingwebhookconfiguration/guard (strict.guard.test)"


def _hold(home: Bench, name: str) -> None:
    """Let a machine hold that Lease. The restored data may be older than the Lease."""
    with closing(_client(home)) as client:
        found: dict[str, Any] = {}
        with suppress(NotFound):
            found = client.get(LEASE, TERMS.name, TERMS.namespace)
        held = lease_rules.taken(found, TERMS, identity=name, now=SystemClock().now())
        (client.update if found else client.create)(held)


def _lease(home: Bench) -> dict[str, Any]:
    """Return the Lease of operations that stop etcd or an API server."""
    with closing(_client(home)) as client:
        return client.get(LEASE, TERMS.name, TERMS.namespace)["spec"]


def _watched(home: Bench, revision: int) -> dict[str, Any]:
    """Return the first event of a watch that goes on from a revision, as clients ask for it whose connection has ended."""
    client = _client(home)
    try:
        answer = client.raw("GET", f"/api/v1/namespaces/default/configmaps?watch=1&resourceVersion={revision}&timeoutSeconds=5")
        return json.loads(answer.body.split(b"\n")[0])
    finally:
        client.close()


def _data(home: Bench, at: str) -> Path:
    return Path(home.paths().layout(at).etcd_data)


def _asides(home: Bench, at: str = FIRST) -> list[str]:
    return sorted(one.name for one in _data(home, at).iterdir() if one.name != "member")


def _rows(run: Run, at: str = FIRST) -> list[dict[str, Any]]:
    """Return the members as etcd returns them just now: none while it elects a leader, for example."""
    code, out, _ = run("status", "-o", "json", at=at)
    return list(json.JSONDecoder().raw_decode(out)[0]["members"]) if code in (0, 4) else []


def _members(run: Run, at: str = FIRST) -> dict[str, tuple[str, bool]]:
    """Return the IDs of the members, and whether each votes."""
    found: list[dict[str, Any]] = []

    def told() -> bool:
        found[:] = _rows(run, at)
        return bool(found)

    eventually(told, "etcd to return its members")
    return {one["name"]: (one["id"], not one["learner"]) for one in found}


def _require_voting(run: Run, at: str = FIRST) -> None:
    """Require that all members serve and vote. On a busy machine they may be electing a leader just now."""
    voting = sorted(name for name, (_, votes) in _members(run, at).items() if votes)
    assert voting == sorted(NAMES)
    eventually(lambda: sorted(one["name"] for one in _rows(run, at) if one["serves"]) == voting, "all members to serve")


def test_one_member_is_restored_from_a_snapshot_and_no_revision_is_reused(home: Bench, run: Run, tmp_path: Path) -> None:
    home.up(nodes=0)
    place = tmp_path / "backups"
    place.mkdir(mode=0o700)
    file = str(place / "etcd.db")
    _put(home, "test-kept")
    assert run("snapshot", "save", file)[0] == 0
    last = _put(home, "test-lost")
    _create(home, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}})
    _guard(home)
    code, out, err = run("restore", file, "--plan")
    assert (code, _names(home), _asides(home)) == (0, ["test-kept", "test-lost"], []), err
    assert (out.count("renamed to"), "manifests/etcd.yaml" in out, "kube-apiserver" in out) == (2, True, False)

    code, out, err = run("restore", file, "--yes")
    assert code == 0, err
    assert (GUARDED in err, "The restored data lacks the Nodes late: " in out) == (True, True), (out, err)
    assert _names(home) == ["test-kept"]
    assert _put(home, "test-new") > last + BUMP // 2
    assert [name.startswith("member.before-") for name in _asides(home)] == [True]
    event = _watched(home, last)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


def test_a_restore_that_is_killed_again_and_again_ends_as_an_undisturbed_one(home: Bench, run: Run, tmp_path: Path) -> None:
    home.up(nodes=0)
    place, before = tmp_path / "backups", set(_asides(home))
    place.mkdir(mode=0o700)
    file = str(place / "etcd.db")
    _put(home, "test-killed-kept")
    assert run("snapshot", "save", file)[0] == 0
    last = _put(home, "test-killed-lost")
    assert _killed(home, FIRST, (12, 4, 3, 2, 2, 1), "restore", file, "--yes") > 1
    code, _, err = run("restore", file, "--yes")
    assert code == 0, err
    names = _names(home)
    assert ("test-killed-kept" in names, "test-killed-lost" in names) == (True, False)
    assert _put(home, "test-killed-new") > last + BUMP // 2
    _hold(home, FIRST)  # as a run does that is killed when the new data serves
    code, out, err = run("restore", file, "--yes")  # as somebody does who has not seen the end
    assert (code, "nothing is changed" in out, _lease(home)["holderIdentity"]) == (0, True, ""), err
    assert "test-killed-new" in _names(home)
    assert (len(set(_asides(home)) - before), list(_members(run))) == (1, [FIRST])
    code, out, err = run("restore", file, "--again", "--plan")
    assert (code, out.count("renamed to")) == (0, 2), err


def _killed(home: Bench, at: str, changes: Sequence[int], *words: str) -> int:
    """Run a command of `etcd` that is killed after so many changes, again and again until it ends by itself. Returns how often it was killed.

    The first ten or so changes are those of the checkpoint.
    """
    argv = _argv(home, at)
    for number, count in enumerate(changes):
        ended = subprocess.run([*argv, str(count), "etcd", *words], check=False, capture_output=True, timeout=900)
        if ended.returncode == 0:
            return number
        assert ended.returncode == etcd_killed.KILLED, ended.stderr.decode()
    return len(changes)


def _argv(home: Bench, at: str) -> list[str]:
    return [sys.executable, etcd_killed.__file__, str(home.paths().root), at]


def _beside(home: Bench, at: str, *words: str) -> subprocess.Popen[bytes]:
    """Run a command of `etcd` on a machine at the same time as another one."""
    return subprocess.Popen([*_argv(home, at), NEVER, "etcd", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def test_a_restore_from_this_member_that_is_killed_continues(home: Bench, run: Run) -> None:
    home.up(nodes=0)
    assert _begins_again(home, run, 12)


def test_a_restore_from_this_member_that_is_killed_at_any_change_continues(home: Bench, run: Run) -> None:
    home.up(nodes=0)
    number = 1
    while _begins_again(home, run, number):
        number += 1
    assert number > 15


def _begins_again(home: Bench, run: Run, number: int) -> bool:
    """Kill `etcd restore --from-this-member` at a change, run it again, and require that nothing is lost or left.

    Returns whether it was killed; it is not if it makes fewer changes. A run that was killed before its checkpoint, or after the end of that, leaves nothing to do.
    """
    kept, name = set(_names(home)), f"test-begun-{number}"
    last, asides = _put(home, name), set(_asides(home))
    restore = ("restore", "--from-this-member", "--yes")
    killed = _killed(home, FIRST, (number,), *restore, "--again") == 1
    code, out, err = run(*restore)
    assert code == 0, f"killed at change {number}: {out}{err}"
    made = set(_asides(home)) - asides
    assert (list(_members(run)), [one for one in made if not one.startswith("member.before-")]) == ([FIRST], []), number
    bumped = _put(home, f"{name}-later") > last + BUMP // 2
    assert (bumped, len(made)) in ((True, 1), (False, 0)), number
    assert kept | {name, f"{name}-later"} == set(_names(home)), number
    assert _lease(home)["holderIdentity"] == "", number
    return killed


def test_a_file_that_is_no_snapshot_of_this_cluster_is_refused_before_anything_stops(home: Bench, run: Run, tmp_path: Path) -> None:
    home.up(nodes=0)
    file, before = tmp_path / "etcd.db", home.components()
    assert run("snapshot", "save", str(file))[0] == 0
    whole, beside = file.read_bytes(), tmp_path / "etcd.db.json"
    for content in (whole[:-4096], whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:], b""):
        file.write_bytes(content)
        code, _, err = run("restore", str(file), "--yes")
        assert (code, "is not a complete snapshot of etcd" in err) == (3, True)
    file.write_bytes(whole)
    described = json.loads(beside.read_text())
    other = {"etcd/ca": "sha256:" + 64 * "0"}
    beside.write_text(json.dumps({**described, "certificateAuthorities": other}))
    code, _, err = run("restore", str(file), "--yes")
    assert (code, "is the snapshot of another cluster" in err) == (4, True)
    beside.write_text(json.dumps({**described, "etcdVersion": "3.4.0"}))
    code, _, err = run("restore", str(file), "--yes")
    assert (code, "cannot restore a snapshot of etcd 3.4.0" in err) == (4, True)
    code, _, err = run("restore", "--yes")
    assert (code, "name either a snapshot or one of" in err) == (2, True)
    assert {name: row["pid"] for name, row in home.components().items()} == {name: row["pid"] for name, row in before.items()}


def test_a_machine_of_which_nothing_is_left_is_made_again_from_its_backup(home: Bench, run: Run, tmp_path: Path) -> None:
    home.up(nodes=0)
    key, file, layout = tmp_path / "key", tmp_path / "one.kwb", home.paths().layout(FIRST)
    key.write_text(32 * "5a" + "\n")
    _put(home, "test-saved")
    code, out, err = run("create", str(file), "--key-file", str(key), group="backup")
    assert (code, f"Saved {file} (sealed)" in out, oct(file.stat().st_mode & 0o777)) == (0, True, "0o600"), err
    secrets = [Path(layout.key(name)).read_bytes() for name in ("ca", "sa", "etcd/ca")]
    content = file.read_bytes()
    assert [one.splitlines()[1] in content for one in secrets] == [False] * 3
    assert (b"PRIVATE KEY" in content, b"test-saved" in content) == (False, False)
    code, out, err = run("show", str(file), "--key-file", str(key), group="backup")
    assert (code, "is a complete backup" in out, str(layout.key("ca")) in out) == (0, True, True), err
    code, _, err = run("restore", str(file), "--key-file", str(key), "--yes", group="backup")
    assert (code, "belongs to a cluster already" in err) == (4, True), err
    last = _put(home, "test-later")

    _lose(home)
    code, _, err = run("restore", str(file), "--yes", group="backup")
    assert (code, "is sealed" in err) == (2, True)
    for changed in (content[:-1], content[: len(content) // 2], content[:9000] + bytes([content[9000] ^ 1]) + content[9001:]):
        file.write_bytes(changed)
        code, _, err = run("restore", str(file), "--key-file", str(key), "--yes", group="backup")
        assert (code, "cannot be decrypted" in err) == (1, True)
    file.write_bytes(content)
    assert (_asides(home), Path(layout.kubeconfig("admin")).exists()) == ([], False)
    code, out, err = run("restore", str(file), "--key-file", str(key), "--plan", group="backup")
    assert (code, "PRIVATE KEY" in out, Path(layout.kubeconfig("admin")).exists()) == (0, False, False), err
    code, out, err = run("restore", str(file), "--key-file", str(key), "--yes", group="backup")
    assert code == 0, err
    code, out, err = run("restore", str(file), "--key-file", str(key), "--yes", group="backup")
    assert (code, "nothing is changed" in out) == (0, True), err
    names = _names(home)
    assert ("test-saved" in names, "test-later" in names) == (True, False)
    assert _put(home, "test-made-again") > last + BUMP // 2
    assert [Path(layout.key(name)).read_bytes() for name in ("ca", "sa", "etcd/ca")] == secrets
    assert {oct(Path(layout.key(name)).stat().st_mode & 0o777) for name in ("ca", "sa", "etcd/ca")} == {"0o600"}


def _lose(home: Bench) -> None:
    """Let a machine be a fresh one again."""
    layout = home.paths().layout(FIRST)
    for path in Path(layout.manifests).iterdir():
        path.unlink()
    eventually(lambda: not home.components(), "the static pods to end")
    for place in (layout.kubernetes, layout.pki, layout.etcd_data, layout.kubelet, layout.state):
        for path in Path(place).iterdir() if Path(place).is_dir() else ():
            if path != Path(layout.manifests):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _stop(home: Bench, at: str) -> None:
    """Let a member be dead: its process ends, and cannot start again."""
    manifest = Path(home.paths().layout(at).manifest("etcd"))
    manifest.write_text(manifest.read_text().replace("    - etcd\n", "    - etcd\n    - --no-such-flag\n"))
    eventually(lambda: _row(home, at, "etcd")["state"] == "CrashLoop", "etcd to end")


def _row(home: Bench, at: str, component: str) -> dict[str, Any]:
    [found] = [row for one in home.status()["machines"] if one["name"] == at for row in one["components"] if row["name"] == component]
    return found


def test_members_are_replaced_with_all_alive_and_with_one_of_three_dead(home: Bench, run: Run) -> None:
    home.up(nodes=0, control_planes=3)
    _put(home, "test-before-replacing")
    before = _members(run)
    code, out, err = run("member", "replace", "--plan", at=THIRD)
    assert (code, out.count("renamed to"), _members(run)) == (0, 1, before), err
    with _beside(home, FIRST, "member", "replace", "--yes") as other:  # one of the two waits
        code, out, err = run("member", "replace", "--yes", at=THIRD)
        assert code == 0, err
        _, said = other.communicate(timeout=900)
        assert other.returncode == 0, said.decode()
    after = _members(run)
    _require_voting(run)
    assert [after[name][0] != before[name][0] for name in NAMES] == [True, False, True]
    assert "no API server is ready" not in out + err
    assert _lease(home)["holderIdentity"] == ""
    assert ["test-before-replacing" in _names(home, name) for name in (FIRST, THIRD)] == [True, True]

    code, out, err = run("member", "replace", "--yes", at=THIRD)
    assert (code, "nothing is changed" in out, _members(run)) == (0, True, after), err

    _stop(home, SECOND)
    code, _, err = run("member", "replace", "--yes", "--again", at=THIRD)
    assert (code, f"{SECOND} at " in err) == (4, True)
    layout = home.paths().layout(SECOND)
    database = Path(layout.etcd_data) / "member/snap/db"
    database.write_bytes(database.read_bytes()[:4096])
    manifest = Path(layout.manifest("etcd"))
    manifest.write_text(manifest.read_text().replace("    - --no-such-flag\n", ""))
    code, _, err = run("member", "replace", "--yes", at=SECOND)
    assert code == 0, err
    _require_voting(run)
    assert "test-before-replacing" in _names(home, SECOND)


def test_a_cluster_begins_again_with_the_one_member_that_is_left(home: Bench, run: Run) -> None:
    home.up(nodes=0, control_planes=3)
    _guard(home)
    last, before = _put(home, "test-before-the-loss"), set(_asides(home))
    code, _, err = run("restore", "--from-this-member", "--yes")
    assert (code, "other members of etcd are running" in err, "etcd restore --fence" in err) == (4, True, True)
    for name in (SECOND, THIRD):
        code, _, err = run("restore", "--fence", "--yes", at=name)
        assert code == 0, err
    code, _, err = run("member", "replace", "--yes")
    assert (code, "no other member of etcd answers" in err, "--from-this-member" in err) == (1, True, True)
    code, out, err = run("restore", "--from-this-member", "--yes")
    assert code == 0, err
    assert ("no API server is ready" in out + err, GUARDED in err) == (True, True), err
    assert (f"On the other control planes ({SECOND}, {THIRD}) run" in out, "restored data yet" in err) == (True, False), out + err
    code, out, err = run("restore", "--from-this-member", "--yes")
    assert (code, "nothing is changed" in out) == (0, True), err
    assert (list(_members(run)), len(set(_asides(home)) - before)) == ([FIRST], 1)
    assert "test-before-the-loss" in _names(home)
    assert _put(home, "test-after-the-loss") > last + BUMP // 2

    code, _, err = run("restore", "--unfence", at=THIRD)  # it comes back with its old data
    assert code == 0, err
    log = home.paths().machines / THIRD / "logs" / "etcd.log"
    eventually(lambda: "remote peer due to cluster ID mismatch" in log.read_text(), "the old member to be refused by the first")
    assert list(_members(run)) == [FIRST]
    for name in (SECOND, THIRD):
        code, _, err = run("member", "replace", "--yes", "--endpoints", _endpoint(home), at=name)
        assert code == 0, err
        assert {"test-before-the-loss", "test-after-the-loss"} <= set(_names(home, name))
    _require_voting(run)


def test_a_replacement_that_is_killed_again_and_again_ends_as_an_undisturbed_one(home: Bench, run: Run) -> None:
    home.up(nodes=0, control_planes=3)
    _put(home, "test-before-the-kills", THIRD)
    before = _members(run, THIRD)
    replace = ("member", "replace", "--yes")
    assert _killed(home, FIRST, (8, 2, 1, 1, 1), *replace) > 1
    code, out, err = run(*replace)
    assert code == 0, out + err
    after = _members(run, THIRD)
    _require_voting(run, THIRD)
    assert after[FIRST][0] != before[FIRST][0]
    assert {name: after[name] for name in (SECOND, THIRD)} == {name: before[name] for name in (SECOND, THIRD)}
    assert "test-before-the-kills" in _names(home)
    code, out, err = run(*replace)
    assert (code, "nothing is changed" in out, _members(run, THIRD)) == (0, True, after), err
    assert _lease(home)["holderIdentity"] == ""


def _endpoint(home: Bench) -> str:
    """Return where the first member answers."""
    found = record.load(home.paths().record)
    assert found is not None
    return next(one.etcd_client_url for one in found.machines if one.name == FIRST)
