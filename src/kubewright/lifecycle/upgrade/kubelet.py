"""The phases `kubeconfig`, `kubelet-config` and `post-upgrade` (kubeadm v1.36: phases/upgrade/postupgrade.go).

The kubelet is not restarted for its new configuration: that is for the release that is installed afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kubewright.apis.kubeadm import features
from kubewright.base import yaml
from kubewright.base.patterns import Pattern
from kubewright.host.desired import Directory, File
from kubewright.kube.objects import NodeMarks, ensure_node_marks
from kubewright.kube.patches import apply_merge
from kubewright.lifecycle.steps import kubelet
from kubewright.lifecycle.upgrade import kubelet_files
from kubewright.manifests import kubelet as manifests
from kubewright.manifests import patches
from kubewright.pki import specs, table
from kubewright.workflow.phases import Step

if TYPE_CHECKING:
    from kubewright.lifecycle.upgrade.context import UpgradeContext

SOCKET_ANNOTATION: Final = "kubeadm.alpha.kubernetes.io/cri-socket"
_TOPIC: Final = "upgrade/kubelet-config"
_SOCKET_FLAG: Final = Pattern(r"\s?--container-runtime-endpoint=[^\s\"]+")


def use_local_server(ctx: UpgradeContext) -> Iterator[Step]:
    """Point the kubelet of a control plane from the cluster's endpoint to the API server of its own machine."""
    path, local = ctx.layout.kubeconfig("kubelet"), ctx.addresses.api_server
    shared = specs.server(table.Endpoint.CONTROL_PLANE, ctx.configuration, ctx.addresses)
    content = ctx.host.read(path)
    if content is None or shared == local or kubelet.with_server(content, shared) is not None:
        return
    yield from kubelet_files.replaced(ctx, [File(path=path, content=kubelet.with_server(content, local) or content, mode=0o600)])
    ctx.say("upgrade/kubeconfig", "The kubeconfig files for this node were successfully upgraded!")


def configure(ctx: UpgradeContext) -> Iterator[Step]:
    """Write the stored kubelet configuration with this machine's own settings; the old file is copied first."""
    local = features.enabled(ctx.cluster, features.NODE_LOCAL_CRI_SOCKET)
    instance = _instance(ctx) if local else []
    wanted = File(path=ctx.layout.kubelet_config, content=yaml.dump(_document(ctx, instance)).encode(), mode=kubelet.FILE_MODE)
    old = ctx.host.read(wanted.path)
    if old is not None and old != wanted.content:
        directory = ctx.layout.kubernetes / "tmp" / f"kubeadm-kubelet-config-{ctx.bound.started:%Y-%m-%d-%H-%M-%S}"
        ctx.host.ensure(Directory(path=directory, mode=kubelet.PRIVATE))
        ctx.host.ensure(File(path=directory / wanted.path.name, content=old, mode=kubelet.FILE_MODE))
        ctx.say("upgrade", f"Backing up kubelet config file to {directory / wanted.path.name}")
    yield from kubelet_files.replaced(ctx, [*instance, wanted])
    if local:
        yield ensure_node_marks(ctx.api, NodeMarks(name=ctx.node_name, annotations={SOCKET_ANNOTATION: None}))
    ctx.say(_TOPIC, "The kubelet configuration for this node was successfully upgraded!")


def replace_program(ctx: UpgradeContext) -> Iterable[Step]:
    """Replace the kubelet of this machine if one was given."""
    if not ctx.request.kubelet:
        return ()
    from kubewright.lifecycle.upgrade import kubelet_program  # few runs are given one

    return kubelet_program.replace(ctx)


def _instance(ctx: UpgradeContext) -> list[File]:
    """Return the file of the machine's own settings if an older release passed the socket as a flag, and the flags without it."""
    layout = ctx.layout
    if ctx.host.state(layout.kubelet_instance_config) is not None:
        return []
    flags = (ctx.host.read(layout.kubelet_flags) or b"").decode(errors="replace")
    text = manifests.instance_config(ctx.configuration)
    files = [File(path=layout.kubelet_instance_config, content=text.encode(), mode=kubelet.FILE_MODE)]
    found = _SOCKET_FLAG.search(flags)
    if found:
        rest = flags.replace(found[0], "", 1)
        files.append(File(path=layout.kubelet_flags, content=rest.encode(), mode=kubelet.FILE_MODE))
    return files


def _document(ctx: UpgradeContext, new: Sequence[File]) -> dict[str, Any]:
    """Return the configuration merged with instance-config.yaml, which may contain more than the socket, and may be among the new files."""
    document = manifests.config(ctx.configuration, ctx.detected, patch=lambda body: ctx.patched(patches.KUBELET, body))
    path = ctx.layout.kubelet_instance_config
    given = next((file.content for file in new if file.path == path), None)
    own = yaml.load(given or ctx.host.read(path) or b"", source=str(path))
    merged: dict[str, Any] = apply_merge(document, own) if isinstance(own, dict) else document
    return merged
