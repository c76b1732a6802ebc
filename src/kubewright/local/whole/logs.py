"""The logs of a cluster of machines: of its daemon, of units in a machine, and of static pods, also if the API server does not answer.

A machine keeps its logs, so only root can read them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import machines, members
from kubewright.local.whole.services import client
from kubewright.local.whole.services.places import runtime
from kubewright.machines.machine import Machine
from kubewright.machines.running import environment

UNITS: Final = ("kubelet", "containerd")
"""The units of a machine whose journal is shown."""
_STATIC_POD: Final = r"""
newest=$(ls -t /var/log/pods/kube-system_"$1"-"$2"_*/"$1"/*.log 2>/dev/null | head -n 1)
[ -n "$newest" ] || exit 3
shift 2
tail "$@" "$newest" | sed -u 's/^[^ ]* std[a-z]* [FP] //'
"""
"""Shows the newest log of a static pod. Its lines begin with time, stream and tag (kubernetes v1.36: pkg/kubelet/kuberuntime/logs/logs.go)."""
_MISSING: Final = 3
_CHUNK: Final = 64 * 1024


def log(
    paths: ClusterPaths, cluster: ClusterRecord, component: str, *, machine: str = "", tail: int | None = None, follow: bool = False
) -> Iterator[bytes]:
    """Yield the log of a unit or a static pod of a machine, by default the first one. Without a component, yield the daemon's log.

    Raises UsageError for an unknown machine or component, HostError without root, and for a machine that does not run.
    """
    words = [*(["--machine", machine] if machine else []), *([component] if component else [])]
    machines.require_root(" ".join(["local logs --name", paths.name, *words]))
    lines = [f"--lines={'+1' if tail is None else tail}", *(["--follow=name"] if follow else [])]
    if not component:
        own = runtime(paths).daemon_log
        if not own.exists():
            raise client.absent(paths)
        yield from output(["tail", *lines, str(own)])
        return
    found = members.machine_of(paths, cluster, machine or cluster.control_plane.name)
    if not found.runs:
        raise HostError(f"machine {found.name} does not run", remedy=f"`sudo kubewright local machine start {found.name}` starts it")
    if component in UNITS:
        shown = ["--lines=all" if tail is None else f"--lines={tail}", *(["--follow"] if follow else [])]
        argv = ["journalctl", "--no-pager", "--quiet", "--output=short-iso", f"--unit={component}", *shown]
    else:
        argv = ["sh", "-c", _STATIC_POD, "sh", component, found.name, *lines]
    code = yield from output(found.argv(*argv))
    if code == _MISSING:
        raise UsageError(
            f"machine {found.name} has no unit or static pod {quoted(component)}",
            remedy=f"there are {', '.join((*UNITS, *_static_pods(found)))}; `kubectl logs` shows the logs of other pods",
        )


def output(argv: Sequence[str]) -> Generator[bytes, None, int]:
    """Yield the output of a program of the host; returns its exit code. The program is ended if the caller stops reading."""
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        try:
            while chunk := os.read(process.stdout.fileno(), _CHUNK):
                yield chunk
        except BaseException:
            process.terminate()
            raise
    return process.returncode


def _static_pods(machine: Machine) -> list[str]:
    listed = machine.run("ls", "/etc/kubernetes/manifests", check=False).out.split()
    return sorted(name.removesuffix(".yaml") for name in listed)
