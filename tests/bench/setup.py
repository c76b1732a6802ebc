"""What every benchmark needs: the installed program, the component binaries, and a working directory."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.bench.running import BenchmarkFailed, Ended, Running, timed

from kubewright import binaries
from kubewright.base.level import KUBERNETES

COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

ADMIN: Final = "super-admin.conf"
"""The administrator whom every API server authorizes from the beginning.

Admin.conf has no permissions before `up` has bound its group to a role, and none at all in a cluster that a script
started.
"""

_UNUSUAL: Final = {"PYTHONDONTWRITEBYTECODE"}
"""Variables that some build machines set and users do not: without byte code every command compiles its modules again (0.2 s)."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One run of the benchmarks. `command` is the command line of kubewright, `say` reports progress."""

    work: Path
    command: tuple[str, ...]
    programs: Mapping[str, Path]
    environment: Mapping[str, str]
    say: Callable[[str], None]

    def argv(self, *words: str) -> tuple[str, ...]:
        """Return the command line of a kubewright command."""
        return (*self.command, *words)

    def start(self, *words: str) -> Running:
        """Start a kubewright command."""
        return Running(self.argv(*words), env=self.environment, log=self.work / f"{words[0]}.log")

    def run(self, *words: str) -> Ended:
        """Run a kubewright command to its end. Raises BenchmarkFailed if it fails."""
        return timed(self.argv(*words), env=self.environment, log=self.work / f"{words[0]}.log")


def make(work: Path, *, say: Callable[[str], None] = lambda _: None) -> Setup:
    """Find everything. Raises BenchmarkFailed, naming what is missing."""
    located = binaries.locate((*COMPONENTS, "kubeadm", "etcdctl"), version=KUBERNETES, sources=binaries.sources_from(os.environ))
    missing = [name for name in COMPONENTS if name not in located.found]
    if missing:
        raise BenchmarkFailed(f"{', '.join(missing)} not found: run `kubewright binaries fetch` first")
    return Setup(
        work=work,
        command=command(),
        programs={name: binary.path for name, binary in located.found.items()},
        environment={name: value for name, value in os.environ.items() if name not in _UNUSUAL},
        say=say,
    )


def installed() -> Path | None:
    """Return the console script next to the running interpreter, if kubewright is installed there."""
    script = Path(sys.executable).parent / "kubewright"
    return script if script.exists() else None


def command() -> tuple[str, ...]:
    """Return the command of kubewright: its console script, or the sources if it is not installed."""
    script = installed()
    return (str(script),) if script is not None else (sys.executable, "-m", "kubewright")


def kubernetes_directory(root: Path) -> Path:
    """Return the directory with the kubeconfigs, manifests and PKI of a cluster's control plane. `root` is the cluster's state directory."""
    return root / "machines" / f"{root.name}-control-plane" / "kubernetes"


def machine() -> dict[str, Any]:
    """Describe this machine, as far as it matters for the figures."""
    with Path("/proc/meminfo").open(encoding="ascii") as lines:
        memory = int(next(lines).split()[1]) // 1024
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memoryMiB": memory,
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "python": platform.python_version(),
        "kubernetes": KUBERNETES,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return ""
