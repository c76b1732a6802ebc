"""The phases that set up this machine's kubelet: its program, its files, its unit, and the Node that it registers."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubelet import API_VERSION, KIND
from kubewright.base import yaml
from kubewright.base.change import Action, Change
from kubewright.base.errors import APIError, HostError, NotFound
from kubewright.base.events import Waited
from kubewright.enrollment.node.joined_machine import renewed
from kubewright.host.desired import Directory, File, Service, Show
from kubewright.kube.kubeconfigs import load_access
from kubewright.kube.resources import NODE
from kubewright.lifecycle.steps import kubelet as steps
from kubewright.lifecycle.steps import kubelet_service
from kubewright.lifecycle.steps.health import ComponentWaiter
from kubewright.manifests import kubelet, tunnels

if TYPE_CHECKING:
    from kubewright.enrollment.node.context import NodeJoinContext

PROGRAM: Final = PurePosixPath("/usr/local/bin/kubelet")
_SERVICE: Final = "kubelet"
_PRIVATE: Final = 0o700
_READY_WITHIN: Final = 240.0
_LOOK, _LONGEST_LOOK = 0.1, 1.0


def install(ctx: NodeJoinContext) -> Iterable[Change]:
    """Install the kubelet of the cluster's version: keep an installed one, otherwise use the verified download of `binaries`."""
    version = str(ctx.checked.version).removeprefix("v")
    path = ctx.host.programs.path(_SERVICE)
    if path is not None and ctx.host.programs.version(_SERVICE).rpartition(" ")[2] == f"v{version}":
        yield Change(target=f"file {path}", action=Action.NONE)
        return
    ctx.say(f"Installing the kubelet v{version}")
    yield ctx.host.ensure(File(path=PROGRAM, content=ctx.fetch(version), mode=0o755, show=Show.SIZE))


def files(ctx: NodeJoinContext) -> Iterable[Change]:
    """Write the files from the hub, the kubeconfig last: if it exists, so do the others."""
    checked, place = ctx.checked, ctx.layout.oneinfra
    for directory in (place, ctx.layout.kubelet):
        yield ctx.host.ensure(Directory(path=directory, mode=_PRIVATE))
    contents = {
        place / "kubelet.crt": checked.serving.certificate_pem(),
        place / "kubelet.key": checked.serving.key.pem(),
        place / "kubelet-client-ca.crt": checked.client_ca,
        ctx.layout.kubelet_config: yaml.dump(configuration(ctx)).encode(),
        ctx.kubeconfig: checked.kubeconfig,
    }
    for path, content in contents.items():
        shown = Show.DIFF if path == ctx.layout.kubelet_config else Show.MADE
        yield ctx.host.ensure(File(path=path, content=content, show=shown))
    ctx.say(f"Wrote the kubelet's files to {place} and {ctx.layout.kubelet}")


def forget_key(ctx: NodeJoinContext) -> Iterable[Change]:
    """Remove the key of the join.

    This is a separate phase: a run that is killed before it has already written all files.
    """
    if ctx.host.state(ctx.kubeconfig) is not None:
        yield ctx.host.remove(ctx.key_path)
        yield ctx.host.remove(ctx.new_tunnel_key_path)


def configuration(ctx: NodeJoinContext) -> dict[str, Any]:
    """Return the kubelet's configuration: the fields that the hub may set, with the paths, runtime and safe defaults of this machine.

    Access to the kubelet's API is always configured explicitly, so that it does not depend on the kubelet's version.
    """
    found, place = ctx.checked.kubelet, ctx.layout.oneinfra
    authentication, authorization = found.get("authentication") or {}, found.get("authorization") or {}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **found,
        "authentication": {
            "anonymous": {"enabled": False, **authentication.get("anonymous", {})},
            "webhook": {"enabled": True, **authentication.get("webhook", {})},
            "x509": {"clientCAFile": str(place / "kubelet-client-ca.crt")},
        },
        "authorization": {"mode": "Webhook", **authorization},
        "tlsCertFile": str(place / "kubelet.crt"),
        "tlsPrivateKeyFile": str(place / "kubelet.key"),
        "containerRuntimeEndpoint": ctx.join.runtime_endpoint,
        "imageServiceEndpoint": ctx.join.image_endpoint,
    }


def start(ctx: NodeJoinContext) -> Iterable[Change]:
    """Write the drop-in, and the unit if there is none, and start the kubelet; restart a running one if either has changed.

    An existing unit of a package or an administrator stays; whether it was enabled is recorded for `node leave`.
    """
    yield from kubelet_service.remember(ctx.host)
    texts = kubelet.joined_unit_files(
        _program(ctx),
        kubeconfig=ctx.kubeconfig,
        config=ctx.layout.kubelet_config,
        node=ctx.join.node,
        addresses=tunnels.node_addresses(ctx.host.read(tunnels.unit_path(tunnels.NODE_INTERFACE))),
    )
    theirs = {kubelet.UNIT} if kubelet_service.is_of_others(ctx.host, ctx.host.service(_SERVICE)) else set()
    units = tuple(File(path=path, content=text.encode(), mode=0o644) for path, text in texts.items() if path not in theirs)
    ctx.say("Starting the kubelet")
    yield ctx.host.ensure(Service(name=_SERVICE, enabled=True, units=units, restart=_began_before(ctx)))


def _program(ctx: NodeJoinContext) -> PurePosixPath:
    """Return the kubelet to start: the one installed by this join, otherwise the existing one."""
    return PROGRAM if ctx.host.state(PROGRAM) is not None else ctx.host.programs.path(_SERVICE) or PROGRAM


def _began_before(ctx: NodeJoinContext) -> bool:
    """Whether the running kubelet started before its kubeconfig was written."""
    found, written = ctx.host.service(_SERVICE), ctx.host.state(ctx.kubeconfig)
    return found is not None and found.running and written is not None and bool(found.since) and written.modified > found.since


def ready(ctx: NodeJoinContext) -> Iterable[Waited]:
    """Wait until the Node is Ready. Raises ComponentFailed if the kubelet does not stay up, WaitTimeout with its last output."""
    waiting = ComponentWaiter(
        waiter=ctx.bound.waiter, diagnosis=functools.partial(ctx.bound.machine.diagnosis, host=ctx.host), within=_READY_WITHIN
    )
    yield waiting.until(
        lambda: _unready(ctx),
        saying=f"Node {ctx.join.node} to be Ready",
        blame=(),
        every=_LOOK,
        at_most=_LONGEST_LOOK,
        remedy=steps.FIX,
    )
    ctx.say(f"This machine is the node {ctx.join.node} of the cluster, and Ready")


def _unready(ctx: NodeJoinContext) -> str | None:
    try:
        access = renewed(load_access(ctx.kubeconfig, read=ctx.host.read), ctx.host)
        found = ctx.bound.connections.kube(access).get(NODE, ctx.join.node)
    except NotFound:
        return "the kubelet has not registered it yet"
    except (APIError, HostError) as error:
        return str(error)
    conditions = (found.get("status") or {}).get("conditions") or ()
    row: Mapping[str, Any] = next((one for one in conditions if one.get("type") == "Ready"), {})
    return None if row.get("status") == "True" else str(row.get("message") or "the kubelet has not reported yet")
