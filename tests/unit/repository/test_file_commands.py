"""Commands that read or write files import only what their file needs: these packages are listed here, and adding to the list is a decision."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import kubewright

SOURCE = Path(kubewright.__file__).parents[1]

OTHERS = frozenset({"cython_runtime", "yaml"})
"""Third-party packages, and what PyYAML's C module creates."""
PACKAGES = {
    "config validate": {"apis", "base", "cli", "lifecycle"},
    "config migrate": {"apis", "base", "cli", "lifecycle"},
    "init phase control-plane all": {"apis", "base", "cli", "host", "lifecycle", "manifests", "pki", "workflow"},
}
"""Our own packages."""
HEAVY = frozenset(
    {"asyncio", "concurrent", "dataclasses", "difflib", "email", "hashlib", "http", "inspect", "logging", "ssl", "subprocess"}
)
"""Modules of the standard library that take longer than one of ours."""

CONFIG = """\
apiVersion: kubeadm.k8s.io/{version}
kind: InitConfiguration
localAPIEndpoint: {{advertiseAddress: 10.98.0.11}}
nodeRegistration: {{name: node1, criSocket: unix:///run/containerd/containerd.sock}}
---
apiVersion: kubeadm.k8s.io/{version}
kind: ClusterConfiguration
kubernetesVersion: v1.36.3
networking: {{podSubnet: 10.244.0.0/16}}
"""
PROGRAM = """
import sys
from pathlib import PurePosixPath
before = set(sys.modules)
from kubewright.cli.main import main
if "phase" in sys.argv:
    from kubewright.apis.machine import Layout
    from kubewright.cli.handlers import machine
    from kubewright.host.real import RealHost
    names = ("kubernetes", "pki", "kubelet", "etcd_data", "run")
    layout = Layout(**{name: PurePosixPath(sys.argv[1]) / name for name in names})
    machine.host = lambda _, **__: RealHost(layout=layout)
code = main(sys.argv[2:])
sys.stderr.write("LOADED " + " ".join(sorted(set(sys.modules) - before)))
sys.exit(code)
"""


@pytest.mark.parametrize("command", PACKAGES)
def test_a_file_command_loads_only_what_its_file_needs(command, tmp_path):
    config = tmp_path / "kubeadm.yaml"
    config.write_text(CONFIG.format(version="v1beta3" if "migrate" in command else "v1beta4"))
    flag = "--old-config" if "migrate" in command else "--config"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), *sys.path]), "XDG_STATE_HOME": str(tmp_path / "state")}
    words = [sys.executable, "-S", "-c", PROGRAM, str(tmp_path), *command.split(), flag, str(config)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stderr.partition("LOADED ")[2].split()
    top = {name.partition(".")[0] for name in loaded}
    assert top & HEAVY == set()
    assert top - sys.stdlib_module_names - {"kubewright"} - {name for name in top if name.startswith("_")} == OTHERS
    assert {name.split(".")[1] for name in loaded if name.startswith("kubewright.")} <= PACKAGES[command]
