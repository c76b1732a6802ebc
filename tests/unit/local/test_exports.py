"""`local export`: which objects and archives are written, and who owns the files. Machines are in tests/machines."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubewright.base.errors import HostError, UsageError
from kubewright.base.events import RecordingReporter, SilentReporter
from kubewright.http.messages import Request, Response
from kubewright.kube.api import KubeAPI
from kubewright.kube.core import Call, Object
from kubewright.local import record
from kubewright.local.export import machines
from kubewright.local.export.export import export, file_name, listed, without_secrets
from kubewright.local.export.sink import Sink
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord, LocalMachineRecord
from kubewright.local.whole.owner import Owner
from other_user import readable

__all__ = ["readable"]
SECRET = "c2VjcmV0LXZhbHVl"


def test_secrets_are_exported_without_their_data() -> None:
    annotations = {"kubectl.kubernetes.io/last-applied-configuration": f'{{"data":{{"key":"{SECRET}"}}}}', "team": "one"}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": annotations, "managedFields": [{}]},
        "data": {"key": SECRET},
        "stringData": {"other": SECRET},
        "type": "Opaque",
    }
    other = {"apiVersion": "example.org/v1", "kind": "Secret", "data": {"key": "kept"}}
    found = without_secrets([secret, other])
    assert found == [
        {**secret, "metadata": {"name": "s", "annotations": {"team": "one"}}, "data": {"key": ""}, "stringData": {"other": ""}},
        other,
    ]
    assert SECRET not in json.dumps(found)


KINDS = {
    "/apis": {"groups": [{"name": "apps", "preferredVersion": {"version": "v1"}}]},
    "/api/v1": {
        "resources": [
            {"name": "pods", "kind": "Pod", "namespaced": True, "verbs": ["list"]},
            {"name": "pods/status", "kind": "Pod", "namespaced": True, "verbs": ["get"]},
            {"name": "bindings", "kind": "Binding", "namespaced": True, "verbs": ["create"]},
        ]
    },
    "/apis/apps/v1": {"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": ["list", "get"]}]},
}


class Discovery(KubeAPI):
    """An API server that answers with `KINDS`."""

    def send(self, call: Call, /) -> Object:
        raise NotImplementedError

    def exchange(self, request: Request, /) -> Response:
        return Response(status=200, headers={}, body=json.dumps(KINDS[request.target]).encode())


def test_every_kind_that_can_be_listed_has_a_file() -> None:
    assert [file_name(one) for one in listed(Discovery())] == ["pods.json", "deployments.apps.json"]


@given(
    entries=st.lists(
        st.tuples(
            st.sampled_from(["a", "../a", "/etc/a", "b/../../a", "./pod/0.log", "."]),
            st.sampled_from([tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]),
        )
    )
)
def test_only_ordinary_files_of_an_archive_are_taken(entries: list[tuple[str, bytes]]) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        for name, kind in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.size = kind, "/etc/passwd", 3 if kind == tarfile.REGTYPE else 0
            made.addfile(entry, io.BytesIO(b"abc"))
    stream.seek(0)
    found = [(path, content.read()) for path, content in machines.files_of(stream)]
    wanted = [name for name, kind in entries if kind == tarfile.REGTYPE and name in {"a", "./pod/0.log"}]
    assert found == [(PurePosixPath(name), b"abc") for name in wanted]


def pod_log(content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as made:
        entry = tarfile.TarInfo("pod/0.log")
        entry.size = len(content)
        made.addfile(entry, io.BytesIO(content))
    return stream.getvalue()


def long_name(size: int) -> bytes:
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, size
    return entry.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize(
    "content", [pod_log(b"x" * 5000)[:2000], long_name(1 << 40) + bytes(4 << 20), (long_name(512) + bytes(512)) * 5000, b"no archive" * 100]
)
def test_logs_of_pods_that_a_machine_sends_in_part_or_wrongly_are_a_problem_of_the_export(tmp_path: Path, content: bytes) -> None:
    sink = Sink(tmp_path / "out", owner=None, reporter=SilentReporter())
    sink.open()
    with sink.part("pods"):
        machines.copy_logs(io.BytesIO(content), "one", sink)
    assert [problem.partition(":")[0] for problem in sink.problems] == ["pods"]


def test_the_size_of_logs_of_pods_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Sink(tmp_path / "out", owner=None, reporter=SilentReporter())
    sink.open()
    machines.copy_logs(io.BytesIO(pod_log(b"x" * 5000)), "one", sink)
    assert (tmp_path / "out" / "one" / "pods" / "pod" / "0.log").read_bytes() == b"x" * 5000
    monkeypatch.setattr(machines, "MOST_BYTES", 4000)
    with pytest.raises(HostError, match="larger than 4000 bytes"):
        machines.copy_logs(io.BytesIO(pod_log(b"x" * 5000)), "two", sink)


def test_a_directory_with_files_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    sink = Sink(tmp_path, owner=None, reporter=SilentReporter())
    with pytest.raises(UsageError, match="is not empty"):
        sink.open()
    with pytest.raises(HostError, match="cannot write to") as caught:
        Sink(tmp_path / "none" / "below", owner=None, reporter=SilentReporter()).open()
    assert caught.value.remedy == "choose a directory in one that exists and that you can write to"
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_part_that_fails_is_noted(tmp_path: Path) -> None:
    reporter = RecordingReporter()
    sink = Sink(tmp_path / "out", owner=None, reporter=reporter)
    sink.open()
    with sink.part("one"):
        raise HostError("it is broken")
    with sink.part("two"):
        sink.write("below/two.txt", b"2")
    sink.close()
    assert (sink.files, sink.problems) == (["below/two.txt", "problems.txt"], ["one: it is broken"])
    assert (tmp_path / "out" / "problems.txt").read_text() == "one: it is broken\n"
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "out", *(tmp_path / "out").rglob("*"))}
    assert modes == {"out": 0o700, "below": 0o700, "two.txt": 0o600, "problems.txt": 0o600}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: only root can change the owner of a file")
def test_the_files_belong_to_the_user_who_called_sudo(readable: Path) -> None:
    home = readable / "home"
    home.mkdir()
    os.chown(home, 12345, 12345)
    sink = Sink(home / "out", owner=Owner(uid=12345, gid=12345, home=home), reporter=SilentReporter())
    sink.open()
    sink.write("below/one.txt", b"1")
    assert [path.stat().st_uid for path in (home / "out", *(home / "out").rglob("*"))] == [12345] * 3
    assert os.geteuid() == 0


def test_a_stopped_cluster_of_processes_is_exported_with_its_logs(tmp_path: Path) -> None:
    paths = ClusterPaths(tmp_path / "clusters" / "dev")
    first = LocalMachineRecord(name="dev-control-plane", address="127.0.0.11")
    paths.logs(first.name).mkdir(parents=True)
    record.save(ClusterRecord(name="dev", id="0" * 32, machines=(first,)), paths.record)
    (paths.logs(first.name) / "etcd.log").write_text("said\n")
    done = export(paths, tmp_path / "out", reporter=SilentReporter())
    assert done.files == ("status.json", "cluster.json", "dev-control-plane/etcd.log", "problems.txt")
    assert (tmp_path / "out" / "dev-control-plane" / "etcd.log").read_text() == "said\n"
    assert [problem.partition(":")[0] for problem in done.problems] == ["objects", "daemon.log"]
