"""The logs of a cluster of machines: of its daemon, of units in a machine, and of static pods, also if the API server does not answer.

A machine keeps its logs, so only root can read them: the daemon does it for the cluster's owner.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kubewright.base.errors import HostError, UsageError
from kubewright.base.messages import quoted
from kubewright.local.paths import ClusterPaths
from kubewright.local.record import ClusterRecord
from kubewright.local.whole import entering, members
from kubewright.local.whole.services import client
from kubewright.local.whole.services.places import runtime
from kubewright.local.whole.services.programs import Program, tail_options

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


def log(
    paths: ClusterPaths, cluster: ClusterRecord, component: str, *, machine: str = "", tail: int | None = None, follow: bool = False
) -> Iterator[bytes]:
    """Yield the log of a unit or a static pod of a machine, by default the first one. Without a component, yield the daemon's log.

    Raises UsageError for an unknown machine or component, HostError for a machine that does not run, or without a daemon.
    """
    if not component:
        if not runtime(paths).daemon_log.exists():
            raise client.absent(paths)
        yield from entering.output(paths, Program(tail=tail, follow=follow))
        return
    found = members.machine_of(paths, cluster, machine or cluster.control_plane.name)
    if not found.runs:
        raise HostError(f"machine {found.name} does not run", remedy=f"`kubewright local machine start {found.name}` starts it")
    if component in UNITS:
        shown = ["--lines=all" if tail is None else f"--lines={tail}", *(["--follow"] if follow else [])]
        command = ["journalctl", "--no-pager", "--quiet", "--output=short-iso", f"--unit={component}", *shown]
    else:
        command = ["sh", "-c", _STATIC_POD, "sh", component, found.name, *tail_options(tail, follow=follow)]
    code = yield from entering.output(paths, Program(machine=found.name, command=tuple(command)))
    if code == _MISSING:
        raise UsageError(
            f"machine {found.name} has no unit or static pod {quoted(component)}",
            remedy=f"there are {', '.join((*UNITS, *_static_pods(paths, found.name)))}; `kubectl logs` shows the logs of other pods",
        )


def _static_pods(paths: ClusterPaths, machine: str) -> list[str]:
    listed = b"".join(entering.output(paths, Program(machine=machine, command=("ls", "/etc/kubernetes/manifests"))))
    return sorted(name.removesuffix(".yaml") for name in listed.decode(errors="replace").split())
