"""A real kube-apiserver with etcd, as processes that end with the tests."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from local_kit import program

from kubewright.base.errors import APIError
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access, ClientCertificate
from loopback import free_address


@dataclass(frozen=True)
class RunningServer:
    """The API server of a test session: its address, its CA, and certificates for any user that a test wants to be."""

    url: str
    ca_pem: bytes
    authority: trustme.CA

    def identity(self, name: str, *groups: str) -> ClientCertificate:
        # Without a name, trustme writes an empty critical extension, which Go refuses.
        leaf = self.authority.issue_cert("client.example", common_name=name, organization_name=groups[0] if groups else None)
        return ClientCertificate(cert_pem=b"".join(blob.bytes() for blob in leaf.cert_chain_pems), key_pem=leaf.private_key_pem.bytes())

    def access(self, name: str = "kubernetes-admin", *groups: str) -> Access:
        return Access(server=self.url, ca_pem=self.ca_pem, identity=self.identity(name, *(groups or ("system:masters",))))


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@contextlib.contextmanager
def _process(log: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as stream:
        process = subprocess.Popen(argv, stdout=stream, stderr=stream, preexec_fn=_die_with_parent)  # noqa: PLW1509 - no threads yet
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(600)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(what: str, condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"{what} ended:\n" + "\n".join(log.read_text().splitlines()[-15:]))
        if condition():
            return
        time.sleep(0.05)
    pytest.fail(f"{what} did not come up:\n" + "\n".join(log.read_text().splitlines()[-15:]))


@contextlib.contextmanager
def api_server(place: Path, *arguments: str) -> Iterator[RunningServer]:
    """Run etcd and kube-apiserver with their files below a directory, and with more arguments of the latter."""
    etcd, server = program("etcd"), program("kube-apiserver")
    address, authority = free_address((2379, 2380, 6443)), trustme.CA()
    leaf = authority.issue_cert(address, "127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc")
    leaf.private_key_and_cert_chain_pem.write_to_path(str(place / "server.pem"))
    leaf.private_key_pem.write_to_path(str(place / "sa.key"))
    authority.cert_pem.write_to_path(str(place / "ca.crt"))
    etcd_url, pair = f"http://{address}:2379", str(place / "server.pem")
    running = RunningServer(f"https://{address}:6443", authority.cert_pem.bytes(), authority)
    with (
        _process(
            place / "etcd.log",
            *(etcd, f"--data-dir={place / 'etcd'}", "--name=test", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={etcd_url}", f"--advertise-client-urls={etcd_url}"),
            *(f"--listen-peer-urls=http://{address}:2380", f"--initial-advertise-peer-urls=http://{address}:2380"),
            *(f"--initial-cluster=test=http://{address}:2380", "--heartbeat-interval=10", "--election-timeout=100"),
        ),
        _process(
            place / "apiserver.log",
            *(server, f"--etcd-servers={etcd_url}", f"--tls-cert-file={pair}", f"--tls-private-key-file={pair}"),
            *(f"--client-ca-file={place / 'ca.crt'}", "--authorization-mode=Node,RBAC", "--enable-bootstrap-token-auth"),
            *("--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={place / 'sa.key'}"),
            *(f"--service-account-signing-key-file={place / 'sa.key'}", "--service-cluster-ip-range=10.96.0.0/24"),
            *(f"--bind-address={address}", f"--advertise-address={address}", "--endpoint-reconciler-type=none"),
            *("--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", *arguments),
        ) as process,
    ):
        client = KubeClient(running.access(), timeout=600)

        def ready() -> bool:
            with contextlib.suppress(APIError):
                # the server creates its namespaces with a delay
                return all(client.raw("GET", path).status == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
            return False

        _wait("kube-apiserver", ready, process, place / "apiserver.log")
        client.close()
        yield running
