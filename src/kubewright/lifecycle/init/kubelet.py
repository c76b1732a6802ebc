"""The phases `kubelet-start` and `kubelet-finalize`."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.apis import kubeconfig
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.host.desired import Directory, File, Service
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import kubelet

FILE_MODE = 0o644
PRIVATE = 0o700


def start(ctx: InitContext) -> Iterable[Change]:
    """Write the kubelet's three files, then start it; it is restarted where one of them changed."""
    yield ctx.host.ensure(Directory(path=ctx.layout.kubelet, mode=PRIVATE))
    changed = False
    for path, content in kubelet.files(ctx.configuration, ctx.layout, ctx.detected).items():
        change = ctx.host.ensure(File(path=path, content=content.encode(), mode=FILE_MODE))
        ctx.say("kubelet-start", f'Wrote "{path}"' if change else f'"{path}" is as it should be')
        changed = changed or bool(change)
        yield change
    ctx.say("kubelet-start", "Starting the kubelet")
    yield ctx.host.ensure(Service(name="kubelet", running=True, restart=changed))


def finalize(ctx: InitContext) -> Iterable[Change]:
    """Let kubelet.conf name the certificate that the kubelet rotates, once it has one, in place of the embedded one."""
    current = ctx.layout.kubelet_client_current
    path = ctx.layout.kubeconfig("kubelet")
    found = ctx.host.read(path)
    if found is None or ctx.host.state(current) is None:
        return
    document = kubeconfig.with_certificate_files(
        kubeconfig.parse(yaml.load(found, source=str(path)), source=str(path)), certificate=str(current), key=str(current)
    )
    yield ctx.host.ensure(File(path=path, content=yaml.dump(document).encode(), mode=0o600))
