"""`agent leave` as an operation: end the service, and remove what belongs to its node in the cluster and on this machine.

A given kubeconfig is tested before anything ends. Refusals by the cluster after that are reported at the end.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.agent import leases, status_file
from kubewright.agent.certificates.store import CLIENT, OWN_FILES, SERVING
from kubewright.agent.configuration.options import ROOT
from kubewright.agent.service.install import SERVICE, UNIT
from kubewright.apis.machine import Layout
from kubewright.base.change import Change
from kubewright.base.errors import (
    APIError,
    CertificateError,
    CheckFailed,
    DocumentError,
    HostError,
    KubewrightError,
    NotFound,
    ValidationError,
)
from kubewright.base.events import Waited, Warned
from kubewright.base.records import dataclass, field, replace
from kubewright.host.desired import Service
from kubewright.kube import core
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.objects import remove_object
from kubewright.kube.resources import CSI_NODE, LEASE, NODE
from kubewright.lifecycle.operation import Bound, Operation, Prepared
from kubewright.workflow.phases import Phase, Phases

if TYPE_CHECKING:
    from kubewright.kube.api import KubeAPI
    from kubewright.lifecycle.machine import TargetMachine

_WITHIN: Final = 10.0
"""Seconds that an agent may take to end after its service has ended."""


@dataclass(frozen=True, kw_only=True)
class LeaveOptions:
    """One call of `agent leave` or of one of its phases. `kubeconfig` is one that may delete the Node, '' if there is none."""

    root_dir: str = str(ROOT)
    kubeconfig: str = ""
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LeaveContext:
    """One run. `status` is the agent's last status; `failures` are the refusals of the cluster."""

    bound: Bound
    options: LeaveOptions
    status: Mapping[str, Any]
    failures: list[KubewrightError] = field(default_factory=list)

    @property
    def root(self) -> PurePosixPath:
        """The agent's directory."""
        return PurePosixPath(self.options.root_dir)

    @property
    def node(self) -> str:
        """The name of the Node."""
        return str(self.status["node"])

    @functools.cached_property
    def api(self) -> KubeAPI:
        """The cluster, with the given kubeconfig, otherwise with the node's own. Raises the errors of `load_access`."""
        path = PurePosixPath(self.options.kubeconfig or self.status["kubeconfig"])
        return self.bound.connections.kube(load_access(path, read=self.bound.host.read))

    @functools.cached_property
    def uid(self) -> str:
        """The uid that the Node had before the agent ended, '' if there was none: the agent may have registered again since. Raises APIError."""
        try:
            return str(core.metadata(self.api.get(NODE, self.node)).get("uid") or "")
        except NotFound:
            return ""

    def require_ended(self) -> None:
        """Require that no agent runs. Raises CheckFailed."""
        if (pid := self.running) is not None:
            raise CheckFailed(f"an agent runs as process {pid}", remedy=f"end it first: `kill {pid}`")

    @property
    def running(self) -> int | None:
        """The process id of a running agent, None if there is none."""
        status = status_file.read(self.bound.host, self.root)
        return int(status["pid"]) if status_file.runs(status, self.bound.host.processes) else None


def prepare(request: LeaveOptions, machine: TargetMachine) -> Prepared[Mapping[str, Any]]:
    """Read the status of the agent. Raises HostError if there is none, because nothing is known about the node then."""
    root = PurePosixPath(request.root_dir)
    status = status_file.read(machine.at(machine.layout), root)
    return Prepared(configuration=status, host=machine.at(own_layout(status, root)), only=request.only, skip=request.skip)


def own_layout(status: Mapping[str, Any], root: PurePosixPath) -> Layout:
    """Return the paths of the agent's own files, from its status."""
    return replace(Layout(), kubelet=root, pki=PurePosixPath(status["pki"]), kubernetes=PurePosixPath(status["kubeconfig"]).parent)


def check(ctx: LeaveContext) -> Iterable[Change]:
    """Look up the Node with the given kubeconfig, and require that no agent runs except the service."""
    if ctx.options.kubeconfig:
        _ = ctx.uid  # this sends the request now
    service = ctx.bound.host.service(SERVICE)
    if service is None or not service.running:
        ctx.require_ended()
    return ()


def stop(ctx: LeaveContext) -> Iterator[Change | Waited]:
    """Stop the service and remove its unit. Raises WaitTimeout if an agent is still running."""
    found = ctx.bound.host.service(SERVICE)
    if found is not None and found.running:
        yield ctx.bound.host.ensure(Service(name=SERVICE, running=False))
        yield ctx.bound.waiter.until(
            lambda: None if (pid := ctx.running) is None else f"it runs as process {pid}",
            within=_WITHIN,
            saying="the agent to end",
            remedy="stop the agent that was started in addition to the service, then run the same command again",
        )
    yield ctx.bound.host.remove_units(SERVICE, units=[UNIT])


def remove_objects(ctx: LeaveContext) -> Iterator[Change]:
    """Delete the node's objects from its cluster; the Node itself only with a given kubeconfig, because a node may not delete it."""
    try:
        yield remove_object(ctx.api, LEASE, ctx.node, leases.NAMESPACE)
        yield remove_object(ctx.api, CSI_NODE, ctx.node)
        if ctx.options.kubeconfig:
            yield remove_object(ctx.api, NODE, ctx.node, uid=ctx.uid)
    except (APIError, CertificateError, DocumentError, ValidationError) as error:
        ctx.failures.append(HostError(f"the Node {ctx.node} is still in the cluster ({error})", remedy=_by_hand(ctx)))


def remove_files(ctx: LeaveContext) -> Iterator[Change]:
    """Remove certificates, keys, kubeconfig and status, so that the agent cannot return.

    The files of a serving certificate that the agent did not create stay.
    """
    host, pki = ctx.bound.host, PurePosixPath(ctx.status["pki"])
    pairs = [path for path in host.entries(pki) if path.name.startswith((CLIENT, SERVING)) or path.name in OWN_FILES]
    for path in (*pairs, PurePosixPath(ctx.status["kubeconfig"]), status_file.path_of(ctx.root)):
        yield host.remove(path)


def closing(ctx: LeaveContext) -> None:
    """Say that the Node stays, if no given credentials may delete it."""
    if ctx.bound.whole and not ctx.options.kubeconfig and not ctx.failures:
        ctx.bound.reporter.emit(Warned(text=f"the Node {ctx.node} is still in the cluster: {_by_hand(ctx)}"))


def _by_hand(ctx: LeaveContext) -> str:
    return f"delete it with `kubectl delete node {ctx.node}`"


PHASES: Final[Phases[LeaveContext]] = Phases(
    Phase("preflight", "Look at the Node, and check that no agent runs but the service", run=check, flags="kubeconfig root-dir"),
    Phase("service", "Stop the service and remove it", run=stop, flags="root-dir"),
    Phase("objects", "Delete the Node and what belongs to it", run=remove_objects, flags="kubeconfig root-dir"),
    Phase("files", "Remove certificates, keys, kubeconfig and status", run=remove_files, flags="root-dir"),
)

LEAVE: Final = Operation(
    name="agent leave",
    phases=PHASES,
    configure=prepare,
    context=lambda request, status, bound: LeaveContext(bound=bound, options=request, status=status),
    closing=closing,
    failures=lambda ctx: ctx.failures,
    incomplete="some parts of the node could not be removed from its cluster",
    again="",
)
