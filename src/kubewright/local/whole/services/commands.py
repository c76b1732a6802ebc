"""Commands of kubewright that the daemon of a cluster of machines runs as root: `down`, and changes of machines for the cluster's owner."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any, Final

from kubewright.local import daemon_process
from kubewright.local.paths import ClusterPaths

CHANGES: Final = frozenset({"kill", "pause", "start", "stop"})
"""What the owner may do with existing machines without root, as the commands `local machine …` of these names."""


def argv(paths: ClusterPaths, *words: str) -> list[str]:
    """Return the arguments of a command for a cluster."""
    return [sys.executable, "-P", "-m", "kubewright", *words, "--name", paths.name, "--state-dir", str(paths.root.parent)]


def environment(own: ClusterPaths) -> dict[str, str]:
    """Return the environment of commands: not as a part of the daemon, which would end with it. `own` are the daemon's own files."""
    ours = {*daemon_process.mark_of(own).variables, *daemon_process.NO_HOST_TRUST}
    return {name: value for name, value in os.environ.items() if name not in ours}


def change(own: ClusterPaths, paths: ClusterPaths, verb: str, machine: str, *, form: str) -> dict[str, Any]:
    """Run `local machine VERB` to its end; returns its exit code, and its output and error output for the caller."""
    ended = subprocess.run(
        argv(paths, "local", "machine", verb, machine, f"--output={form}"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        cwd="/",
        env=environment(own),
        start_new_session=True,
    )
    return {"code": ended.returncode, "out": ended.stdout.decode(errors="replace"), "err": ended.stderr.decode(errors="replace")}
