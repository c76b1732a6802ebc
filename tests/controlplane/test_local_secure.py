"""Access to a local cluster: every user of the machine reaches loopback, so addresses alone protect nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_kit import COMPONENTS, eventually

from kubewright.host.network.listeners import parse_listeners
from kubewright.local import daemon_process, record
from kubewright.local.cluster.cluster import LocalCluster
from kubewright.local.record import LocalMachineRecord

REFERENCE = Path(__file__).parents[1] / "data" / "reference" / "cases" / "ipv4-minimal" / "files.txt"


@pytest.fixture(scope="module")
def machine(kubewright_cluster: LocalCluster) -> LocalMachineRecord:
    found = record.load(kubewright_cluster.paths.record)
    assert found is not None
    return found.control_plane


@pytest.fixture(scope="module")
def directory(kubewright_cluster: LocalCluster, machine: LocalMachineRecord) -> Path:
    return kubewright_cluster.paths.machine(machine.name)


def _inodes(pid: int) -> Iterator[int]:
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink())):
                yield int(found[1])


def test_every_listener_is_on_the_clusters_own_address(kubewright_cluster: LocalCluster, machine: LocalMachineRecord) -> None:
    inodes = {inode for one in daemon_process.marked_processes(kubewright_cluster.paths) for inode in _inodes(one.pid)}
    found = [
        one
        for name in ("tcp", "tcp6")
        for one in parse_listeners(Path(f"/proc/net/{name}").read_text().splitlines())
        if one.inode in inodes
    ]
    assert {one.address for one in found} == {machine.address}
    assert sorted(one.port for one in found) == sorted(machine.ports.values())
    assert machine.address.startswith("127.")
    datagrams = [line.split() for name in ("udp", "udp6", "raw", "raw6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    assert [fields[1] for fields in datagrams if int(fields[9]) in inodes] == []


def test_modes_are_those_of_kubeadm_below_a_private_directory(kubewright_cluster: LocalCluster, directory: Path) -> None:
    assert kubewright_cluster.paths.root.stat().st_mode & 0o7777 == 0o700
    paths = {"etc/kubernetes": "kubernetes", "var/lib/etcd": "etcd", "var/lib/kubelet": "kubelet"}
    compared = 0
    for row in REFERENCE.read_text().splitlines():
        kind, mode, path = row.split()
        prefix = next(prefix for prefix in paths if path.startswith(prefix))
        found = directory / path.replace(prefix, paths[prefix], 1)
        assert (found.is_dir(), f"{found.stat().st_mode & 0o7777:o}") == (kind == "d", mode), path
        compared += 1
    assert compared == 40


def test_private_keys_are_in_private_files(kubewright_cluster: LocalCluster) -> None:
    root = kubewright_cluster.paths.root
    files = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and "/etcd/member/" not in str(path)]
    secret = [path for path in files if re.search(rb"PRIVATE KEY-----|client-key-data", _content(path))]
    assert len(secret) >= 17
    assert [path for path in secret if path.stat().st_mode & 0o077] == []


def _content(path: Path) -> bytes:
    with contextlib.suppress(FileNotFoundError):  # a log is rotated, and records are replaced
        return path.read_bytes()
    return b""


TOKEN = re.compile(rb"(?<![a-z0-9.])[a-z0-9]{6}\.[a-z0-9]{16}(?![a-z0-9.])")


def test_no_token_and_no_key_is_in_logs_arguments_or_environments(kubewright_cluster: LocalCluster) -> None:
    paths = kubewright_cluster.paths
    texts = {str(path): _content(path) for path in paths.root.rglob("*") if path.is_file() and path.suffix in {".log", ".json", ".jsonl"}}
    for one in daemon_process.marked_processes(paths):
        texts |= {f"{one.pid}/{name}": Path(f"/proc/{one.pid}/{name}").read_bytes() for name in ("cmdline", "environ")}
    assert len(texts) >= 5 * 2 + len(COMPONENTS)
    assert {name: TOKEN.findall(text) for name, text in texts.items() if TOKEN.search(text)} == {}
    assert [name for name, text in texts.items() if b"PRIVATE KEY" in text] == []


def _get(address: str, port: int, path: str, *, certificate: tuple[Path, Path] | None = None, secure: bool = True) -> tuple[int, bytes]:
    """Send a request as any user of this machine can; status 0 if the server closes the connection."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(*certificate)
    made = http.client.HTTPSConnection(address, port, timeout=600, context=context) if secure else http.client.HTTPConnection(address, port)
    with contextlib.closing(made) as connection:
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 0, b""


@pytest.mark.parametrize("port", ["etcd_client", "etcd_peer", "etcd_metrics"])
def test_etcd_requires_a_client_certificate(machine: LocalMachineRecord, directory: Path, port: str) -> None:
    pki = directory / "kubernetes" / "pki"
    number = machine.ports[port]
    for path in ("/health", "/metrics", "/version", "/readyz"):
        assert _get(machine.address, number, path) == (0, b"")
        foreign = (pki / "apiserver-kubelet-client.crt", pki / "apiserver-kubelet-client.key")
        assert _get(machine.address, number, path, certificate=foreign) == (0, b""), "of another authority"
        assert _get(machine.address, number, path, secure=False)[0] in {0, 400}
    if port != "etcd_peer":
        mine = (pki / "etcd" / "healthcheck-client.crt", pki / "etcd" / "healthcheck-client.key")
        eventually(lambda: _get(machine.address, number, "/health", certificate=mine)[0] == 200, "etcd to be well")


@pytest.mark.parametrize("port", ["controller_manager", "scheduler"])
def test_controllers_show_anonymous_clients_only_their_health(machine: LocalMachineRecord, port: str) -> None:
    number = machine.ports[port]
    assert _get(machine.address, number, "/healthz") == (200, b"ok")
    for path in ("/metrics", "/configz", "/debug/pprof/", "/statusz", "/flagz"):
        assert _get(machine.address, number, path)[0] in {401, 403}, path
    assert _get(machine.address, number, "/metrics", secure=False)[0] in {0, 400}


def test_the_kubelet_api_refuses_anonymous_clients(machine: LocalMachineRecord, directory: Path) -> None:
    number, pki = machine.ports["kubelet"], directory / "kubernetes" / "pki"
    paths = ["/pods", "/metrics", "/stats/summary", "/configz", f"/containerLogs/kube-system/etcd-{machine.name}/etcd", "/logs/"]
    assert {_get(machine.address, number, path)[0] for path in paths} <= {401, 404}
    assert _get(machine.address, number, paths[4])[0] == 401
    node = directory / "kubelet" / "pki" / "kubelet-client-current.pem"
    assert _get(machine.address, number, paths[4], certificate=(node, node))[0] == 403, "a node may not read logs"
    server = (pki / "apiserver-kubelet-client.crt", pki / "apiserver-kubelet-client.key")
    log = f"{paths[4]}?tailLines=1"
    eventually(lambda: _get(machine.address, number, log, certificate=server)[0] == 200, "etcd's log: its mirror pod comes after the Node")
    assert _get(machine.address, machine.ports["kubelet_health"], "/healthz", secure=False) == (200, b"ok")
    assert _get(machine.address, machine.ports["kubelet_health"], "/metrics", secure=False)[0] == 404


OPEN = frozenset({"/healthz", "/livez", "/readyz", "/version", "/version/"})
UNHEALTHY = 500
"""A health path may fail for a moment while etcd is busy; the request is repeated, because this says nothing about permissions."""
CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


def test_the_api_server_shows_anonymous_clients_only_health_version_and_cluster_info(
    kubewright_cluster: LocalCluster, machine: LocalMachineRecord
) -> None:
    port = machine.ports["api_server"]
    with contextlib.closing(kubewright_cluster.client()) as admin:
        known = json.loads(admin.raw("GET", "/").body)["paths"]
    resources = ["/api/v1/nodes", "/api/v1/secrets", "/api/v1/namespaces", "/apis/apps/v1/deployments", "/logs/", "/debug/pprof/"]
    paths = [*known, *resources, CLUSTER_INFO.rpartition("/")[0], "/version"]
    assert len(paths) >= 80
    answers: dict[str, int] = {}

    def told(path: str) -> bool:
        answers[path] = _get(machine.address, port, path)[0]
        return answers[path] != UNHEALTHY

    for path in paths:
        eventually(lambda path=path: told(path), f"{path} to be well")
    assert {path for path, code in answers.items() if code == 200} == OPEN & answers.keys()
    assert {path: code for path, code in answers.items() if path not in OPEN and code not in {401, 403}} == {}
    code, body = _get(machine.address, port, CLUSTER_INFO)
    assert (code, max(json.loads(body)["data"])) == (200, "kubeconfig")


def test_only_the_user_can_use_the_control_socket(kubewright_cluster: LocalCluster) -> None:
    path = kubewright_cluster.paths.socket
    assert path.stat().st_mode & 0o077 == 0
    assert path.is_socket()
    with pytest.raises(OSError, match=r"wrong type"), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        datagrams.connect(str(path))
