"""`agent run` as a process with a real API server: starting and stopping it, its output, and a connection to the API server that can be cut."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import own_network
import pytest
from agent_cluster import AgentCluster
from testbed.configuration import SHARED_DISK

import certificate_summaries as summaries
from kubewright.agent.certificates.store import FileCredentialStore
from kubewright.agent.status.setters import find, is_true
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.apis.kubeconfig import BearerToken, kubeconfig_document
from kubewright.base import yaml
from kubewright.base.clock import SystemClock, rfc3339
from kubewright.base.errors import NotFound
from kubewright.base.randomness import SystemRandom
from kubewright.host.network.interfaces import RealNetwork
from kubewright.kube.client import KubeClient
from kubewright.kube.credentials import Access
from kubewright.kube.resources import CERTIFICATE_SIGNING_REQUEST, NODE, SECRET
from kubewright.pki.certificates import Pair, pair_of
from kubewright.pki.requests import csr
from kubewright.tokens import secrets, strings
from kubewright.tokens.strings import BootstrapTokenString
from loopback import free_address

ADDRESS = "10.88.0.11"
GRACE = "12s"
DROP_IN = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
nodeLeaseDurationSeconds: 8
"""
"""Short enough that a silent node is noticed soon."""
MANUAL = "system:bootstrappers:manual"
"""A group whose requests are not approved automatically."""


class Joinable(Protocol):
    """A cluster that agents can join."""

    @property
    def url(self) -> str: ...
    @property
    def ca_pem(self) -> bytes: ...


class Agent:
    """One `agent run` that a test can start and stop repeatedly; all its files are below one directory."""

    def __init__(
        self, place: Path, cluster: Joinable, name: str, token: BootstrapTokenString, *, server: str = "", settings: str = DROP_IN
    ) -> None:
        """Keep the arguments. `server` is the URL of the API server in its kubeconfig, `settings` its KubeletConfiguration."""
        self.place, self.name, self._cluster = place, name, cluster
        self._server = server or cluster.url
        self._process: subprocess.Popen[bytes] | None = None
        self.health = free_address((10248, 10250))
        self.invite(token)
        (place / "conf.d").mkdir()
        (place / "conf.d" / "00-disk.conf").write_text(
            f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{SHARED_DISK}"
        )
        (place / "conf.d" / "10-lease.conf").write_text(settings)

    def invite(self, token: BootstrapTokenString) -> None:
        """Write a token into the file of bootstrap credentials."""
        document = kubeconfig_document(
            server=self._server, cluster_name="c", user="u", credentials=BearerToken(token=token.text), ca_pem=self._cluster.ca_pem
        )
        (self.place / "bootstrap.conf").write_text(yaml.dump(document))
        (self.place / "bootstrap.conf").chmod(0o600)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def keep(self, pair: Pair) -> None:
        """Install a certificate where the agent would have stored its own."""
        store = FileCredentialStore(self.place / "root" / "pki", self.place / "kubelet.conf", clock=SystemClock())
        (self.place / "root" / "pki").mkdir(parents=True, exist_ok=True)
        store.keep_pair(pair)
        store.keep_cluster(Access(server=self._server, ca_pem=self._cluster.ca_pem))

    def start(self, *flags: str, env: Mapping[str, str] | None = None) -> None:
        argv = [
            *(sys.executable, "-m", "kubewright", "agent", "run", f"--kubeconfig={self.place / 'kubelet.conf'}"),
            *(f"--bootstrap-kubeconfig={self.place / 'bootstrap.conf'}", f"--root-dir={self.place / 'root'}"),
            f"--config-dir={self.place / 'conf.d'}",
            *(f"--hostname-override={self.name}", f"--healthz-bind-address={self.health}", f"--address={self.health}"),
            *("--rotate-certificates", *flags),
        ]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **(env or {})})

    def send(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self._process is not None
        process, self._process = self._process, None
        process.send_signal(number)
        return process.wait(600)

    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "kubewright", "agent", *words, f"--root-dir={self.place / 'root'}"]
        return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=900)

    def status(self) -> tuple[int, dict[str, Any]]:
        done = self.call("status", "-o", "json")
        return done.returncode, json.loads(done.stdout) if done.stdout else {}

    def log(self) -> str:
        return (self.place / "log").read_text()

    def stop(self) -> None:
        if self._process is not None:
            self.end(signal.SIGKILL)


def eventually(look: Callable[[], Any], what: str, agent: Agent, *, within: float = 600) -> Any:
    """Wait until a look finds something, and return that. It looks less and less often, because many looks start a program."""
    end, pause = time.monotonic() + within, 0.05
    while time.monotonic() < end:
        with suppress(NotFound):
            if found := look():
                return found
        time.sleep(pause)
        pause = min(1.2 * pause, 0.5)
    pytest.fail(f"{what} did not come:\n{agent.log()[-3000:]}")


def usable_address() -> str:
    """Return an address that a node can have: one of our own network, or of the host's network."""
    if os.geteuid() == 0:
        own_network.add_address(ADDRESS)
        return ADDRESS
    return RealNetwork().default_address(family=4) or ""


def requests_of(api: KubeClient, name: str) -> list[dict[str, Any]]:
    """The requests for a node's certificate, from any sender."""
    rows = api.list(CERTIFICATE_SIGNING_REQUEST)
    asked = [summaries.of_request(base64.b64decode(row["spec"]["request"])).common_name for row in rows]
    return [row for row, user in zip(rows, asked, strict=True) if user == csr.node_user(name)]


def ready_node(api: KubeClient, agent: Agent) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        node = api.get(NODE, agent.name)
        return node if is_true(node, "Ready") else None

    found: dict[str, Any] = eventually(look, "a node that is ready", agent)
    return found


def manual_token(api: KubeClient, cluster: AgentCluster) -> BootstrapTokenString:
    """Create a token whose requests are not approved automatically."""
    found = strings.generate(SystemRandom())
    row = BootstrapToken(token=found.text, groups=[MANUAL], usages=["authentication"])
    api.create(secrets.secret_object(row, clock=SystemClock()))
    cluster.kubectl("create", "clusterrolebinding", "manual", "--clusterrole=system:node-bootstrapper", f"--group={MANUAL}", check=False)
    return found


def expire(api: KubeClient, token: BootstrapTokenString) -> None:
    """Make a token that expired a second ago."""
    secret = api.get(SECRET, f"bootstrap-token-{token.id}", "kube-system")
    moment = rfc3339(datetime.now(UTC) - timedelta(seconds=1))
    api.update({**secret, "data": {**secret["data"], "expiration": base64.b64encode(moment.encode()).decode()}})


def issued_pair(cluster: AgentCluster, name: str, *, seconds: float) -> Pair:
    """Issue a certificate for a node that expires this soon."""
    now = datetime.now(UTC)
    leaf = cluster.authority.issue_cert(
        "node.example",
        common_name=csr.node_user(name),
        organization_name=csr.NODES,
        not_before=now,
        not_after=now + timedelta(seconds=seconds),
    )
    pem = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
    return pair_of(pem, leaf.private_key_pem.bytes(), source="the test")


def condition(api: KubeClient, name: str, kind: str = "Ready") -> dict[str, Any]:
    with suppress(NotFound):
        return find(api.get(NODE, name)["status"]["conditions"], kind) or {}
    return {}
