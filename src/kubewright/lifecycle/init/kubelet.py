"""The phases `kubelet-start` and `kubelet-finalize`."""

from __future__ import annotations

from collections.abc import Iterable

from kubewright.apis.kubeconfig import CertificateFiles, kubeconfig_document, parse, require_usable
from kubewright.base import yaml
from kubewright.base.change import Change
from kubewright.base.errors import HostError
from kubewright.base.events import Warned
from kubewright.host.desired import Directory, File, Service
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import kubelet, patches

SERVICE = "kubelet"
FILE_MODE = 0o644
PRIVATE = 0o700


def start(ctx: InitContext) -> Iterable[Change]:
    """Write the kubelet's three files, then start it; it is restarted where one of them changed.

    Starting is best effort, as with kubeadm: where no service manager knows a kubelet, that is only said.
    """
    yield ctx.host.ensure(Directory(path=ctx.layout.kubelet, mode=PRIVATE))
    changed = False
    wanted = kubelet.files(ctx.configuration, ctx.layout, ctx.detected, patch=lambda body: ctx.patched(patches.KUBELET, body))
    for path, content in wanted.items():
        change = ctx.host.ensure(File(path=path, content=content.encode(), mode=FILE_MODE))
        ctx.say("kubelet-start", f'Wrote "{path}"' if change else f'"{path}" is as it should be')
        changed = changed or bool(change)
        yield change
    if ctx.host.service(SERVICE) is None:
        ctx.say("kubelet-start", "No service manager that knows the kubelet was found: start it by hand")
        return
    ctx.say("kubelet-start", "Starting the kubelet")
    try:
        yield ctx.host.ensure(Service(name=SERVICE, running=True, restart=changed, stand_ins=ctx.kubelet_makes))
    except HostError as error:
        ctx.reporter.emit(Warned(text=f"{error}: run `systemctl restart {SERVICE}`"))


def finalize(ctx: InitContext) -> Iterable[Change]:
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
