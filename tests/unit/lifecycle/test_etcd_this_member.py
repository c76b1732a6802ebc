"""The etcd member of a machine as its manifests describe it, and whether the others are stopped."""

from __future__ import annotations

import socket
import threading
from datetime import UTC, datetime
from pathlib import PurePosixPath

import pytest

from kubewright.apis.machine import Layout
from kubewright.base import yaml
from kubewright.base.errors import CheckFailed, HostError
from kubewright.base.records import replace
from kubewright.host.desired import File
from kubewright.host.filesystem.files import Files
from kubewright.host.real import RealHost
from kubewright.lifecycle.etcd import etcdutl, fencing, this_member
from kubewright.lifecycle.etcd.fencing import Peer, Standing
from kubewright.lifecycle.steps import checkpoint
from kubewright.lifecycle.steps.checkpoint import State

FLAGS = {
    "name": "one",
    "initial-advertise-peer-urls": "https://10.0.0.1:2380",
    "listen-client-urls": "https://127.0.0.1:2379,https://10.0.0.1:2379",
    "listen-peer-urls": "https://10.0.0.1:2380",
    "initial-cluster": "two=https://10.0.0.2:2380,one=https://10.0.0.1:2380",
}


DATA = [{"name": "etcd-data", "hostPath": {"path": "/data/etcd"}}]


def pod(name: str, image: str, flags: dict[str, str], *, volumes=DATA) -> bytes:
    command = [name, *(f"--{flag}={value}" for flag, value in flags.items())]
    spec = {"containers": [{"name": name, "image": image, "command": command, "note": "kept"}], "volumes": volumes}
    return yaml.dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).encode()


@pytest.fixture
def host(tmp_path):
    made = RealHost(layout=Layout.below(PurePosixPath(tmp_path)), files=Files(durable=False), environment={})
    etcd = pod("etcd", "registry.k8s.io/etcd:3.6.8-0", FLAGS)
    server = pod("kube-apiserver", "registry.k8s.io/kube-apiserver:v1.36.3", {"advertise-address": "10.0.0.1", "secure-port": "6443"})
    for name, content in (("etcd", etcd), ("kube-apiserver", server)):
        made.ensure(File(path=made.layout.manifest(name), content=content))
    return made


def test_the_manifests_describe_the_member(host):
    found = this_member.find(host)
    assert (found.name, found.peer_url, found.version, found.kubernetes) == ("one", "https://10.0.0.1:2380", "3.6.8", "v1.36.3")
    assert (found.client_urls[0], dict(found.peers)) == ("https://127.0.0.1:2379", {"two": "https://10.0.0.2:2380"})
    assert found.pods.held == (("10.0.0.1", 2380), ("127.0.0.1", 2379), ("10.0.0.1", 2379), ("10.0.0.1", 6443))
    assert (found.api_server, str(found.layout.etcd_data)) == ("https://10.0.0.1:6443", "/data/etcd")


@pytest.mark.parametrize("operation", [this_member.FENCE, this_member.RESTORE, this_member.REPLACE])
@pytest.mark.parametrize("state", [State.IN_PROGRESS, State.DONE])
def test_a_member_whose_manifests_an_operation_has_taken_away_is_known(host, operation, state):
    before = this_member.find(host)
    files = [File(path=before.layout.manifest(name), content=content) for name, content in before.manifests.items()]
    at = datetime(2026, 11, 25, tzinfo=UTC)
    kept = checkpoint.prepare(host, operation=operation, goal="x", files=files, at=at, parks=before.paths)
    checkpoint.park(host, checkpoint.mark(host, kept, state))
    assert host.entries(host.layout.manifests) == []
    assert this_member.find(host) == before


@pytest.mark.parametrize("parked", [True, False])
def test_the_other_members_are_known_from_an_interrupted_replacement(host, parked):
    """The manifest of a first control plane names no other member, and its API server does not answer without etcd."""
    alone = pod("etcd", "registry.k8s.io/etcd:3.6.8-0", {**FLAGS, "initial-cluster": "one=https://10.0.0.1:2380"})
    host.ensure(File(path=host.layout.manifest("etcd"), content=alone))
    member = this_member.find(host)
    flags = {"initial-cluster": "three=https://10.0.0.3:2380,two=https://10.0.0.2:2380,one=https://10.0.0.1:2380"}
    at = datetime(2026, 11, 26, tzinfo=UTC)
    kept = this_member.taken_over(host, member, operation=this_member.REPLACE, goal="x", flags=flags, at=at)
    kept = checkpoint.mark(host, kept, State.IN_PROGRESS)
    if parked:
        checkpoint.park(host, kept)
    peers = {"two": "https://10.0.0.2:2380", "three": "https://10.0.0.3:2380"}
    assert this_member.find(host) == replace(member, peers=peers)
    checkpoint.finish(host, kept, State.DONE)
    assert this_member.find(host).peers == {}


def test_a_machine_without_a_member_is_refused(host):
    host.remove(host.layout.manifest("etcd"))
    with pytest.raises(HostError, match="has no member of etcd"):
        this_member.find(host)


@pytest.mark.parametrize(
    "changed",
    [
        {"wal-dir": "/wal"},
        {"name": ""},
        {"listen-client-urls": ""},
        {"listen-peer-urls": "https://10.0.0.1:x"},
        {"listen-peer-urls": "//["},
    ],
)
def test_a_manifest_that_is_laid_out_in_another_way_is_refused(host, changed):
    host.ensure(File(path=host.layout.manifest("etcd"), content=pod("etcd", "etcd:3.6.8", {**FLAGS, **changed})))
    with pytest.raises(HostError, match="not a manifest that this command can work with"):
        this_member.find(host)


@pytest.mark.parametrize("port", ["x", "-1", "65536"])
def test_a_manifest_of_an_api_server_without_a_valid_port_is_refused(host, port):
    server = pod("kube-apiserver", "kube-apiserver:v1.36.3", {"advertise-address": "10.0.0.1", "secure-port": port})
    host.ensure(File(path=host.layout.manifest("kube-apiserver"), content=server))
    with pytest.raises(HostError, match=r"kube-apiserver\.yaml is not a manifest that this command can work with") as caught:
        this_member.find(host)
    assert caught.value.detail == f'--secure-port is "{port}"'


def test_flags_are_changed_and_everything_else_stays():
    manifest = pod("etcd", "etcd:3.6.8", FLAGS)
    edited = yaml.load(this_member.edited(manifest, {"initial-cluster": "one=x", "initial-cluster-state": "existing"}), source="pod")
    [container] = edited["spec"]["containers"]
    flags = {**FLAGS, "initial-cluster": "one=x", "initial-cluster-state": "existing"}
    assert container["command"] == ["etcd", *sorted(f"--{name}={value}" for name, value in flags.items())]
    assert (container["note"], edited["metadata"]) == ("kept", {"name": "etcd"})


def test_the_id_of_a_cluster_is_that_which_etcd_calculates(host):
    """These are the IDs of every etcd that is started without flags."""
    member = replace(this_member.find(host), peer_url="http://localhost:2380")
    assert f"{etcdutl.cluster_id(member, token='etcd-cluster'):x}" == "cdf818194e3a8c32"


def test_a_port_that_refuses_is_that_of_a_stopped_member_and_one_that_listens_runs():
    with socket.create_server(("127.0.0.1", 0)) as refused:
        closed = f"https://127.0.0.1:{refused.getsockname()[1]}"
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up():
            server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        found = fencing.look({"two": closed, "three": f"https://127.0.0.1:{server.getsockname()[1]}"}, unknown=["four"])
    assert [(one.name, one.standing) for one in found] == [
        ("two", Standing.STOPPED),
        ("three", Standing.RUNNING),
        ("four", Standing.SILENT),
    ]
    with pytest.raises(CheckFailed, match="other members of etcd are running") as caught:
        fencing.require_stopped(found, gone=True)
    assert "three at https://127.0.0.1" in caught.value.detail


@pytest.mark.parametrize("answering", [0, 1])
def test_a_member_whose_client_port_or_api_server_answers_is_not_stopped(answering):
    """The peer port refuses connections."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        servers = (first, second)
        servers[1 - answering].close()
        with socket.create_server(("127.0.0.1", 0)) as refused:
            closed = f"https://127.0.0.1:{refused.getsockname()[1]}"
        port = servers[answering].getsockname()[1]

        def hang_up():
            servers[answering].accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        unused = int(closed.rpartition(":")[2])
        found = fencing.look({"two": closed}, ports=[port, unused] if answering else [unused, port])
    assert [(one.name, one.standing, one.url) for one in found] == [("two", Standing.RUNNING, f"https://127.0.0.1:{port}")]
    with pytest.raises(CheckFailed, match="other members of etcd are running, or their API servers are") as caught:
        fencing.require_stopped(found, gone=True)
    assert caught.value.detail == f"two at https://127.0.0.1:{port} answers"


def test_a_member_is_asked_at_the_ports_of_this_machine(host):
    member = this_member.find(host)
    assert member.ports == (2379, 6443)
    assert replace(member, api_server="").ports == (2379,)


def test_members_that_are_silent_have_to_be_gone():
    silent = [Peer(name="two", url="https://10.0.0.2:2380", standing=Standing.SILENT, problem="timed out")]
    with pytest.raises(CheckFailed, match="it is unknown whether other members of etcd are running") as caught:
        fencing.require_stopped(silent, gone=False)
    assert (caught.value.detail, "--peers-are-gone" in caught.value.remedy) == ("two at https://10.0.0.2:2380: timed out", True)
    fencing.require_stopped(silent, gone=True)


@pytest.mark.parametrize("command", [["etcd", "--name=one", "--initial-cluster=one=x"], None])
def test_flags_in_the_arguments_of_a_container_are_replaced_there(command):
    container = {"name": "etcd", "args": ["--initial-cluster=one=y", "--name=one"], **({"command": command} if command else {})}
    manifest = yaml.dump({"kind": "Pod", "spec": {"containers": [container]}}).encode()
    [made] = yaml.load(this_member.edited(manifest, {"initial-cluster": "two=z"}), source="pod")["spec"]["containers"]
    assert (made["args"], made.get("command")) == (["--name=one", "--initial-cluster=two=z"], command and command[:2])
