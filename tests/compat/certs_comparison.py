"""Real kubeadm and kubewright on copies of the same machine: kubeadm changes its root, kubewright gets the directory as an argument."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from kubewright import binaries
from kubewright.apis.machine import Layout
from kubewright.base.level import KUBERNETES
from kubewright.cli.handlers import machine as cli_machine
from kubewright.cli.main import main
from kubewright.host.real import RealHost

INIT = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 10.98.0.11}
nodeRegistration: {name: node1, criSocket: unix:///var/run/containerd/containerd.sock}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
"""
DEFAULT = "encryptionAlgorithm: ECDSA-P256\n"


@dataclass(frozen=True)
class Run:
    code: int
    out: str


def find_kubeadm(version: str = KUBERNETES) -> str:
    """The kubeadm to compare with: from KUBEWRIGHT_BINARIES_DIR, which has our own version, or from the cache."""
    environment = {name: value for name, value in os.environ.items() if version == KUBERNETES or name != "KUBEWRIGHT_BINARIES_DIR"}
    found = binaries.locate(("kubeadm",), version=version, sources=binaries.sources_from(environment)).found
    if "kubeadm" not in found:
        pytest.skip("no kubeadm: run `kubewright binaries fetch kubeadm`, or set KUBEWRIGHT_BINARIES_DIR")
    return str(found["kubeadm"].path)


@dataclass(frozen=True)
class Pair:
    """Two copies of one machine."""

    program: str
    ours: Path
    theirs: Path

    @classmethod
    def make(cls, program: str, place: Path, cluster: str) -> Pair:
        """Let kubeadm create a machine, and copy it."""
        pair = cls(program, place / "ours", place / "theirs")
        (pair.theirs / "etc" / "kubernetes").mkdir(parents=True)
        (pair.theirs / "tmp").mkdir()
        (pair.theirs / "kubeadm.yaml").write_text(INIT + cluster)
        for phase in ("certs", "kubeconfig"):
            assert pair.kubeadm("init", "phase", phase, "all", "--config", "/kubeadm.yaml").code == 0
        shutil.copytree(pair.theirs, pair.ours)
        return pair

    def copy(self, place: Path) -> Pair:
        """Return two more copies."""
        pair = Pair(self.program, place / "ours", place / "theirs")
        for root in (pair.ours, pair.theirs):
            shutil.copytree(self.theirs, root)
        return pair

    def kubeadm(self, *argv: str) -> Run:
        """Run kubeadm with its copy as root directory; ordinary users need a user namespace for that."""
        inside = [] if os.geteuid() == 0 else ["unshare", "-r"]
        words = [*inside, self.program, f"--rootfs={self.theirs}", *argv]
        done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=600)
        return Run(done.returncode, done.stdout)

    def kubewright(self, *argv: str) -> Run:
        """Run ours on its copy; paths in the arguments begin with `/`."""
        root = PurePosixPath(self.ours)
        layout = Layout(
            kubernetes=root / "etc/kubernetes",
            pki=root / "etc/kubernetes/pki",
            kubelet=root / "var/lib/kubelet",
            etcd_data=root / "var/lib/etcd",
            run=root / "run",
        )
        out, err = io.StringIO(), io.StringIO()
        words = [f"{root}{word}" if word.startswith("/") else word for word in argv]
        with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            patch.setattr(cli_machine, "host", lambda *_, **__: RealHost(layout=layout))
            patch.setenv("XDG_STATE_HOME", str(root / "state"))
            code = main(words)
        return Run(code, out.getvalue())

    def both(self, *argv: str) -> tuple[Run, Run]:
        """Run the same command on both."""
        return self.kubewright(*argv), self.kubeadm(*argv)

    def timed(self, *argv: str) -> tuple[Run, Run, float]:
        """Run the same command on both; returns also the seconds that this took, by which times in their output may differ."""
        began = time.monotonic()
        ours, theirs = self.both(*argv)
        return ours, theirs, time.monotonic() - began

    def remove(self, name: str) -> None:
        """Remove a file of /etc/kubernetes from both."""
        for root in (self.ours, self.theirs):
            (root / "etc/kubernetes" / name).unlink()

    def write(self, name: str, text: str) -> None:
        """Write a file into both roots."""
        for root in (self.ours, self.theirs):
            (root / name).write_text(text)
