"""Machines that are part of a cluster, and that something else than kubewright made: they are planned for freely, and changed only on request.

What a machine was made by is decided by looking: whoever started its kubelet has left kubelet.conf and the kubelet's configuration, and
kubewright would have left its record as well (DESIGN principle 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from kubewright.base.change import Action, Change
from kubewright.base.errors import ConfigurationChanged, HostError
from kubewright.base.events import Line, Reporter
from kubewright.host.seam import Host

if TYPE_CHECKING:
    from kubewright.workflow.runner import Plan

TOPIC: Final = "adopt"
STORED: Final = "configmap kube-system/kubeadm-config"
"""The target of what a cluster keeps of its configuration: a difference there is another cluster than the one that is described."""

_COMPONENTS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def traces(host: Host) -> tuple[PurePosixPath, ...]:
    """Return the files by which a machine is known as one that something else made; none for a fresh machine, and for one of ours."""
    layout = host.layout
    if host.state(layout.machine_record) is not None:
        return ()
    started = (layout.kubeconfig("kubelet"), layout.kubelet_config)
    if any(host.state(path) is None for path in started):
        return ()
    more = (layout.kubelet_instance_config, *map(layout.manifest, _COMPONENTS))
    return (*started, *(path for path in more if host.state(path) is not None))


def check(host: Host, *, adopts: bool, plan: Callable[[], Plan], reporter: Reporter) -> bool:
    """Tell whether the machine is taken over by this run. Where it is, the changes that `plan` gives are shown first.

    Raises HostError for a machine that something else made, unless the user `adopts` it, and ConfigurationChanged where its cluster was made
    with another configuration.
    """
    found = traces(host)
    if not found:
        return False
    if not adopts:
        raise _foreign(found)
    changes = plan()
    _require_same_cluster(changes.changes)
    text = changes.text() or "nothing has to change: the configuration is the one that this machine was made with"
    reporter.emit(Line(topic=TOPIC, text=f"Taking over this machine, which kubewright did not make:\n{text.rstrip()}"))
    return True


def _require_same_cluster(changes: Iterable[Change]) -> None:
    for change in changes:
        if change.target == STORED and change.action is Action.UPDATE:
            raise ConfigurationChanged(
                "the cluster of this machine was made with another configuration",
                detail=change.diff,
                remedy="give the configuration that the cluster has (`kubewright config diff` shows the difference); nothing was changed",
            )


def _foreign(found: Iterable[PurePosixPath]) -> HostError:
    return HostError(
        "this machine is part of a cluster, and kubewright did not make it so",
        detail="\n".join(f"{path} is there" for path in found),
        remedy="see what would change with --plan, then take it over with --adopt; or remove what is there with `kubewright reset`",
    )
