"""The phases that store configuration in the cluster and mark the Node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from kubewright import tokens
from kubewright.apis.kubeadm.types import BootstrapToken
from kubewright.base.change import Change, Lifetime
from kubewright.base.durations import HOUR, Duration
from kubewright.base.errors import APIError
from kubewright.base.events import Waited
from kubewright.kube import ensure
from kubewright.kube.nodes import NodeMarks, ensure_node_marks
from kubewright.kube.resources import named
from kubewright.lifecycle.init.context import InitContext
from kubewright.manifests import node, objects
from kubewright.pki import sealing
from kubewright.tokens import secrets


def upload_kubeadm(ctx: InitContext) -> Iterable[Change]:
    """Let the administrators' group administrate, and store the ClusterConfiguration with the rights to read it."""
    ctx.say("upload-config", "Storing the configuration in ConfigMap kubeadm-config of namespace kube-system")
    yield from apply(ctx, objects.cluster_admins())
    stored, *rights = objects.kubeadm_config(ctx.configuration)
    yield ensure.ensure_object(ctx.api, ensure.Object(stored, write=ensure.Write.MUTATE_DATA_KEYS))
    yield from apply(ctx, rights)


def upload_kubelet(ctx: InitContext) -> Iterable[Change]:
    """Store the kubelet's configuration for the machines that join."""
    ctx.say("kubelet", "Storing the kubelet's configuration in ConfigMap kubelet-config of namespace kube-system")
    yield from apply(ctx, objects.kubelet_config(ctx.configuration))


def apply(ctx: InitContext, wanted: Iterable[Mapping[str, Any]]) -> Iterable[Change]:
    """Ensure objects in order, one change each."""
    for body in wanted:
        yield ensure.ensure_object(ctx.api, ensure.Object(body))


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
    yield ensure.ensure_object(ctx.api, ensure.Object(secrets.secret_object(owner, clock=ctx.clock), lifetime=Lifetime.EPHEMERAL))
    stored = ctx.api.get(named("Secret"), secrets.name_of(tokens.parse(owner.token).id), "kube-system")
    key = sealing.parse_key(ctx.certificate_key)
    sealed = {name: sealing.seal(content, key, random=ctx.random) for name, content in _shared_files(ctx).items()}
    metadata = stored["metadata"]
    # A server gives every object a uid; in a plan nobody does, and kubeadm's dry run leaves it empty as well.
    secret, *rights = objects.kubeadm_certs(sealed, owner=str(metadata["name"]), owner_uid=str(metadata.get("uid") or ""))
    yield ensure.ensure_object(ctx.api, ensure.Object(secret, lifetime=Lifetime.EPHEMERAL))
    yield from apply(ctx, rights)
    ctx.say("upload-certs", f"Using certificate key:\n{ctx.certificate_key if ctx.show_certificate_key else '<value withheld>'}")


def _shared_files(ctx: InitContext) -> Mapping[str, bytes]:
    """Return what every control plane needs, by its name in the Secret (spec/kubeadm.md 7.3)."""
    names = ["ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.pub", "sa.key"]
    external = ctx.cluster.etcd.external
    if external is None:
        names += ["etcd/ca.crt", "etcd/ca.key"]
    files = {name.replace("/", "-"): ctx.certificates.read(name) or b"" for name in names}
    if external is not None:
        places = {"external-etcd-ca.crt": external.ca_file, "external-etcd.crt": external.cert_file, "external-etcd.key": external.key_file}
        files |= {name: (ctx.host.read(PurePosixPath(path)) or b"") if path else b"" for name, path in places.items()}
    return files


def mark_control_plane(ctx: InitContext) -> Iterable[Change | Waited]:
    """Label and taint this machine's Node, once its kubelet has registered it."""
    within = ctx.configuration.init.timeouts.kubernetes_api_call.seconds
    yield ctx.waiter.until(lambda: _unregistered(ctx), within=within, saying=f"Node {ctx.node_name} to register", every=0.02, at_most=0.1)
    taints = ctx.configuration.init.node_registration.taints or ()
    ctx.say("mark-control-plane", f"Marking the Node {ctx.node_name} as a control plane with the labels [{' '.join(node.LABELS)}]")
    if taints:
        ctx.say("mark-control-plane", f"Marking the Node {ctx.node_name} with the taints [{' '.join(map(_taint, taints))}]")
    marks = NodeMarks(name=ctx.node_name, labels=dict.fromkeys(node.LABELS, ""), taints=taints)
    yield ensure_node_marks(ctx.api, marks)


def _taint(taint: Mapping[str, object]) -> str:
    """Write a taint as kubectl does: `key=value:Effect`, without `=` where it has no value."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def _unregistered(ctx: InitContext) -> str | None:
    try:
        found = ctx.probe.get(named("Node"), ctx.node_name)
    except APIError as error:
        return str(error)
    labels = found.get("metadata", {}).get("labels", {})
    return None if "kubernetes.io/hostname" in labels else "it has no label kubernetes.io/hostname yet"
