"""The operation `upgrade status`: the versions that processes report, and the next steps. It only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm.node_types import UpgradeConfiguration
from kubewright.base import untyped
from kubewright.base.errors import HostError, KubewrightError, Unreachable
from kubewright.base.events import Warned
from kubewright.base.records import dataclass, field, replace
from kubewright.kube.resources import NODE, POD
from kubewright.lifecycle import stacked_etcd, stored_configuration
from kubewright.lifecycle.operation import Bound, Operation, Policy, Prepared
from kubewright.lifecycle.steps import checkpoint, component_versions
from kubewright.lifecycle.steps.detected_cluster import API_SERVER, ETCD
from kubewright.lifecycle.upgrade.context import KUBELET_FILES, KUBELET_OPERATION, UpgradeContext, UpgradeTask
from kubewright.lifecycle.upgrade.control_plane import phase, proofs
from kubewright.lifecycle.upgrade.operation import context, machine_of
from kubewright.lifecycle.upgrade.planning.versions import CONTROL_PLANE, NAMESPACE, kubelet_version, node_of
from kubewright.lifecycle.upgrade.request import UpgradeOptions
from kubewright.manifests.static_pods import ENDPOINT
from kubewright.workflow.phases import Phase, Phases, Step

if TYPE_CHECKING:
    from kubewright.lifecycle.machine import TargetMachine

KUBELET: Final = "kubelet"
PROCESS, IMAGE, NODE_STATUS = "process", "image", "node"
"""The source of a version: the process itself, only the image of its pod, or the status of the Node."""


@dataclass(frozen=True, kw_only=True)
class ComponentVersion:
    """The version of one component on one machine; `problem` is the reason if it is unknown."""

    node: str
    component: str
    version: str = ""
    source: str = PROCESS
    problem: str = ""

    def as_map(self) -> dict[str, str]:
        """Return the form that `-o json` prints."""
        return {name: getattr(self, name) for name in ("node", "component", "version", "source", "problem")}


@dataclass(kw_only=True)
class UpgradeStatus:
    """The versions of a cluster.

    `stored` is that of the cluster's configuration, '' if it cannot be read; `open` is that of an interrupted upgrade.
    """

    stored: str = ""
    open: str = ""
    versions: list[ComponentVersion] = field(default_factory=list)

    def next(self) -> list[str]:
        """Return the next steps in order; none if all components answer and have the stored version."""
        if self.open:
            return [f"this machine is between two versions: run the same upgrade to {self.open} again, or `kubewright upgrade rollback`"]
        silent = [f"{one.component} of {one.node}" for one in self.versions if one.problem]
        control_planes = self._behind((API_SERVER, *CONTROL_PLANE[1:]))
        steps = [f"find out why these do not answer: {', '.join(silent)}"] if silent else []
        steps += [f"run `kubewright upgrade node` on {node}, to {self.stored}" for node in control_planes]
        kubelets = self._behind((KUBELET,))
        if kubelets and not control_planes:
            steps.append(f"upgrade the kubelets of {', '.join(kubelets)} to {self.stored}")
        return steps

    def _behind(self, components: Sequence[str]) -> list[str]:
        found = [one.node for one in self.versions if one.component in components and component_versions.is_older(one.version, self.stored)]
        return list(dict.fromkeys(found))

    def as_map(self) -> dict[str, Any]:
        """Return the form that `-o json` prints."""
        rows = [one.as_map() for one in self.versions]
        return {"storedVersion": self.stored, "interruptedUpgrade": self.open, "versions": rows, "next": self.next()}


@dataclass(frozen=True, kw_only=True)
class StatusContext(UpgradeContext):
    """One observation of a cluster."""

    found: UpgradeStatus = field(default_factory=UpgradeStatus)


def collect(ctx: StatusContext) -> Iterable[Step]:
    """Look at this machine first, then at the others through the cluster, which may be down. Raises HostError if nothing is known."""
    found = ctx.found
    begun = checkpoint.unfinished(checkpoint.every(ctx.host))
    found.open = begun.goal if begun is not None and begun.operation in (phase.OPERATION, KUBELET_FILES, KUBELET_OPERATION) else ""
    if ctx.control_plane:
        found.versions += _local(ctx)
    try:
        found.stored = _stored(ctx)
        found.versions += [*_others(ctx), *_kubelets(ctx)]
    except KubewrightError as error:
        if not (found.versions or found.open):
            raise HostError(
                "the versions of the cluster cannot be read from this machine",
                detail=str(error),
                remedy="run this on a control plane, or pass an administrator's kubeconfig with --kubeconfig",
            ) from error
        ctx.reporter.emit(Warned(text=f"the cluster cannot be read, so only this machine is shown: {error}"))
    found.versions.sort(key=lambda one: (one.node, (ETCD, *CONTROL_PLANE, KUBELET).index(one.component)))
    return ()


def _local(ctx: StatusContext) -> Iterator[ComponentVersion]:
    for name in (ETCD, *CONTROL_PLANE):
        if ctx.host.state(ctx.host.layout.manifest(name)) is not None:
            own = partial(_of_member, ctx, stacked_etcd.client_url(ctx.addresses)) if name == ETCD else proofs.of(ctx, name).asked.version
            yield _asked(ctx.node_name, name, own)


def _asked(node: str, component: str, version: Callable[[], str]) -> ComponentVersion:
    try:
        return ComponentVersion(node=node, component=component, version=version())
    except KubewrightError as error:
        return ComponentVersion(node=node, component=component, problem=error.what)


def _of_member(ctx: StatusContext, url: str) -> str:
    """Return the version that a member of etcd reports. Raises Unreachable with the reason if it does not."""
    found = ctx.etcd.status(url)
    if found.problem:
        raise Unreachable(found.problem)
    return found.version


def _stored(ctx: StatusContext) -> str:
    value = stored_configuration.document(ctx.client, stored_configuration.KUBEADM_CONFIG).value
    return str(value.get("kubernetesVersion") or "") if isinstance(value, Mapping) else ""


def _others(ctx: StatusContext) -> Iterator[ComponentVersion]:
    """Yield the versions on other machines.

    Their API servers and members of etcd are asked; for components that listen on the loopback address only, the image
    is used.
    """
    for name in (ETCD, *CONTROL_PLANE):
        for pod in ctx.client.list(POD, NAMESPACE, label_selector=f"component={name},tier=control-plane"):
            node = node_of(pod)
            if node != ctx.node_name or not ctx.control_plane:
                yield _of_pod(ctx, name, node, pod)


def _of_pod(ctx: StatusContext, name: str, node: str, pod: Mapping[str, Any]) -> ComponentVersion:
    endpoint = untyped.text(untyped.mapping(pod["metadata"].get("annotations")).get(ENDPOINT))
    if name == API_SERVER and endpoint and ctx.control_plane:
        client = ctx.bound.connections.kube(replace(ctx.administrator, server=f"https://{endpoint}"))
        return _asked(node, name, lambda: str(json.loads(client.raw("GET", "/version").body)["gitVersion"]))
    if name == ETCD and ctx.control_plane and (urls := stacked_etcd.advertised(pod)):
        return _asked(node, name, partial(_of_member, ctx, urls[0]))
    version = component_versions.version_of(pod)
    return ComponentVersion(node=node, component=name, version=version if name == ETCD or not version else f"v{version}", source=IMAGE)


def _kubelets(ctx: StatusContext) -> Iterator[ComponentVersion]:
    for node in ctx.client.list(NODE):
        yield ComponentVersion(node=node["metadata"]["name"], component=KUBELET, version=kubelet_version(node), source=NODE_STATUS)


def prepare(_: UpgradeOptions, machine: TargetMachine) -> Prepared[UpgradeTask]:
    """Read the state of this machine."""
    configuration = UpgradeConfiguration()
    host, init, control_plane = machine_of(machine, configuration, configuration.node)
    task = UpgradeTask(configuration=configuration, settings=configuration.node, version="", init=init, control_plane=control_plane)
    return Prepared(configuration=task, host=host)


def _context(request: UpgradeOptions, task: UpgradeTask, bound: Bound) -> StatusContext:
    made = context(request, task, bound)
    return StatusContext(bound=bound, addresses=made.addresses, task=task, request=request)


STATUS: Final = Operation(
    name="upgrade status",
    phases=Phases(Phase("collect", "Ask the components", run=collect)),
    configure=prepare,
    context=_context,
    policy=Policy(locks=False),
)
