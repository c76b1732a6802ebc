"""`local use` and the user's kubeconfig: which file, its lock, its mode, refusals, and what `down` leaves of it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from kubewright.apis.kubeconfig import EmbeddedCertificate, kubeconfig_document, parse
from kubewright.base import yaml
from kubewright.base.change import Action
from kubewright.base.errors import DocumentError, Locked, UsageError, ValidationError, WaitTimeout
from kubewright.base.events import RecordingReporter, Warned
from kubewright.base.records import replace
from kubewright.host.locks import Lock
from kubewright.local import record
from kubewright.local.cluster import kubeconfig
from kubewright.local.cluster.down import down
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord

THEIRS = """\
apiVersion: v1
kind: Config
clusters:
- {name: work, cluster: {server: "https://work.example"}}
contexts:
- {name: work, context: {cluster: work, user: me}}
current-context: work
users:
- {name: me, user: {token: abc}}
x-theirs: 12:30
"""


def cluster(root: Path, name: str = "one", number: str = "1") -> ClusterPaths:
    """Create what `up` leaves, as far as `use` reads it."""
    made = ClusterPaths(root / name)
    made.root.mkdir(mode=0o700, parents=True)
    machine = LocalMachineRecord(name=f"{name}-control-plane", address="127.0.0.11")
    record.save(ClusterRecord(name=name, id=number * 32, machines=(machine,), made=True), made.record)
    admin = kubeconfig_document(
        server="https://127.0.0.11:6443",
        cluster_name="kubernetes",
        user="kubernetes-admin",
        credentials=EmbeddedCertificate(certificate_pem=b"cert", key_pem=number.encode()),
        ca_pem=b"ca",
    )
    path = Path(made.layout(machine.name).kubeconfig("admin"))
    path.parent.mkdir(parents=True)
    path.write_text(yaml.dump(admin))
    return made


@pytest.fixture
def one(tmp_path: Path) -> ClusterPaths:
    return cluster(tmp_path / "state")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "home" / ".kube" / "config"
    path.parent.mkdir(parents=True)
    path.write_text(THEIRS)
    return path


def current(path: Path) -> str:
    return parse(yaml.load_one(path.read_bytes())).current_context


def test_a_cluster_becomes_the_current_context_and_is_removed_with_it(one: ClusterPaths, config: Path) -> None:
    config.chmod(0o644)
    used = kubeconfig.use(one, config)
    assert (used.context, used.change.action) == ("kubewright-one", Action.UPDATE)
    assert config.stat().st_mode & 0o777 == 0o600
    assert list(parse(yaml.load_one(config.read_bytes())).contexts) == ["work", "kubewright-one"]
    assert current(config) == "kubewright-one"
    before = (config.stat().st_ino, config.read_bytes())
    assert kubeconfig.use(one, config).change.action is Action.NONE
    assert (config.stat().st_ino, config.read_bytes()) == before

    assert down(one).kubeconfigs == (config,)

    theirs = yaml.load_one(THEIRS).value
    assert isinstance(theirs, dict)
    assert yaml.load_one(config.read_bytes()).value == {**theirs, "current-context": ""}
    assert [entry.name for entry in config.parent.iterdir()] == ["config"]


def test_a_missing_kubeconfig_is_created_with_private_mode(one: ClusterPaths, tmp_path: Path) -> None:
    path = tmp_path / "new" / "dir" / "config"
    assert kubeconfig.use(one, path).change.action is Action.CREATE
    assert path.stat().st_mode & 0o777 == 0o600


def test_down_with_kept_data_keeps_the_context_until_the_cluster_is_removed(one: ClusterPaths, config: Path) -> None:
    kubeconfig.use(one, config)
    assert down(one, keep_data=True).kubeconfigs == ()
    assert current(config) == "kubewright-one"
    assert down(one).kubeconfigs == (config,)


def test_the_context_is_removed_from_every_file(one: ClusterPaths, config: Path, tmp_path: Path) -> None:
    other, gone = tmp_path / "other", tmp_path / "gone"
    for path in (config, other, gone):
        kubeconfig.use(one, path)
    gone.unlink()
    assert down(one).kubeconfigs == (config, other)
    assert not gone.exists()


@pytest.mark.parametrize(
    ("named", "found"),
    [
        *(("", "home/.kube/config"), ("b:a", "a"), ("c:b", "b"), ("a", "a"), (":c:", "c"), ("a:home/.kube/config", "a")),
        *(("state/one/admin.conf", "home/.kube/config"), ("state/one/admin.conf:b", "b")),  # as `local env` sets it
    ],
)
def test_the_file_that_kubectl_would_change_is_used(tmp_path: Path, named: str, found: str) -> None:
    (tmp_path / "a").touch()
    clusters = tmp_path / "state"
    paths = ":".join(str(tmp_path / part) if part else "" for part in named.split(":")) if named else ""
    assert kubeconfig.target({"HOME": str(tmp_path / "home"), "KUBECONFIG": paths}, clusters=clusters) == tmp_path / found
    assert kubeconfig.target({"KUBECONFIG": paths}, clusters=clusters, given=str(tmp_path / "x")) == tmp_path / "x"


def test_without_a_path_for_a_kubeconfig_there_is_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        kubeconfig.target({}, clusters=tmp_path)
    assert "--kubeconfig" in caught.value.remedy


def test_a_link_to_the_kubeconfig_stays_a_link(one: ClusterPaths, config: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(config)
    kubeconfig.use(one, link)
    assert link.is_symlink()
    assert current(config) == "kubewright-one"


def test_the_kubeconfig_of_a_cluster_is_not_changed(one: ClusterPaths) -> None:
    [admin] = one.root.rglob("admin.conf")
    before = admin.read_bytes()
    with pytest.raises(UsageError, match="belongs to a local cluster") as caught:
        kubeconfig.use(one, admin)
    assert "--kubeconfig" in caught.value.remedy
    assert admin.read_bytes() == before


def test_foreign_entries_of_the_name_are_not_replaced(one: ClusterPaths, config: Path) -> None:
    text = THEIRS.replace("name: me,", "name: kubewright-one,")
    config.write_text(text)
    with pytest.raises(UsageError, match="did not create"):
        kubeconfig.use(one, config)
    assert config.read_text() == text


def test_a_running_cluster_of_the_same_name_elsewhere_keeps_its_context(one: ClusterPaths, config: Path, tmp_path: Path) -> None:
    other = cluster(tmp_path / "elsewhere", number="2")
    kubeconfig.use(other, config)
    with pytest.raises(UsageError, match=str(other.root)):
        kubeconfig.use(one, config)
    other.record.unlink()
    assert kubeconfig.use(one, config).change.action is Action.UPDATE
    assert kubeconfig.take_out(other) == []
    assert current(config) == "kubewright-one"


def test_a_later_cluster_of_the_same_directory_replaces_the_context(one: ClusterPaths, config: Path) -> None:
    kubeconfig.use(one, config)
    kept = config.read_bytes()
    down(one)
    config.write_bytes(kept)
    again = cluster(one.root.parent, number="3")
    kubeconfig.use(again, config)
    assert [user.client_key_data for user in parse(yaml.load_one(config.read_bytes())).users.values()] == [b"", b"3"]


@pytest.mark.parametrize("text", ["{", "a: 1\n---\nb: 1\n", "clusters: 7\n", "kind: Pod\n", "a: 1\na: 2\n"])
def test_an_invalid_kubeconfig_is_not_changed(one: ClusterPaths, config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises((DocumentError, ValidationError)):
        kubeconfig.use(one, config)
    assert config.read_text() == text
    assert not one.contexts.exists()


def test_down_continues_and_warns_if_a_kubeconfig_cannot_be_changed(one: ClusterPaths, config: Path) -> None:
    kubeconfig.use(one, config)
    config.write_text("{")
    said = RecordingReporter()
    assert down(one, reporter=said).kubeconfigs == ()
    assert not one.root.exists()
    [warning] = [event.text for event in said.events if isinstance(event, Warned)]
    assert str(config) in warning
    assert "kubectl config delete-context kubewright-one" in warning


def test_a_cluster_that_was_never_up_has_no_context(one: ClusterPaths, config: Path) -> None:
    [admin] = one.root.rglob("admin.conf")
    admin.unlink()
    for kind, command in ((record.PROCESSES, "kubewright"), (record.MACHINES, "sudo kubewright")):
        found = record.load(one.record)
        assert found is not None
        record.save(replace(found, kind=kind), one.record)
        with pytest.raises(UsageError, match="no kubeconfig yet") as refused:
            kubeconfig.use(one, config)
        assert refused.value.remedy == f"run `{command} up --name one` first"
    with pytest.raises(UsageError, match="there is no cluster"):
        kubeconfig.use(ClusterPaths(one.root.parent / "two"), config)
    assert not (one.root.parent / "two").exists()


def test_a_cluster_in_use_by_another_command_is_not_touched(one: ClusterPaths, config: Path) -> None:
    with Lock(PurePosixPath(one.lock), doing="up"), pytest.raises(Locked):
        kubeconfig.use(one, config)
    assert config.read_text() == THEIRS


@pytest.fixture
def kubectls_lock(config: Path) -> Iterator[Path]:
    """Create the lock file as client-go does: os.OpenFile(name, os.O_CREATE|os.O_EXCL, 0)."""
    path = Path(f"{config}.lock")
    os.close(os.open(path, os.O_CREAT | os.O_EXCL, 0))
    yield path
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def test_the_lock_of_kubectl_is_respected(one: ClusterPaths, config: Path, kubectls_lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "LOCK_WITHIN", 0.2)
    with pytest.raises(WaitTimeout) as caught:
        kubeconfig.use(one, config)
    assert str(kubectls_lock) in caught.value.remedy
    assert config.read_text() == THEIRS
    assert kubectls_lock.exists()
    kubectls_lock.unlink()
    kubeconfig.use(one, config)
    assert not kubectls_lock.exists()


KILLED = """
import os, signal, sys
from pathlib import PurePosixPath
from kubewright.host.locks import Lock
Lock(PurePosixPath(sys.argv[1]), doing="local use").acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_stale_lock_of_a_killed_kubewright_blocks_nothing(one: ClusterPaths, config: Path) -> None:
    left = Path(f"{config}.lock")
    subprocess.run([sys.executable, "-c", KILLED, str(left)], check=False)
    assert left.stat().st_mode & 0o777 == 0o600
    assert kubeconfig.use(one, config).change.action is Action.UPDATE
    assert not left.exists()


def test_a_kubeconfig_that_names_programs_or_files_is_not_taken_over(one: ClusterPaths, config: Path) -> None:
    admin = Path(one.layout("one-control-plane").kubeconfig("admin"))
    body: Any = yaml.load_one(admin.read_bytes()).value
    for user in ({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "id"}}, {"tokenFile": "/etc/hostname"}):
        body["users"][0]["user"] = user
        admin.write_text(yaml.dump(body))
        with pytest.raises(ValidationError, match="may not"):
            kubeconfig.use(one, config)
        assert config.read_text() == THEIRS
