"""The phases `kubelet-start`, `kubelet-finalize` and `mark-control-plane`: the kubelet of this machine, and its Node (spec/kubeadm.md 7.7)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePosixPath

from kubewright.apis.kubeconfig import CertificateFiles, kubeconfig_document, parse, require_usable
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import APIError, HostError
from kubewright.base.events import Waited, Warned
from kubewright.host.desired import Directory, File, Service
from kubewright.host.states import ServiceState
from kubewright.kube.api import KubeAPI
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.resources import NODE
from kubewright.lifecycle.context import MachineContext
from kubewright.lifecycle.diagnosis import observation
from kubewright.manifests import kubelet, objects, patches

SERVICE = "kubelet"
FILE_MODE = 0o644
PRIVATE = 0o700
_MARK = "mark-control-plane"


def start(ctx: MachineContext) -> Iterable[Change]:
    """Write the kubelet's three files, then start it; it is restarted where one of them changed, also in a run that was killed before it did.

    It is restarted too where a static pod that it has begun with does not run: it pauses for minutes before it tries again, though what was
    missing may have come. Where no package brought a unit for it, that is installed. Starting is best effort, as with kubeadm: where there
    is no service manager, that is only said.
    """
    yield ctx.host.ensure(Directory(path=ctx.layout.kubelet, mode=PRIVATE))
    changed = False
    wanted = kubelet.files(
        ctx.configuration,
        ctx.layout,
        ctx.detected,
        patch=lambda body: ctx.patched(patches.KUBELET, body),
        worker=not ctx.control_plane,
    )
    for path, content in wanted.items():
        change = ctx.host.ensure(File(path=path, content=content.encode(), mode=FILE_MODE))
        ctx.say("kubelet-start", f'Wrote "{path}"' if change else f'"{path}" is as it should be')
        changed = changed or bool(change)
        yield change
    found = ctx.host.service(SERVICE)
    units = _units(ctx, found)
    if found is None and not units:
        ctx.say("kubelet-start", "No service manager that knows the kubelet was found: start it by hand")
        return
    ctx.say("kubelet-start", "Starting the kubelet")
    again = changed or (found is not None and found.running and (_missed(ctx, wanted, found) or bool(observation.not_running(ctx.host))))
    enabled = True if units else None
    try:
        yield ctx.host.ensure(Service(name=SERVICE, restart=again, enabled=enabled, units=units, stand_ins=ctx.kubelet_makes))
    except HostError as error:
        ctx.reporter.emit(Warned(text=f"{error}: run `systemctl restart {SERVICE}`"))


def _missed(ctx: MachineContext, paths: Iterable[PurePosixPath], found: ServiceState) -> bool:
    """Tell whether the kubelet has begun before one of its files was written as it is."""
    states = [ctx.host.state(path) for path in paths]
    return bool(found.since) and any(state is not None and state.modified > found.since for state in states)


def _units(ctx: MachineContext, found: ServiceState | None) -> tuple[File, ...]:
    """Return the kubelet's unit and drop-in where no package has brought a unit and systemd is there to read it; else nothing."""
    theirs = found is not None and not kubelet.is_ours(ctx.host.read(kubelet.UNIT))
    program = None if theirs or not ctx.host.facts.systemd else ctx.host.programs.path(SERVICE)
    if program is None:
        return ()
    return tuple(File(path=path, content=text.encode(), mode=FILE_MODE) for path, text in kubelet.unit_files(program, ctx.layout).items())


def finalize(ctx: MachineContext) -> Iterable[Change]:
    """Let kubelet.conf name the certificate that the kubelet rotates, once it has one, in place of the embedded one."""
    path, current = ctx.layout.kubeconfig("kubelet"), str(ctx.layout.kubelet_client_current)
    content = ctx.host.read(path)
    if content is None or ctx.host.read(ctx.layout.kubelet_client_current) is None:
        return
    kubeconfig = parse(yaml.load_one(content, source=str(path)))
    found = require_usable(kubeconfig)
    context = kubeconfig.contexts[kubeconfig.current_context]
    document = kubeconfig_document(
        server=found.cluster.server,
        ca_pem=found.cluster.certificate_authority_data,
        cluster_name=context.cluster,
        user=context.user,
        credentials=CertificateFiles(certificate=current, key=current),
    )
    change = ctx.host.ensure(File(path=path, content=yaml.dump(document).encode(), mode=0o600))
    if change:
        ctx.say("kubelet-finalize", f'"{path}" uses the client certificate that the kubelet rotates')
    yield change


def mark(ctx: MachineContext, *, look: KubeAPI, write: KubeAPI) -> Iterable[Change | Waited]:
    """Label and taint this machine's Node, once its kubelet has registered it. `look` tries each request once."""
    registration, timeouts = ctx.configuration.init.node_registration, ctx.configuration.init.timeouts
    yield ctx.waiter.until(
        lambda: _unregistered(look, ctx.node_name),
        within=timeouts.kubernetes_api_call.seconds,
        saying=f"Node {ctx.node_name} to register",
        every=0.02,
        at_most=0.1,
    )
    taints = registration.taints or ()
    ctx.say(_MARK, f"Marking the Node {ctx.node_name} as a control plane with the labels [{' '.join(objects.LABELS)}]")
    if taints:
        ctx.say(_MARK, f"Marking the Node {ctx.node_name} with the taints [{' '.join(map(kubelet.taint, taints))}]")
    yield ensure_node_marks(write, NodeMarks(name=ctx.node_name, labels=dict.fromkeys(objects.LABELS, ""), taints=taints))


def _unregistered(api: KubeAPI, name: str) -> str | None:
    try:
        found = api.get(NODE, name)
    except APIError as error:
        return str(error)
    labels = found.get("metadata", {}).get("labels", {})
    return None if "kubernetes.io/hostname" in labels else "it has no label kubernetes.io/hostname yet"
