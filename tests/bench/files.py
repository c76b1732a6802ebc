"""Commands that read or write files, compared with real kubeadm's: `config validate`, `config migrate`, and two of `init phase`.

Whole processes in alternating pairs, as for the cheap commands. The phases write to /etc/kubernetes, so both programs
run in one mount namespace in which that directory is empty before each run: `python -m tests.bench.files OURS THEIRS
CONFIG ROUNDS` is that inner part. It prints one map per round.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.cheap import script
from tests.bench.model import Figure, Result, figure, ratios
from tests.bench.results import result
from tests.bench.running import BenchmarkFailed
from tests.bench.setup import Setup

COMMANDS: Final = {
    "validate": ("config", "validate", "--config"),
    "migrate": ("config", "migrate", "--old-config"),
    "controlPlane": ("init", "phase", "control-plane", "all", "--config"),
    "certs": ("init", "phase", "certs", "all", "--config"),
}
TARGETS: Final = {"validate": 3.0, "migrate": 3.0, "controlPlane": 3.0, "certs": 0.6}

CONFIG: Final = """\
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint:
  advertiseAddress: 10.98.0.11
nodeRegistration:
  name: node1
  criSocket: unix:///var/run/containerd/containerd.sock
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking:
  podSubnet: 10.244.0.0/16
apiServer:
  certSANs:
  - api.example.com
  extraArgs:
  - name: audit-log-maxage
    value: "7"
"""
"""The version is given, because a label would be looked up on the network. Keys are RSA-2048, kubeadm's default."""

_KUBERNETES: Final = Path("/etc/kubernetes")
_PRIVATE: Final = """\
mkdir "$1" && mount --rbind /etc "$1" && mount -t tmpfs none /etc || exit 1
for entry in "$1"/* "$1"/.[!.]*; do
  name=${entry##*/}
  [ "$name" = kubernetes ] || ln -s "$entry" "/etc/$name" || exit 1
done
shift
exec "$@"
"""
"""An /etc with everything in it but kubernetes. Ordinary users cannot create a directory in the real one to mount something there."""


def run(setup: Setup, rounds: int) -> Result:
    """Measure this many pairs of each command."""
    if "kubeadm" not in setup.programs:
        raise BenchmarkFailed("kubeadm not found: run `kubewright binaries fetch kubeadm` first")
    config = setup.work / "kubeadm.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    inner = [sys.executable, "-m", "tests.bench.files", str(script(setup)), str(setup.programs["kubeadm"]), str(config), str(rounds)]
    namespace = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    environment = {**setup.environment, "PYTHONDONTWRITEBYTECODE": "", "XDG_STATE_HOME": str(setup.work / "state")}
    done = subprocess.run(
        [*namespace, "sh", "-c", _PRIVATE, "sh", str(setup.work / "etc"), *inner],
        cwd=Path(__file__).parents[2],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode != 0:
        raise BenchmarkFailed(f"the commands in their own mount namespace: exit code {done.returncode}")
    found = _result(json.loads(done.stdout))
    setup.say(f"files: {rounds} pairs each, " + ", ".join(f"{one.name} {one.value:.2f} x" for one in found.figures if one.target))
    return found


def _result(rows: Sequence[dict[str, Any]]) -> Result:
    figures: list[Figure] = []
    for key, words in COMMANDS.items():
        text = " ".join(word for word in words if not word.startswith("--"))
        figures += [
            ratios(f"`{text}`, relative to kubeadm", rows, f"{key}Kubewright", f"{key}Kubeadm", target=TARGETS[key]),
            figure(f"`kubewright {text}`", rows, f"{key}Kubewright"),
            figure(f"`kubeadm {text}`", rows, f"{key}Kubeadm"),
        ]
    return result("files", figures, rows)


def measure(ours: str, theirs: str, config: str, rounds: int) -> list[dict[str, float]]:
    """Time all commands; each starts with an empty directory. The first round warms up and does not count."""
    found = []
    for number in range(-1, rounds):
        row = {}
        for key, words in COMMANDS.items():
            pair = [(f"{key}Kubewright", ours), (f"{key}Kubeadm", theirs)]
            for name, program in pair if number % 2 == 0 else reversed(pair):
                shutil.rmtree(_KUBERNETES, ignore_errors=True)
                row[name] = _time([program, *words, config])
        found.append(row)
    return found[1:]


def _time(argv: Sequence[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))))
