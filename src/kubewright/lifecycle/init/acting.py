"""What `init phase` does to a real machine in this release: the phases that only write files.

`init` as a whole, and every phase that needs a service manager, a container runtime or the API of a new cluster, come with a later release.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final, NoReturn

from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.waiting import PollingWaiter
from kubewright.host.desired import Directory
from kubewright.host.locks import Lock
from kubewright.lifecycle.init import calls
from kubewright.lifecycle.init.calls import Call

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI

FILE_PHASES: Final = frozenset({"certs", "kubeconfig", "etcd", "control-plane", "kubelet-start"})
"""Those phases, with all below them, write files and nothing else; that the kubelet is not started is said."""


def act(call: Call, *, lock_directory: PurePosixPath) -> tuple[Change, ...]:
    """Run the phases that were asked for on this machine, one kubewright at a time. Returns what was changed.

    Raises HostError, before anything is written, unless all of them only write files.
    """
    refuse_more_than_files(call)
    call.host.ensure(Directory(path=lock_directory, mode=0o700))
    waiter = PollingWaiter(clock=call.means.clock, reporter=call.means.reporter)
    with (
        Lock(lock_directory / "init.lock", doing="init phase", clock=call.means.clock),
        calls.context(call, call.host, waiter=waiter, connect=_no_cluster) as ctx,
    ):
        return tuple(change for change in calls.run(ctx, call).changes if change)


def refuse_more_than_files(call: Call) -> None:
    """Raise HostError unless all phases that were asked for only write files."""
    if not call.request.only:
        _later("init cannot change this machine yet", "starting a control plane on a real machine")
    surplus = sorted(phase for phase in call.phases if phase.partition("/")[0] not in FILE_PHASES)
    if "preflight" in surplus:
        _later("init phase preflight cannot check this machine yet", "the checks of a real machine, and pulling images,")
    if surplus:
        _later(f"init phase {surplus[0].replace('/', ' ')} cannot change this machine yet", "what it needs of a real machine")


def _later(what: str, detail: str) -> NoReturn:
    raise HostError(
        what,
        detail=f"{detail} will come with a later release",
        remedy="see what it would do with `--plan` or `--dry-run`, or run the same phases on a local machine with `kubewright up`",
    )


def _no_cluster(_: str) -> KubeAPI:
    """Never called: the phases that only write files ask no cluster."""
    raise AssertionError
