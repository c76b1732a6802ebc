"""Real etcd members as processes, with TLS and client certificates like kubeadm's, on their own loopback addresses."""

from __future__ import annotations

import ctypes
import signal
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from local_kit import program

from kubewright.etcd.api import Credentials
from kubewright.etcd.client import EtcdClient
from loopback import free_address

PORTS = (2379, 2380)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


@dataclass
class Cluster:
    """Members by name; all share one certificate."""

    root: Path
    authority: trustme.CA = field(default_factory=trustme.CA)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.authority.cert_pem.write_to_path(str(self.root / "ca.crt"))

    def address(self, name: str) -> str:
        if name not in self.addresses:
            self.addresses[name] = free_address(PORTS)
            leaf = self.authority.issue_cert(self.addresses[name], "127.0.0.1")
            (self.root / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
            leaf.private_key_pem.write_to_path(str(self.root / f"{name}.key"))
        return self.addresses[name]

    def peer(self, name: str) -> str:
        return f"https://{self.address(name)}:2380"

    def url(self, name: str) -> str:
        return f"https://{self.address(name)}:2379"

    def start(self, name: str, *, cluster: str = "") -> None:
        """Start a member, by default as a new cluster of one."""
        secured = self._secured(name)
        self._run(name, self.url(name), self.peer(name), {"initial-cluster": cluster, **secured} if cluster else secured)

    def _secured(self, name: str) -> dict[str, object]:
        pair = {"cert-file": f"{name}.crt", "key-file": f"{name}.key", "trusted-ca-file": "ca.crt"}
        files = {prefix + flag: self.root / file for prefix in ("", "peer-") for flag, file in pair.items()}
        return {"client-cert-auth": "true", "peer-client-cert-auth": "true", **files}

    def start_together(self, *names: str) -> None:
        """Start a new cluster of several members."""
        cluster = ",".join(f"{name}={self.peer(name)}" for name in names)
        for name in names:
            self._run(
                name, self.url(name), self.peer(name), {**self._secured(name), "initial-cluster": cluster, "initial-cluster-state": "new"}
            )

    def write_client(self, pki: Path) -> None:
        """Write a client certificate under the names that it has in kubeadm's certificate directory."""
        (pki / "etcd").mkdir(parents=True)
        leaf = self.authority.issue_cert("client.example", common_name="kube-etcd-healthcheck-client")
        self.authority.cert_pem.write_to_path(str(pki / "etcd/ca.crt"))
        (pki / "etcd/healthcheck-client.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(str(pki / "etcd/healthcheck-client.key"))

    def start_plain(self, name: str) -> str:
        """Start a cluster of one that uses plain HTTP, and return its client URL."""
        client, peer = (f"http://{self.address(name)}:{port}" for port in PORTS)
        self._run(name, client, peer, {})
        return client

    def _run(self, name: str, client: str, peer: str, more: Mapping[str, object]) -> None:
        flags: dict[str, object] = {
            "name": name,
            "data-dir": self.root / f"{name}.data",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"{name}={peer}",
            "initial-cluster-state": "existing" if "initial-cluster" in more else "new",
            "heartbeat-interval": 100,
            "election-timeout": 1000,
            "unsafe-no-fsync": "true",
            **more,
        }
        argv = [program("etcd"), *(f"--{flag}={value}" for flag, value in flags.items())]
        with (self.root / f"{name}.log").open("ab") as log:
            # the members live as long as a module; no thread forks in the meantime
            self.processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, preexec_fn=_die_with_parent)  # noqa: PLW1509

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def client(self, *names: str, timeout: float = 60.0) -> EtcdClient:
        leaf = self.authority.issue_cert("client.example", common_name="kube-etcd-healthcheck-client")
        chain = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        credentials = Credentials(ca=self.authority.cert_pem.bytes(), certificate=chain, key=leaf.private_key_pem.bytes())
        return EtcdClient([self.url(name) for name in names], credentials=credentials, timeout=timeout)

    def alarm(self, name: str, *, action: str, member: int, kind: str) -> None:
        """Raise or disarm the alarm of a member, which etcd does when it runs out of space, and `etcdctl alarm disarm`."""
        body = {"action": action, "memberID": str(member), "alarm": kind}
        with closing(self.client(name)) as client:
            client._ask(self.url(name), f"{action} {kind}", "/v3/maintenance/alarm", body, dict)

    def stop(self) -> None:
        for name in list(self.processes):
            self.kill(name)
