"""A local cluster in which kubewright's own controllers approve and sign (`up --controllers kubewright`), for agents to join."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agent_cluster import BOOTSTRAPPERS
from local_kit import Bench, eventually, program

from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.clock import SystemClock
from kubewright.base.randomness import SystemRandom
from kubewright.kube.client import KubeClient
from kubewright.tokens import secrets, strings
from kubewright.tokens.strings import BootstrapTokenString

CONFIG: Final = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
controllerManager:
  extraArgs:
  - {{name: cluster-signing-duration, value: {duration}}}
"""
_SERVER: Final = "kube-apiserver"


class LocalAgentCluster:
    """The cluster, and what is needed to join it, with the same attributes as `AgentCluster`."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        access = bench.cluster().access
        assert access.ca_pem is not None
        self.url, self.ca_pem = access.server, access.ca_pem
        self.kubeconfig = bench.cluster().kubeconfig
        self._manifest = next(bench.paths().machines.glob(f"*/kubernetes/manifests/{_SERVER}.yaml"))
        self._kept = bench.root / self._manifest.name

    def token(self, group: str = BOOTSTRAPPERS) -> BootstrapTokenString:
        """Make a token."""
        found = strings.generate(SystemRandom())
        with self.bench.client() as api:
            row = BootstrapToken(token=found.text, groups=[group], usages=["authentication"])
            api.create(secrets.secret_object(row, clock=SystemClock()))
        return found

    def kubectl(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        argv = [program("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        return subprocess.run(argv, check=check, capture_output=True, text=True, timeout=900)

    def client(self) -> KubeClient:
        """Make a client of its administrator."""
        return KubeClient(self.bench.cluster().access, timeout=600)

    def kill_server(self) -> None:
        """Kill the API server, and keep its supervisor from starting it again."""
        pid = self.bench.components()[_SERVER]["pid"]
        self._manifest.rename(self._kept)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "the API server to end")

    def revive_server(self) -> None:
        """Let its supervisor start it."""
        self._kept.rename(self._manifest)


@contextlib.contextmanager
def local_agent_cluster(*, signing_duration: str) -> Iterator[LocalAgentCluster]:
    """Such a cluster, whose certificates have this lifetime."""
    made = Bench()
    try:
        made.up(nodes=0, controllers="kubewright", config=CONFIG.format(duration=signing_duration))
        yield LocalAgentCluster(made)
    finally:
        made.close()
