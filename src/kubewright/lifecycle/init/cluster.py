"""The phases that store configuration in the cluster and mark the Node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kubewright import tokens
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.change import Change, Lifetime
from kubewright.base.durations import HOUR, Duration
from kubewright.base.events import Waited
from kubewright.kube.objects import DesiredObject, Write, ensure_object
from kubewright.kube.resources import named
from kubewright.lifecycle.init.context import InitContext
from kubewright.lifecycle.steps import node_marking
from kubewright.lifecycle.steps.shared_files import shared_files
from kubewright.manifests import objects
from kubewright.pki import sealing
from kubewright.tokens import secrets


def upload_kubeadm(ctx: InitContext) -> Iterable[Change]:
    """Let the administrators' group administrate, and store the ClusterConfiguration with the rights to read it."""
    ctx.say("upload-config", "Storing the configuration in ConfigMap kubeadm-config of namespace kube-system")
    yield from apply(ctx, objects.cluster_admins())
    stored, *rights = objects.kubeadm_config(ctx.configuration)
    yield ensure_object(ctx.api, DesiredObject(stored, write=Write.MUTATE_DATA_KEYS))
    yield from apply(ctx, rights)


def upload_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Store the kubelet's configuration for the machines that join."""
    ctx.say("kubelet", "Storing the kubelet's configuration in ConfigMap kubelet-config of namespace kube-system")
    yield from apply(ctx, objects.kubelet_config(ctx.configuration))


def apply(ctx: InitContext, wanted: Iterable[Mapping[str, Any]]) -> Iterable[Change]:
    """Ensure objects in order, one change each."""
    for body in wanted:
        yield ensure_object(ctx.api, DesiredObject(body))


def upload_certs(ctx: InitContext) -> Iterable[Change]:
    """Store the control plane's certificates, sealed with the certificate key, for two hours. Nothing without --upload-certs."""
    if not ctx.upload_certs:
        ctx.say("upload-certs", "Skipping phase: use --upload-certs to store the certificates in the cluster")
        return
    ctx.say("upload-certs", "Storing the certificates in Secret kubeadm-certs of namespace kube-system")
    owner = BootstrapToken(
        token=tokens.generate(ctx.random).text,
        ttl=Duration(2 * HOUR),
        description="Proxy for managing TTL for the kubeadm-certs secret",
        usages=(),
        groups=(),
    )
    yield ensure_object(ctx.api, DesiredObject(secrets.secret_object(owner, clock=ctx.clock), lifetime=Lifetime.EPHEMERAL))
    stored = ctx.api.get(named("Secret"), secrets.name_of(tokens.parse(owner.token).id), "kube-system")
    key = sealing.parse_key(ctx.certificate_key)
    sealed = {name: sealing.seal(content, key, random=ctx.random) for name, content in _shared_files(ctx).items()}
    metadata = stored["metadata"]
    # A server gives every object a uid; in a plan nobody does, and kubeadm's dry run leaves it empty as well.
    secret, *rights = objects.kubeadm_certs(sealed, owner=str(metadata["name"]), owner_uid=str(metadata.get("uid") or ""))
    yield ensure_object(ctx.api, DesiredObject(secret, lifetime=Lifetime.EPHEMERAL))
    yield from apply(ctx, rights)
    ctx.say("upload-certs", f"Using certificate key:\n{ctx.certificate_key if ctx.show_certificate_key else '<value withheld>'}")


def _shared_files(ctx: InitContext) -> Mapping[str, bytes]:
    """Return what every control plane needs, by its name in the Secret (spec/kubeadm.md 7.3)."""
    places = shared_files(ctx.cluster, ctx.layout)
    return {name: (ctx.host.read(path) or b"") if path is not None else b"" for name, path in places.items()}


def mark_control_plane(ctx: InitContext) -> Iterable[Change | Waited]:
    """Label and taint this machine's Node, once its kubelet has registered it."""
    yield from node_marking.mark(ctx, look=ctx.probe, write=ctx.api)
